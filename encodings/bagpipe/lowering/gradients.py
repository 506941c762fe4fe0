"""Gradients in a schedule: how long each trainer has those of the rows that it looks up, beside the cache.

A trainer has gradients from the start of a batch's passes on. Of rows that it alone has, they are applied and freed as
the backward pass ends; of those that are synchronised at once, when their exchange is over, which for owned and rooted
rows comes before the dense gradients' turn; of the others, when the background's is, beside the next batch's passes.
Meanwhile it also has the sums of rows that it doesn't use, but holds, as all trainers do, or owns.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.encodings.bagpipe.lowering.actions import SYNC_LATER, SYNC_NOW
from gapless.encodings.bagpipe.lowering.exchanges import BatchDraft
from gapless.ir.graph import Implementation, Op

__all__ = ["Gradients"]

_ALONE, _SUMS = 0, 2
"""Rows of `Actions.gradient_rows`: `SYNC_NOW` and `SYNC_LATER` are others, and sums stand two behind."""


@dataclass
class Gradients(BatchDraft):
    """The gradients of one batch."""

    def hold(self) -> list[dict[int, int]]:
        """From the passes on; returns the tensor that each trainer has for what is synchronised now, and later."""
        start_s, end_s = float(self.times.forward.start_s[self.number]), float(self.times.backward.end_s[self.number])
        held = []
        for trainer in self.trainers:
            name = f"gradients of batch {self.number} on trainer {trainer}"
            tensors = {
                sync: self.draft.tensor(f"{name}, {when}", self._bytes(sync, trainer))
                for sync, when in ((SYNC_NOW, "now"), (SYNC_LATER, "later"))
            }
            passes = Implementation(0.0, self._bytes(_ALONE, trainer))
            op = Op(name, (), tuple(tensors.values()), (passes,))
            self.draft.run(op, self.machine.gradients(trainer), start_s, end_s)
            held.append(tensors)
        return held

    def free(self, held: list[dict[int, int]], sync: int, start_s: float, end_s: float) -> None:
        """When they are synchronised, now or later."""
        for trainer, tensors in enumerate(held):
            tensor, here = tensors[sync], self.machine.gradients(trainer)
            sums = Implementation(0.0, self._bytes(_SUMS + sync, trainer))
            op = Op(f"sum {self.draft.names[tensor]}", (tensor,), (), (sums,))
            self.draft.run(op, self.machine.summing(trainer), start_s, end_s, frees=[(tensor, here)])

    def _bytes(self, which: int, trainer: int) -> int:
        return int(self.batch.whole.gradient_rows[which, trainer]) * self.machine.cluster.gradient_bytes
