"""Nested checkpoints: the least recomputation for a budget that hardly holds anything, by dynamic programming.

Griewank's recursion with bytes and seconds in place of counts, on any graph in its forward order. A checkpoint at place
p holds its border, which is what the nodes before p made and those from p on read, so that the forward pass can go on
from there. A stretch from a to b is reversed from a checkpoint at a: run on for each backward node anew; or run on once
and hold what the backward nodes need; or run on to some c between them, hold its border and reverse from c to b, after
which the rest, from a to c, starts from a again or has what it needs held since the run to c. The first run of all is
the forward pass itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.parameters import Nesting
from gapless.encodings.monet.search.retention import fit_implementations, recompute_on_need
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Once", "Passes", "nested_checkpoints", "smallest_variants"]

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
        self.last = graph.last_reader[: self.nodes]
        """The last node that reads each node, or itself: up to there, rows charge it."""
        self.read = _last_before_loss(graph)
        """The same without the loss, which never runs again: up to there, it is in borders."""
        self.border = self._passing(np.arange(self.nodes), self.read)
        """Bytes of the border of each node, (nodes + 1,)."""
        self.places = self._places(most_places)
        borders = [np.flatnonzero(self.read[:place] >= place) for place in self.places.tolist()]
        self.charged = np.array([self._passing(border, self.last) for border in borders])
        """Bytes of a place's border that each node's row charges, (places, nodes + 1)."""
        self.shared = np.array([self._passing(border, self.read)[self.places] for border in borders])
        """Bytes of a place's border that are in each place's border too, (places, places)."""
        self._reckon_runs()
        self._reckon_stages(variants)
        self._once: dict[int, Once] = {}

    def _passing(self, tensors: Ints, last: Ints) -> Floats:
        """Bytes of some tensors that are made before each node and read by it or later, (nodes + 1,)."""
        made = np.bincount(tensors + 1, self.size[tensors], minlength=self.nodes + 2)
        gone = np.bincount(last[tensors] + 1, self.size[tensors], minlength=self.nodes + 2)
        return (made - gone).cumsum()[: self.nodes + 1]

    def _places(self, most: int) -> Ints:
        """The start, and of equal stretches the node with the least border."""
        mains = np.flatnonzero(self.is_main)[1:]
        groups = np.array_split(mains, min(most - 1, len(mains)))
        return np.array([0, *(group[self.border[group].argmin()] for group in groups if len(group))], dtype=np.int64)

    def _reckon_runs(self) -> None:
        """Of a run on from each place: the row of each node up to the loss, (places, nodes + 1); the seconds before
        each, (nodes + 1,). Nodes run in place unless their input is in the place's border.
        """
        forward = self.graph.forward
        repeated = [node.again or node.implementations for node in forward]
        again = [min(impl.workspace_bytes for impl in impls) for impls in repeated]
        first = [min(impl.workspace_bytes for impl in node.implementations) for node in forward]
        own = self._passing(np.arange(self.nodes), self.last) + self.graph.output_bytes[: self.nodes + 1] - self.charged
        runs = np.append(self.is_main, True) & (np.arange(self.nodes + 1) >= self.places[:, None])
        self.over = np.array([-1 if node.overwrites is None else node.overwrites for node in forward])
        beside = np.array([min((impl.workspace_bytes for impl in node.in_place), default=0) for node in forward])
        in_place = runs & (self.over >= self.places[:, None])
        self.saved_again = np.where(in_place, np.maximum(again - beside, 0), 0.0)
        self.saved_first = np.where(in_place, np.maximum(first - beside, 0), 0.0)
        """What running in place takes off the rows, (places, nodes + 1)."""
        self.row_again = np.where(runs, own + again, 0.0) - self.saved_again
        self.row_first = np.where(runs, own + first, 0.0) - self.saved_first
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
        return int(self.read[need]) if creator is None else creator

    def _is_in_border(self, need: int, place: int) -> bool:
        return bool(need < self.places[place] <= self.read[need] and self.is_main[need])

    def border_beside(self, a: int, c: int) -> list[int]:
        """The tensors of the border of c that aren't in that of a."""
        inside = (np.arange(self.nodes) < self.places[c]) & (self.read >= self.places[c]) & self.is_main
        return [node for node in np.flatnonzero(inside).tolist() if not self._is_in_border(node, a)]

    def _beside(self, needs: list[int] | Ints) -> Floats:
        """Bytes of needed tensors that are held at each node up to the loss besides its border; (nodes + 1,)."""
        made = np.bincount(self.last[needs] + 1, self.size[needs], minlength=self.nodes + 2)
        return made.cumsum()[: self.nodes + 1]

    def _beside_run(self, needs: list[int] | Ints, saved: Floats) -> Floats:
        """The same with what isn't saved, as these tensors are not overwritten; `saved`: of the run."""
        is_held = np.zeros(self.nodes + 1, dtype=np.bool_)
        is_held[needs] = True
        return self._beside(needs) + np.where(is_held[self.over], saved, 0.0)

    def anew(self, a: int) -> tuple[Floats, Floats]:
        """For each stage of the stretches from a: bytes and seconds of a run for it alone."""
        stages, start = int(self.last_stage[a]), int(self.places[a])
        taken, duration_s = np.zeros(stages), np.zeros(stages)
        for stage in range(stages):
            needs = [need for need in self.needs[stage] if not self._is_in_border(need, a)]
            taken[stage] = self.fixed_backward[stage] + self.size[needs].sum()
            if needs:
                upto = max(needs) + 1
                rows = (self.row_again[a] + self._beside_run(needs, self.saved_again[a]))[start:upto]
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
            upto = int(nodes[-1]) + 1
            again = self.row_again[a] + self._beside_run(nodes, self.saved_again[a])
            first = self.row_first[a] + self._beside_run(nodes, self.saved_first[a])
            found.again[b] = again[start:upto].max()
            found.first[b] = first[start : upto if b < count else None].max()
            found.duration_s[b] = self.until_s[upto] - self.until_s[start]
            if b < count:
                inside = (nodes < self.places[b]) & (self.read[nodes] >= self.places[b]) & self.is_main[nodes]
                found.beside_border[b] = self.size[nodes[~inside]].sum()
        return found


