"""Everything that needs PyTorch, the extra `torch`: steps captured and run, gradients measured, embeddings cached.

Nothing else in gapless but the command line imports this package. `gapless.torch.planned(model, budget)` lets a model's
calls follow plans, `planned_blocks` those of its blocks, within one budget for all. `gapless.torch.load(path, model,
loss)` makes a step of a plan file, and `gapless.torch.Compiler` is the backend "gapless" of `torch.compile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.torch.calls.blocks import planned_blocks
    from gapless.torch.calls.model import planned, unplanned
    from gapless.torch.calls.padding import Padding
    from gapless.torch.compiler.backend import Compiler
    from gapless.torch.run.step import load_step as load

__all__ = ["Compiler", "Padding", "load", "planned", "planned_blocks", "unplanned"]


def __getattr__(name: str) -> object:
    """Import what is asked for on first use."""
    if name == "load":
        from gapless.torch.run.step import load_step

        return load_step
    if name == "Compiler":
        from gapless.torch.compiler.backend import Compiler

        return Compiler
    if name in __all__:
        from gapless.torch import calls

        return getattr(calls, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
