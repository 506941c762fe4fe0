"""How far a step is from eager's: loss, gradients and buffers, tensor by tensor.

The first run of a planned step goes beside eager's, on the same inputs, random state and buffers to begin with. Needs
the extra `torch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, inf, isfinite

from gapless.errors import lacks_memory
from gapless.torch.devices import Device, device_of
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.step_state import StepState

__all__ = ["Compared", "Difference", "Outcome", "buffer_difference", "compared", "difference", "gradient_difference"]


_LEAST_SHARE = 1e-3
"""Of the norm of all gradients: one that is smaller is compared with this, since it may be rounding alone."""


@dataclass(frozen=True)
class Outcome:
    """What a step leaves behind. A gradient is None where there is none."""

    loss: Tensor
    gradients: Mapping[str, Tensor | None]
    buffers: Mapping[str, Tensor]

    @classmethod
    def of(cls, loss: Tensor, model: Module) -> Outcome:
        """The outcome of a step that a model has just made; gradients are not copied."""
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        return cls(loss.detach().clone(), gradients, {name: buffer.clone() for name, buffer in model.named_buffers()})


@dataclass(frozen=True)
class Difference:
    """The tensor that is furthest from eager's.

    `relative`: the norm of what it is off by, relative to its norm, infinite where it isn't there or isn't finite;
    `name`: what it is, empty where all are equal. `counts`: of gradients and buffers.
    """

    relative: float
    name: str
    counts: tuple[int, int]

    @property
    def is_equal(self) -> bool:
        """Whether loss, gradients and buffers have eager's bits."""
        return not self.name

    def __str__(self) -> str:
        gradients, buffers = self.counts
        if self.is_equal:
            return f"loss, {gradients} gradients and {buffers} buffers are bit-equal to eager's"
        return f"{self.name} is off eager's by {self.relative:.1g} of its norm, and nothing by more"


def difference(outcome: Outcome, expected: Outcome) -> Difference:
    """How far an outcome is from eager's."""
    worst = max(gradient_difference(outcome, expected), buffer_difference(outcome, expected))
    return Difference(*worst, (len(_present(expected)), len(expected.buffers)))


def gradient_difference(outcome: Outcome, expected: Outcome) -> tuple[float, str]:
    """How far the loss or gradient is that is furthest from eager's, and its name; 0, "" where all are equal."""
    floor = _LEAST_SHARE * hypot(*(_norm(gradient) for gradient in _present(expected)))
    return max(
        _furthest("the loss", {"": outcome.loss}, {"": expected.loss}),
        _furthest("the gradient of", outcome.gradients, expected.gradients, floor),
    )


def buffer_difference(outcome: Outcome, expected: Outcome) -> tuple[float, str]:
    """The same for buffers."""
    return _furthest("the buffer", outcome.buffers, expected.buffers)


def _present(outcome: Outcome) -> list[Tensor]:
    return [gradient for gradient in outcome.gradients.values() if gradient is not None]


def _furthest(
    title: str, outcome: Mapping[str, Tensor | None], expected: Mapping[str, Tensor | None], floor: float = 0.0
) -> tuple[float, str]:
    worst = (0.0, "")
    for name, other in expected.items():
        if not _same(outcome[name], other):
            worst = max(worst, (_distance(outcome[name], other, floor), f"{title} {name}".strip()))
    return worst


def _same(tensor: Tensor | None, other: Tensor | None) -> bool:
    """Equal bit by bit, but for the sign of zero."""
    if tensor is None or other is None:
        return tensor is other
    return torch.equal(tensor, other) or bool(((tensor == other) | (tensor.isnan() & other.isnan())).all())


def _distance(tensor: Tensor | None, other: Tensor | None, floor: float) -> float:
    if tensor is None or other is None:
        return inf
    distance = _norm(_wide(tensor) - _wide(other))
    return distance / max(_norm(other), floor, 1e-30) if isfinite(distance) else inf


def _norm(tensor: Tensor) -> float:
    return float(_wide(tensor).norm())


def _wide(tensor: Tensor) -> Tensor:
    """In a type that its norm fits into; what is complex as pairs of numbers."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor if tensor.dtype == torch.float64 else tensor.float()


@dataclass(frozen=True)
class Compared:
    """A planned step that has run, of which the model shows nothing until `keep` is called.

    `difference`: None where there was not enough memory for eager's step.
    """

    loss: Tensor
    difference: Difference | None
    keep: Callable[[], None]


def compared(model: Module, planned: Callable[[], Tensor], eager: Callable[[], Tensor]) -> Compared:
    """Run a planned step and eager's, and put gradients, buffers and random state back as they were."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    before = StepState.of(model, devices)
    try:
        before.without_gradients()
        loss = planned()
        planned_outcome, after = Outcome.of(loss, model), StepState.of(model, devices)
        before.without_gradients()
        expected = _outcome_of(eager, model, [device_of(device) for device in devices])
    finally:
        before.put_back()
    apart = None if expected is None else difference(planned_outcome, expected)

    def keep() -> None:
        after.put_back()
        with torch.no_grad():
            for parameter, gradient in before.gradients:
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)

    return Compared(loss, apart, keep)


def _outcome_of(eager: Callable[[], Tensor], model: Module, devices: list[Device]) -> Outcome | None:
    """What eager's step leaves; its saved tensors lie in the host's memory, since it may not fit on a GPU."""
    try:
        with torch.enable_grad(), contextlib.ExitStack() as saving:
            for device in devices:
                saving.enter_context(device.saving_on_host())
            return Outcome.of(eager(), model)
    except (MemoryError, RuntimeError) as error:
        if not (lacks_memory(error) or isinstance(error, torch.OutOfMemoryError)):
            raise
        return None
    finally:
        for device in devices:
            device.give_back()
