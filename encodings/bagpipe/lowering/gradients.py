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
    """The gradients of one batch. What makes or frees them takes no time, and holds nothing but memory."""

    def hold(self) -> list[dict[int, int]]:
        """From the passes on; returns the tensor that each trainer has for what is synchronised now, and later."""
        start_s, end_s = float(self.times.forward.start_s[self.number]), float(self.times.backward.end_s[self.number])
        held = []
        for trainer in self.trainers:
            name, here = f"gradients of batch {self.number} on trainer {trainer}", self.machine.gradients(trainer)
            parts = ((_ALONE, "alone"), (SYNC_NOW, "now"), (SYNC_LATER, "later"))
            tensors = {part: self.draft.tensor(f"{name}, {title}", self._bytes(part, trainer)) for part, title in parts}
            self._run(f"make {name}", (), tuple(tensors.values()), here, start_s)
            self._run(f"apply {name}", (tensors[_ALONE],), (), here, end_s)
            held.append(tensors)
        return held

    def free(self, held: list[dict[int, int]], sync: int, start_s: float, end_s: float) -> None:
        """When they are synchronised, now or later; in between with the sums of others, if there are any."""
        for trainer, tensors in enumerate(held):
            here, gone = self.machine.gradients(trainer), [tensors[sync]]
            name = self.draft.names[tensors[sync]]
            if sums_bytes := self._bytes(_SUMS + sync, trainer):
                gone.append(self.draft.tensor(f"sums beside {name}", sums_bytes))
                self._run(f"sum {name}", (gone[0],), (gone[1],), here, start_s)
            self._run(f"free {name}", tuple(gone), (), here, end_s)

    def _run(self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], here: int, time_s: float) -> None:
        """An op that makes its outputs, or frees its inputs if it has none."""
        frees = [] if outputs else [(tensor, here) for tensor in inputs]
        self.draft.run(Op(name, inputs, outputs, (Implementation(0.0),)), here, time_s, time_s, frees)

    def _bytes(self, which: int, trainer: int) -> int:
        return int(self.batch.whole.gradient_rows[which, trainer]) * self.machine.cluster.gradient_bytes
