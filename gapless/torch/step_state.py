"""What a training step changes of a model, kept and put back. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gapless.torch.devices import random_state, set_random_state
from gapless.torch.library import Module, Tensor, torch

__all__ = ["StepState", "unchanged"]


@dataclass(frozen=True)
class StepState:
    """What a step changes: gradients, buffers (running statistics), of which these are copies, and random states."""

    gradients: tuple[tuple[Tensor, Tensor | None], ...]
    buffers: tuple[tuple[Tensor, Tensor], ...]
    random: tuple[tuple[torch.device, Tensor], ...]

    @classmethod
    def of(cls, model: Module, devices: Iterable[torch.device]) -> StepState:
        """As it is now; of devices, the CPU is always among them."""
        others = sorted({device for device in devices if device.type != "cpu"}, key=str)
        return cls(
            tuple((parameter, parameter.grad) for parameter in model.parameters()),
            tuple((buffer, buffer.clone()) for buffer in model.buffers()),
            tuple((device, random_state(device)) for device in (torch.device("cpu"), *others)),
        )

    def without_gradients(self) -> None:
        """Buffers and random states as they were, and no gradients."""
        self.put_back()
        for parameter, _ in self.gradients:
            parameter.grad = None

    def put_back(self) -> None:
        """All as it was."""
        with torch.no_grad():
            for buffer, value in self.buffers:
                buffer.copy_(value)
        for device, state in self.random:
            set_random_state(state, device)
        for parameter, gradient in self.gradients:
            parameter.grad = gradient


@contextmanager
def unchanged(model: Module, device: torch.device) -> Iterator[None]:
    """Put back gradients, buffers and the random state."""
    before = StepState.of(model, [device])
    try:
        yield
    finally:
        before.put_back()