def _last_before_loss(graph: TrainingGraph) -> Ints:
    """The last node before the loss that reads each node before it, the node itself if none does."""
    last = np.arange(graph.loss)
    for user, node in enumerate(graph.forward[: graph.loss]):
        last[list(node.inputs)] = user
    return last


_ANEW, _ONCE = -1, -2
"""How a stretch is reversed without a checkpoint. With one it is the number of its place, or where the rest is held,
that number plus the number of places."""


def smallest_variants(graph: TrainingGraph) -> Ints:
    """The variants of the backward nodes that take the fewest bytes while they run; int64, shape (backward,)."""
    size = graph.output_bytes
    choices = [
        [
            int(size[list(variant.needs)].sum()) + min(impl.workspace_bytes for impl in variant.implementations)
            for variant in node.variants
        ]
        for node in graph.backward
    ]
    return np.array([np.argmin(taken) for taken in choices], dtype=np.int64)


def nested_checkpoints(
    graph: TrainingGraph, budget_bytes: int, variants: Ints, reckoned_bytes: int, nesting: Nesting
) -> Decisions | None:
    """Decisions with the least recomputation of their kind in `reckoned_bytes`, None where none is reckoned to fit.

    Their implementations are chosen for `budget_bytes`, which may be less: runs in place aren't reckoned with.
    """
    held = _Table(Passes(graph, variants, nesting.most_places), reckoned_bytes, nesting.levels).held()
    if held is None:
        return None
    decisions = recompute_on_need(graph, held.get(0, {}), variants, lambda run: held.get(run.stage, {}), held)
    return fit_implementations(graph, decisions, budget_bytes)


@dataclass(frozen=True)
class _Splits:
    """What checkpoints at each place c take when a pass from a sets them: the seconds of the run to c; the largest row
    of it; the levels that are held while the right part is reversed. `kept`: with what the rest needs.
    """

    run_s: Floats
    row: Floats
    drop: Ints
    row_kept: Floats
    drop_kept: Ints


