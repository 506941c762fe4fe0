"""Everything that needs PyTorch, the extra `torch`: steps captured and run, gradients measured, embeddings cached.

Nothing else in gapless but the command line imports this package. `gapless.torch.load(path, model, loss)` makes a step
of a plan file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.torch.run.step import load_step as load

__all__ = ["load"]


def __getattr__(name: str) -> object:
    """Import `load` on first use."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gapless.torch.run.step import load_step

    return load_step
