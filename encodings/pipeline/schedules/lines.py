"""A rank's ops one after the other, by chunks; and the order that DualPipe and DualPipeV share."""

from __future__ import annotations

from gapless.encodings.pipeline.order.orders import number
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["Line", "dual"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


class Line:
    """A rank's ops in the making: the next micro-batch of a kind and chunk, if there is one left.

    `here`: the stage of each chunk.
    """

    def __init__(self, stages: Stages, here: list[int]) -> None:
        self.stages, self.stage, self.ops = stages, here, list[int]()
        self.done = dict.fromkeys([(kind, chunk) for kind in (F, I, W) for chunk in range(len(self.stage))], 0)

    def run(self, kind: Kind, chunk: int) -> None:
        m = self.done[kind, chunk]
        if m < self.stages.micro_batches and (kind is not W or m < self.done[I, chunk]):
            self.ops.append(number(self.stages, kind, self.stage[chunk], m))
            self.done[kind, chunk] += 1

    def each(self, *ops: tuple[Kind, int]) -> None:
        for kind, chunk in ops:
            self.run(kind, chunk)


def dual(line: Line, rank: int, ranks: int) -> list[int]:
    """DualPipe's order of a rank that is so deep in so many (DeepSeek, 2025); what it overlaps in a cell runs one after
    the other, the forward first. Chunk 0 is the less deep one."""
    below = ranks - 1 - rank
    for _ in range(2 * below):
        line.run(F, 0)
    for _ in range(rank + 1):
        line.each((F, 0), (F, 1))
    for _ in range(below):
        line.each((I, 1), (W, 1), (F, 1))
    for _ in range(line.stages.micro_batches - 2 * ranks + rank + 1):
        line.each((F, 0), (I, 1), (W, 1), (F, 1), (I, 0), (W, 0))
    for _ in range(below):
        line.each((I, 1), (W, 1), (F, 1), (I, 0), (W, 0))
    late: list[int] = []  # chunks whose weight gradients wait, in the second half of what is left
    for turn in range(2 * (rank + 1)):
        chunk = 1 - turn % 2
        line.run(I, chunk)
        if turn > rank:
            late.append(chunk)
        else:
            line.run(W, chunk)
    for _ in range(below):
        line.each((W, late.pop(0)), (I, 0))
        late.append(0)
    line.each(*((W, chunk) for chunk in late))
    return line.ops
