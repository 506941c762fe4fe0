"""The first run of a planned step beside eager's: same inputs, same random state, same buffers to begin with.

Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gapless.errors import lacks_memory
from gapless.torch.library import random_state, set_random_state, torch
from gapless.torch.run.difference import Difference, Outcome, difference

__all__ = ["Compared", "compared"]


@dataclass(frozen=True)
class Compared:
    """A planned step that has run, of which the model shows nothing until `keep` is called.

    `difference`: None where there was not enough memory for eager's step.
    """

    loss: Any
    difference: Difference | None
    keep: Callable[[], None]


def compared(model: Any, planned: Callable[[], Any], eager: Callable[[], Any]) -> Compared:
    """Run a planned step and eager's, and put gradients, buffers and random state back as they were."""
    tensors = [*model.parameters(), *model.buffers()]
    devices = sorted({tensor.device for tensor in tensors if tensor.device.type == "cuda"}, key=str)
    devices = [torch.device("cpu"), *devices]
    before = _State.of(model, devices)
    try:
        before.without_gradients()
        loss = planned()
        found, after = Outcome.of(loss, model), _State.of(model, devices)
        before.without_gradients()
        expected = _outcome_of(eager, model, devices)
    finally:
        before.put_back()
    apart = None if expected is None else difference(found, expected)

    def keep() -> None:
        after.put_back()
        with torch.no_grad():
            for parameter, gradient in before.gradients:
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)

    return Compared(loss, apart, keep)


@dataclass(frozen=True)
class _State:
    """Gradients, copies of buffers, and the random states of devices."""

    gradients: tuple[tuple[Any, Any], ...]
    buffers: tuple[tuple[Any, Any], ...]
    random: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, model: Any, devices: list[Any]) -> _State:
        return cls(
            tuple((parameter, parameter.grad) for parameter in model.parameters()),
            tuple((buffer, buffer.clone()) for buffer in model.buffers()),
            tuple((device, random_state(device)) for device in devices),
        )

    def without_gradients(self) -> None:
        """Buffers and random states as they were, and no gradients."""
        self._restore()
        for parameter, _ in self.gradients:
            parameter.grad = None

    def put_back(self) -> None:
        """All as it was."""
        self._restore()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient

    def _restore(self) -> None:
        with torch.no_grad():
            for buffer, value in self.buffers:
                buffer.copy_(value)
        for device, state in self.random:
            set_random_state(state, device)


def _outcome_of(eager: Callable[[], Any], model: Any, devices: list[Any]) -> Outcome | None:
    """What eager's step leaves; on a GPU its saved tensors lie in the host's memory, since it may not fit there."""
    on_gpu = len(devices) > 1
    try:
        with torch.enable_grad(), torch.autograd.graph.save_on_cpu() if on_gpu else contextlib.nullcontext():
            return Outcome.of(eager(), model)
    except (MemoryError, RuntimeError) as error:
        if not (lacks_memory(error) or isinstance(error, torch.OutOfMemoryError)):
            raise
        return None
    finally:
        if on_gpu:
            torch.cuda.empty_cache()
