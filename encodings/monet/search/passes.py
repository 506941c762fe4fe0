"""What a run of the forward pass from a checkpoint takes, for every place that may have one: bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Once", "Passes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Once:
    """A run from one place that holds what is needed, by the place where its stretch ends; float, shape (places + 1,).

    `again`, `first`: its largest row, when it runs again and in the forward pass, besides what is fixed in its stage.
    `backward`: the largest row of the backward nodes. `beside_border`: bytes that are held besides the end's border.
    """

    again: Floats
    first: Floats
    backward: Floats
    duration_s: Floats
    beside_border: Floats


class Passes:
    """Rows and seconds of runs on from a place; all bytes come on top of what checkpoints up to it hold.

    `places`: the nodes before which a checkpoint may be, ascending from 0. A stretch is from the place of number a up
    to that of number b; it reverses the stages from `first_stage[b]` to `last_stage[a]`.
    """

    def __init__(self, graph: TrainingGraph, variants: Ints, most_places: int) -> None:
        self.graph, self.nodes = graph, graph.loss
        self.size = graph.output_bytes[: self.nodes].astype(np.float64)
        self.needs = [list(node.variants[v].needs) for node, v in zip(graph.backward, variants.tolist(), strict=True)]
        self.is_main = np.array([node.creator is None for node in graph.forward[: self.nodes]])
        number = np.arange(self.nodes + 1)
        reads = np.where(graph.local[:, : self.nodes], number[:, None], 0)
        self.last = np.maximum(number[:-1], reads.max(axis=0))
        """The last node that reads each node, or itself."""
        read_later = self.size[:, None] * (self.last[:, None] >= number)
        passed = np.concatenate([np.zeros((1, self.nodes + 1)), read_later.cumsum(axis=0)])
        self.border = passed.diagonal().copy()
        """Bytes of the border of each node, (nodes + 1,)."""
        self.places = self._places(most_places)
        self.shared = passed[self.places]
        """Bytes of a place's border that are in each node's border too, (places, nodes + 1)."""
        self._reckon_runs()
        self._reckon_stages(variants)
        self._once: dict[int, Once] = {}

    def _places(self, most: int) -> Ints:
        """The start, and of equal stretches the node with the least border."""
        mains = np.flatnonzero(self.is_main)[1:]
        groups = np.array_split(mains, min(most - 1, len(mains)))
        return np.array([0, *(group[self.border[group].argmin()] for group in groups if len(group))], dtype=np.int64)

    def _reckon_runs(self) -> None:
        """Of a run on from each place: the row of each node up to the loss, (places, nodes + 1); the seconds before
        each, (nodes + 1,).
        """
        forward = self.graph.forward
        repeated = [node.again or node.implementations for node in forward]
        again = [min(impl.workspace_bytes for impl in impls) for impls in repeated]
        first = [min(impl.workspace_bytes for impl in node.implementations) for node in forward]
        own = self.border + self.graph.output_bytes - self.shared
        runs = np.append(self.is_main, True) & (np.arange(self.nodes + 1) >= self.places[:, None])
        self.row_again, self.row_first = np.where(runs, own + again, 0.0), np.where(runs, own + first, 0.0)
        duration_s = [min(impl.duration_s for impl in impls) for impls in repeated[: self.nodes]]
        self.until_s = np.concatenate([[0.0], np.cumsum(np.where(self.is_main, duration_s, 0.0))])

    def _reckon_stages(self, variants: Ints) -> None:
        """Which stretch each backward node belongs to, and what it takes besides what it needs."""
        graph = self.graph
        able = [min((self._latest(need) for need in needs), default=self.nodes) for needs in self.needs]
        part = self.places.searchsorted(np.minimum.accumulate(able), side="right") - 1
        number = np.arange(len(self.places) + 1)[:, None]
        self.first_stage, self.last_stage = 1 + (part >= number).sum(axis=1), (part >= number).sum(axis=1)[:-1]
        self.fixed = np.array([float(node.fixed_bytes) for node in graph.backward]) + graph.gradient_bytes
        own = [
            node.output_bytes + min(impl.workspace_bytes for impl in node.variants[v].implementations)
            for node, v in zip(graph.backward, variants.tolist(), strict=True)
        ]
        self.fixed_backward = self.fixed + own

    def _latest(self, need: int) -> int:
        """The last node from whose border a tensor can be made, or that has it in its border."""
        creator = self.graph.forward[need].creator
        return int(self.last[need]) if creator is None else creator

    def _is_in_border(self, need: int, place: int) -> bool:
        return bool(need < self.places[place] <= self.last[need] and self.is_main[need])

    def border_beside(self, a: int, c: int) -> list[int]:
        """The tensors of the border of c that aren't in that of a."""
        inside = (np.arange(self.nodes) < self.places[c]) & (self.last >= self.places[c]) & self.is_main
        return [node for node in np.flatnonzero(inside).tolist() if not self._is_in_border(node, a)]

    def _beside(self, needs: list[int] | Ints) -> Floats:
        """Bytes of needed tensors that are held at each node up to the loss besides its border; (nodes + 1,)."""
        made = np.bincount(self.last[needs] + 1, self.size[needs], minlength=self.nodes + 2)
        return made.cumsum()[: self.nodes + 1]

    def anew(self, a: int) -> tuple[Floats, Floats]:
        """For each stage of the stretches from a: bytes and seconds of a run for it alone."""
        stages, start = int(self.last_stage[a]), int(self.places[a])
        taken, duration_s = np.zeros(stages), np.zeros(stages)
        for stage in range(stages):
            needs = [need for need in self.needs[stage] if not self._is_in_border(need, a)]
            taken[stage] = self.fixed_backward[stage] + self.size[needs].sum()
            if needs:
                upto = max(needs) + 1
                rows = (self.row_again[a] + self._beside(needs))[start:upto]
                taken[stage] = max(taken[stage], self.fixed[stage] + rows.max())
                duration_s[stage] = self.until_s[upto] - self.until_s[start]
        return taken, duration_s

    def until(self, a: int) -> Ints:
        """The last stage of the stretches from a that needs each tensor beside a's border, 0 for none; (nodes,)."""
        until = np.zeros(self.nodes, dtype=np.int64)
        for stage, needs in enumerate(self.needs[: int(self.last_stage[a])], 1):
            until[[need for need in needs if not self._is_in_border(need, a)]] = stage
        return until

    def once(self, a: int) -> Once:
        """What one run from a takes that holds what its stretch needs."""
        if a not in self._once:
            self._once[a] = self._reckon_once(a, self.until(a))
        return self._once[a]

    def _reckon_once(self, a: int, until: Ints) -> Once:
        count, stages, start = len(self.places), int(self.last_stage[a]), int(self.places[a])
        held = np.bincount(until, self.size, minlength=stages + 1)[::-1].cumsum()[::-1][1:]
        backward = np.maximum.accumulate((held + self.fixed_backward[:stages])[::-1])[::-1]
        found = Once(*np.zeros((5, count + 1)))
        for b in range(a + 1, count + 1):
            stage = int(self.first_stage[b])
            if stage > stages:
                continue
            found.backward[b] = backward[stage - 1]
            nodes = np.flatnonzero(until >= stage)
            if not len(nodes):
                continue
            beside, upto = self._beside(nodes), int(nodes[-1]) + 1
            found.again[b] = (self.row_again[a] + beside)[start:upto].max()
            found.first[b] = (self.row_first[a] + beside)[start : upto if b < count else None].max()
            found.duration_s[b] = self.until_s[upto] - self.until_s[start]
            if b < count:
                inside = (nodes < self.places[b]) & (self.last[nodes] >= self.places[b]) & self.is_main[nodes]
                found.beside_border[b] = self.size[nodes[~inside]].sum()
        return found
