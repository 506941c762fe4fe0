"""A communication hook that sends each layer's gradient in a mode of its own, which may change between epochs.

A state and a function go to DDP together::

    state = LayerState(model, {"0.weight": "powersgd:2", "0.bias": "plain"})
    ddp.register_comm_hook(state, reduce_layers)
    ...
    state.set_modes({"0.weight": "powersgd:1", "0.bias": "plain"})  # from the next step on

What the modes of a bucket's layers have to send goes into one message for each round and collective. Each layer has an
error of its own, added to its next gradient, and whatever its mode keeps: both outlive the rebuilding of DDP's buckets
and a change of modes. A step that overflows changes neither. Annotations are evaluated in this file, since DDP compares
those of a hook with its own types.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket
from gapless.torch.compression import exchanged_together
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.emulation import Wire
from gapless.torch.ddp.state import FeedbackState, Scaler, check_header, header, owner_of
from gapless.torch.library import torch

__all__ = ["LayerState", "reduce_layers"]


_SETTLED = 2
"""Steps after which DDP's buckets are final."""


class LayerState(FeedbackState):
    """What the hook keeps from step to step. `sent_bytes`: what this rank has sent in all.

    `modes`: by the names of the model's parameters; `group`, `scaler`: as for `FeedbackState`. `observe`: called with a
    parameter's name and its gradient before it is compressed. `wire`: an emulated one that
    sends take. Raises `InputError` for an unknown mode or parameter, or one without a mode.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        modes: Mapping[str, str],
        group: torch.distributed.ProcessGroup | None = None,
        error_feedback: bool = True,
        observe: Callable[[str, torch.Tensor], None] | None = None,
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(group, error_feedback, scaler)
        self.observe, self.sent_bytes = observe, 0
        self.wire: Wire | None = None
        self._parameters = trainable(model)
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._order: list[list[str]] = []
        self.set_modes(modes)

    def set_modes(self, modes: Mapping[str, str]) -> None:
        """Other modes from the next step on; errors that are still to be sent stay."""
        for name in [*modes, *self._parameters]:
            if name not in self._parameters:
                raise InputError(f"parameter {name!r}: must be in the model and require a gradient")
            if name not in modes:
                raise InputError(f"parameter {name!r}: must have a mode")
        self._methods = {name: method_of(mode) for name, mode in modes.items()}
        self._modes = dict(modes)

    @property
    def modes(self) -> Mapping[str, str]:
        """By the names of the model's parameters."""
        return self._modes

    def reduce(self, bucket: torch.distributed.GradBucket) -> torch.Tensor:
        """The mean over all ranks of what the modes make of a bucket's gradients."""
        if self._is_idle:
            return bucket.buffer()
        self._begin(bucket, is_lossy=True)
        if bucket.index() == 0:
            self._order = []
        names = [self._names[id(parameter)] for parameter in bucket.parameters()]
        self._order.append(names)
        given = [self._corrected(name, gradient) for name, gradient in zip(names, bucket.gradients(), strict=True)]
        exchanges = [self._methods[name].exchange(each) for name, each in zip(names, given, strict=True)]
        means, sent_bytes = exchanged_together(exchanges, self.group, self.wire)
        self.sent_bytes += sent_bytes
        for name, each in zip(names, given, strict=True):
            self._keep((id(self._parameters[name]),), (len(each.gradient),), each, self._methods[name])
        mean = torch.cat([mean.reshape(-1) for mean in means])
        self._memory.look(mean)
        return mean

    def _corrected(self, name: str, gradient: torch.Tensor) -> Bucket:
        """A copy of a layer's gradient, with what was not sent before."""
        if self.observe is not None:
            self.observe(name, gradient.detach())
        flat = gradient.detach().reshape(-1)
        kept = self._memory.of((id(self._parameters[name]),), [len(flat)])
        return self._given(flat, [tuple(gradient.shape)], list(self._parameters).index(name), kept, is_lossy=True)

    # -- saved and loaded ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, object]:
        """This rank's errors, factors, modes and numbers of steps, in plain values and tensors, for `load_state_dict`.

        Every rank has its own.
        """
        own = {"modes": dict(self._modes), "order": self._order, "sent_bytes": self.sent_bytes}
        return {**header("layers", self.group), **own, **self._memory.data(self._names)}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on as the run in which `state_dict` gave this, in its modes; called by all ranks, before the first step.

        DDP gets the buckets of that run, where the state is registered with one. Raises `InputError` for another rank,
        number of ranks or model.
        """
        check_header(data, "layers", self.group)
        memory = self._memory.loaded(data, self._parameters)
        self.set_modes(data["modes"])
        ddp = owner_of(self)
        if ddp is not None and memory.steps >= _SETTLED:
            self._rebuild(ddp, data["order"])
        self._memory, self._order, self.sent_bytes = memory, list(data["order"]), int(data["sent_bytes"])


def reduce_layers(state: LayerState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean over all ranks of the bucket's gradients, each layer in its mode."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(state.reduce(bucket))
    return future