class _Table:
    """The least seconds of every stretch by the levels of memory that are left for it, and how it is reversed then."""

    def __init__(self, passes: Passes, budget_bytes: int, levels: int) -> None:
        self.passes, self.count = passes, len(passes.places)
        self.unit = budget_bytes / levels
        self.left = self.unit * np.arange(levels + 1)
        shape = (self.count + 1, self.count + 1, levels + 1)
        self.least_s, self.how = np.full(shape, np.inf), np.full(shape, _ANEW)
        self.forward_s, self.how_forward = np.full(shape[1:], np.inf), np.full(shape[1:], _ANEW)
        for a in reversed(range(self.count)):
            self._fill(a)

    def _fill(self, a: int) -> None:
        """The stretches that begin at a, the shorter ones first; then what begins with the forward pass from a on."""
        passes, again, first = self.passes, self._splits(a, False), self._splits(a, True)
        anew_bytes, anew_s = passes.anew(a)
        once = passes.once(a)
        for b in range(a + 1, self.count + 1):
            begin = int(passes.first_stage[b]) - 1
            if begin >= passes.last_stage[a]:  # no backward node belongs to it
                self.least_s[a, b] = 0.0
                continue
            fixed, upto = passes.fixed[begin], min(b, int((passes.last_stage > begin).sum()))
            taken = max(once.backward[b], fixed + once.again[b])
            plain = [
                self._if_fits(anew_bytes[begin:].max(), anew_s[begin:].sum()),
                self._if_fits(taken, once.duration_s[b]),
            ]
            self.least_s[a, b], self.how[a, b] = self._best(a, upto, plain, self.least_s[:, b], again, fixed, once)
        fixed, row = passes.graph.fixed_bytes, float(passes.row_first[a].max())
        taken = max(fixed + row, once.backward[-1], fixed + once.first[-1])
        plain = [self._if_fits(max(fixed + row, anew_bytes.max(initial=0.0)), anew_s.sum()), self._if_fits(taken, 0.0)]
        self.forward_s[a], self.how_forward[a] = self._best(a, self.count, plain, self.forward_s, first, fixed, once)

    def _best(
        self, a: int, upto: int, plain: list[Floats], right_s: Floats, splits: _Splits, fixed: float, once: Once
    ) -> tuple[Floats, Ints]:
        """The least seconds by level, and how: without a checkpoint, or with one at a place before `upto`."""
        c = slice(a + 1, upto)
        row = np.maximum(fixed + splits.row_kept, once.backward[: self.count])
        left_s = self.least_s[a, c] + splits.run_s[c, None]
        split = self._dropped(right_s[c], splits.drop[c]) + left_s
        kept = self._dropped(right_s[c], splits.drop_kept[c]) + splits.run_s[c, None]
        split[self.left < fixed + splits.row[c, None]] = np.inf
        kept[self.left < row[c, None]] = np.inf
        table = np.concatenate([plain, split, kept])
        names = np.concatenate([[_ANEW, _ONCE], np.arange(a + 1, upto), np.arange(a + 1, upto) + self.count])
        return table.min(axis=0), names[table.argmin(axis=0)]

    def _splits(self, a: int, is_forward: bool) -> _Splits:
        passes, once = self.passes, self.passes.once(a)
        row = np.maximum.accumulate((passes.row_first if is_forward else passes.row_again)[a])
        at = passes.places - 1
        border = passes.border[passes.places] - passes.shared[a]
        run_s = 0.0 if is_forward else passes.until_s[passes.places] - passes.until_s[passes.places[a]]
        kept = np.maximum(row[at], (once.first if is_forward else once.again)[: self.count])
        drop = np.ceil(border / self.unit - 1e-9).astype(np.int64)
        drop_kept = np.ceil((border + once.beside_border[: self.count]) / self.unit - 1e-9).astype(np.int64)
        return _Splits(np.broadcast_to(run_s, border.shape), row[at], drop, kept, drop_kept)

    def _if_fits(self, taken: float, duration_s: float) -> Floats:
        return np.where(self.left >= taken, duration_s, np.inf)

    def _dropped(self, cost_s: Floats, drop: Ints) -> Floats:
        """Costs by level, with so many levels less; a row for each place."""
        level = np.arange(len(self.left)) - drop[:, None]
        return np.where(level >= 0, np.take_along_axis(cost_s, np.maximum(level, 0), axis=1), np.inf)

    def held(self) -> Mapping[int, Mapping[int, int]] | None:
        """By stage, 0 for the forward pass, what is made and held in it, up to which stage; None where nothing fits."""
        if np.isinf(self.forward_s[0, -1]):
            return None
        passes, found = self.passes, defaultdict[int, dict[int, int]](dict)
        todo = [(0, self.count, len(self.left) - 1, True)]
        while todo:
            a, b, level, is_forward = todo.pop()
            begin = int(passes.first_stage[b])
            if begin > passes.last_stage[a]:
                continue
            how = int(self.how_forward[a, level] if is_forward else self.how[a, b, level])
            stage, c = found[0 if is_forward else begin], how % self.count
            if how == _ONCE or how >= self.count:
                until = passes.until(a)
                least = begin if how == _ONCE else int(passes.first_stage[c])
                stage.update({node: int(until[node]) for node in np.flatnonzero(until >= least).tolist()})
            if how >= 0:
                end, splits = int(passes.last_stage[c]), self._splits(a, is_forward)
                stage.update({node: max(stage.get(node, 0), end) for node in passes.border_beside(a, c)})
                drop = splits.drop if how < self.count else splits.drop_kept
                todo += [(a, c, level, False)] * (how < self.count)
                todo.append((c, b, level - int(drop[c]), is_forward))
        return found
