"""Where the backward pass is cut into the windows of the relaxation, one list of cuts after the other.

No list is best for all graphs, and which one is shows only when they are tried: at UNet's 5 GiB these bounds differ by
4 %. A relaxation that is no use is noticed early: its own best point costs no more than what is proven already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gapless.profiles.training.graph import TrainingGraph

__all__ = ["cut_lists"]


@dataclass(frozen=True)
class _Cuts:
    """Shares of the backward pass: at `plain` a window begins, a stage at `single` is a window of its own.

    From `tail` on, each stage is a window of its own.
    """

    plain: tuple[float, ...] = ()
    single: tuple[float, ...] = ()
    tail: float = 1.0

    def stages(self, count: int) -> tuple[int, ...]:
        """The stages at which windows begin, out of `count`."""
        single = [1 + int(share * count) for share in self.single]
        tail = range(1 + int(self.tail * count), count + 1)
        cuts = {1, *(1 + int(share * count) for share in self.plain), *single, *(stage + 1 for stage in single), *tail}
        return tuple(sorted(stage for stage in cuts if stage <= count))


_ANY = (_Cuts(), _Cuts((0.35,)), _Cuts((0.23, 0.69)))
_SMALL = (_Cuts((0.69,), single=(0.223, 0.34)), _Cuts((0.35,), tail=0.58))
"""On a graph that is small enough: single stages in the middle, where a network with skips from end to end holds the
most gradients, and at the end, where a chain holds its largest tensors. The latter closes VGG-16's gap in seconds."""
_MORE = (_Cuts((0.25,)), _Cuts((0.33, 0.66)), _Cuts((0.5,)), _Cuts((0.2, 0.45, 0.7)))


def cut_lists(graph: TrainingGraph, is_small: bool) -> Iterator[tuple[int, ...]]:
    """The stages at which windows begin, ascending from 1; the lists that are mostly best first."""
    seen = set()
    for cuts in (*_ANY, *(_SMALL if is_small else ()), *_MORE):
        stages = cuts.stages(len(graph.backward))
        if stages not in seen:
            seen.add(stages)
            yield stages
