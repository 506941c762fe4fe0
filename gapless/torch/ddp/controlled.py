"""A hook's state that a controller drives: after each epoch it sees norms of gradients, and sets the next one's modes.

::

    state = ControlledState(model, Accordion("powersgd:4", "powersgd:1"), learning_rate=0.1)
    ddp.register_comm_hook(state, reduce_layers)
    ...
        state.end_epoch(scheduler.get_last_lr()[0])  # once an epoch: the learning rate of the next one

Annotations are evaluated in this file, since DDP compares those of a hook with its own types.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gapless.profiles.compression.control import Controller, EpochLook, Setting
from gapless.profiles.compressors.method import Message
from gapless.torch.compression import ModeErrors, sent_together
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.layer_modes import LayerState
from gapless.torch.ddp.state import Scaler, poison
from gapless.torch.library import rank_count, torch

__all__ = ["ControlledState"]


class ControlledState(LayerState):
    """`LayerState` whose modes a controller sets; for `reduce_layers`.

    `setting`: of the epoch that runs; where a controller sets batches, the training takes `setting.batch` and
    `setting.rate_factor` from there. `learning_rate`: the schedule's, of the first epoch. Norms are of the mean
    gradients that the optimiser gets; those of an overflowed step don't count. At the steps that the controller looks
    at, the plain gradient is sent too: `looked_bytes` of this rank in all, which `sent_bytes` has as well. Raises
    `InputError` as `LayerState` and the controller do.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        controller: Controller,
        learning_rate: float,
        group: torch.distributed.ProcessGroup | None = None,
        error_feedback: bool = True,
        scaler: Scaler | None = None,
    ) -> None:
        self.controller, self.looked_bytes = controller, 0
        self.norms: dict[str, float] = {}
        self._layers = tuple(trainable(model))
        self.setting = controller.start(self._layers)
        super().__init__(model, self._named(self.setting), group, error_feedback, scaler=scaler)
        self._rate = learning_rate
        self._scaler = scaler
        self._errors = {name: ModeErrors(controller.measured) for name in self._layers}
        self._begin_epoch()

    def reduce(self, bucket: torch.distributed.GradBucket) -> torch.Tensor:
        """The mean over all ranks of what the modes make of a bucket's gradients; it counts for the epoch's norms."""
        if self._is_idle:
            return bucket.buffer()
        if bucket.index() == 0:
            self._seen: list[tuple[list[str], torch.Tensor]] = []
            self._is_looked_at = self.controller.is_looked_at(self._step)
            self._step += 1
        if self._is_looked_at:
            self._look(bucket)
        mean = super().reduce(bucket)
        self._seen.append((self._order[-1], mean))
        if bucket.is_last():
            self._count()
        return mean

    def end_epoch(self, learning_rate: float) -> Setting:
        """The setting of the next epoch, whose learning rate this is; every rank calls it once an epoch is over.

        Rank 0's numbers are every rank's.
        """
        norms = [self._sums[name].double().norm() if name in self._sums else torch.tensor(0.0).double()
                 for name in self._layers]  # fmt: skip
        errors = [float(error) for name in self._layers for error in self._errors[name].means()]
        device = next((total.device for total in self._sums.values()), torch.device("cpu"))
        row = torch.stack([norm.to(device) for norm in norms]) / max(float(self._steps), 1.0)
        row = torch.cat([row, torch.tensor(errors, dtype=torch.float64, device=device)])
        if rank_count(self.group) > 1:
            first = 0 if self.group is None else torch.distributed.get_global_rank(self.group, 0)
            torch.distributed.broadcast(row, first, self.group)
        known = row.cpu().numpy()
        seen, layers = bool(errors) and self._has_looked, len(self._layers)
        table = np.asarray(known[layers:]).reshape(layers, -1) if seen else None
        norms_of = np.asarray(known[:layers], dtype=np.float64)
        self.norms = dict(zip(self._layers, norms_of.tolist(), strict=True))
        self.setting = self.controller.after(EpochLook(norms_of, learning_rate < self._rate, table))
        self.set_modes(self._named(self.setting))
        self._rate = learning_rate
        self._begin_epoch()
        return self.setting

    def _begin_epoch(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._steps: float | torch.Tensor = 0.0
        self._step, self._is_looked_at, self._has_looked = 0, False, False
        self._seen = []
        for errors in self._errors.values():
            errors.begin()

    def _named(self, setting: Setting) -> dict[str, str]:
        return dict(zip(self._layers, setting.modes, strict=True))

    def _count(self) -> None:
        """Add a step's means, unless it has overflowed; nothing waits for a GPU."""
        scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        is_sound = torch.isfinite(torch.stack([poison(mean) for _, mean in self._seen]).sum()).double()
        for names, mean in self._seen:
            flat = torch.nan_to_num(mean.detach().float(), 0.0, 0.0, 0.0) * (is_sound.float() / scale)
            parts = flat.split([self._parameters[name].numel() for name in names])
            for name, part in zip(names, parts, strict=True):
                self._sums[name] = self._sums[name] + part if name in self._sums else part.clone()
        self._steps = self._steps + is_sound
        self._seen = []

    def _look(self, bucket: torch.distributed.GradBucket) -> None:
        """Measure what the controller's modes would spoil of the mean gradient, which is sent for that."""
        message = Message("all_reduce", bucket.buffer().detach().clone())
        (mean,), sent_bytes = sent_together([message], self.group, self.wire)
        mean = mean / rank_count(self.group)
        self.sent_bytes += sent_bytes
        self.looked_bytes += sent_bytes
        scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        names = [self._names[id(parameter)] for parameter in bucket.parameters()]
        parts = mean.split([self._parameters[name].numel() for name in names])
        if bool(torch.isfinite(poison(mean))):
            self._has_looked = True
            for name, part in zip(names, parts, strict=True):
                self._errors[name].look(part.view(self._parameters[name].shape) / scale)

    # -- saved and loaded ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, object]:
        """As `LayerState`'s, with the controller's and the epoch's sums; errors of looks of a broken epoch aren't."""
        own = {"controller": self.controller.state_dict(), "rate": self._rate, "looked_bytes": self.looked_bytes,
               "sums": dict(self._sums), "counted": float(self._steps), "step": self._step}  # fmt: skip
        return {**super().state_dict(), "control": own}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on as the run in which `state_dict` gave this, as `LayerState` does."""
        super().load_state_dict(data)
        own = data["control"]
        self.setting = self.controller.load_state_dict(own["controller"])
        self.set_modes(self._named(self.setting))
        self._rate, self.looked_bytes, self._step = float(own["rate"]), int(own["looked_bytes"]), int(own["step"])
        self._sums = {name: total.to(self._parameters[name].device) for name, total in own["sums"].items()}
        self._steps = float(own["counted"])
