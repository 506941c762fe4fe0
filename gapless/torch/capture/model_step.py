"""A model with its loss as one module that takes tensors alone, to be traced. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.errors import InputError
from gapless.torch.capture.model_state import check_plain
from gapless.torch.library import torch

__all__ = ["ModelStep", "refuse_autocast"]


def refuse_autocast(what: str) -> None:
    """Raise `InputError` under torch.autocast."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        rule = f"{what}: must be outside of torch.autocast, of which a plan knows nothing"
        raise InputError(f"{rule}; put `with torch.autocast(...)` into the model's forward, or cast the model")


class ModelStep:
    """The module to trace: model and loss in one, with tensors only as its arguments."""

    def __init__(self, model: Any, loss: Any, inputs: Any, targets: tuple[Any, ...]) -> None:
        refuse_autocast("capture")
        check_plain(model)
        arguments, named = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
        leaves, structure = torch.utils._pytree.tree_flatten((arguments, named, targets))  # noqa: SLF001
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise InputError(f"capture: inputs and targets must be tensors, got {type(leaf).__name__}")
            if leaf.requires_grad:
                rule = "capture: inputs and targets must not require gradients, which only parameters get"
                raise InputError(f"{rule}; detach them, or make them parameters")
        self.leaves, self.structure, self.target_count, self.objective = leaves, structure, len(targets), loss
        self.module = _module(model, loss, structure)

    @property
    def batch(self) -> int:
        """The first dimension of the first argument: what people call the batch size."""
        shape: tuple[int, ...] = tuple(self.leaves[0].shape) if self.leaves else ()
        return max(shape[0], 1) if shape else 1


def _module(model: Any, loss: Any, structure: Any) -> Any:
    class Step(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *leaves: Any) -> Any:
            arguments, named, targets = torch.utils._pytree.tree_unflatten(leaves, structure)  # noqa: SLF001
            found = self.model(*arguments, **named)
            return found if loss is None else loss(found, *targets)

    step = Step()
    step.training = model.training  # without touching the modes of the model's parts
    return step
