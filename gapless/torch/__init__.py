"""Everything that needs PyTorch, the extra `torch`: steps captured and run, gradients measured, embeddings cached.

Nothing else in gapless but the command line imports this package. `gapless.torch.planned(model, budget)` lets a model's
calls follow plans, `planned_blocks` those of its blocks, within one budget for all. `gapless.torch.load(path, model,
loss)` makes a step of a plan file, `gapless.torch.Compiler` is the backend "gapless" of `torch.compile`, and
`gapless.torch.policy` makes a policy of selective checkpointing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.torch.calls.blocks import planned_blocks
    from gapless.torch.calls.model import planned, unplanned
    from gapless.torch.calls.padding import Padding
    from gapless.torch.compiler.backend import Compiler
    from gapless.torch.compiler.policy import policy
    from gapless.torch.run.step import load_step as load

__all__ = ["Compiler", "Padding", "load", "planned", "planned_blocks", "policy", "unplanned"]

_PLACES = {
    "Compiler": ("gapless.torch.compiler.backend", "Compiler"),
    "Padding": ("gapless.torch.calls.padding", "Padding"),
    "load": ("gapless.torch.run.step", "load_step"),
    "planned": ("gapless.torch.calls", "planned"),
    "planned_blocks": ("gapless.torch.calls", "planned_blocks"),
    "policy": ("gapless.torch.compiler.policy", "policy"),
    "unplanned": ("gapless.torch.calls", "unplanned"),
}


def __getattr__(name: str) -> object:
    """Import what is asked for on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(module), attribute)
