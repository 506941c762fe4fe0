"""Whether any plan fits a budget, whatever it costs in time: a constraint programme over all decisions, in whole bytes.

Without time, a run takes its least workspace, so only these decisions are left: what is stored and what runs in which
stage, which runs are in place, and which variant each backward node has. The rows of memory are those of `evaluate`.
What `must_hold` knows is fixed beforehand: runs whose rows can't fit, and what must be stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.bounds.must_hold import surely
from gapless.encodings.monet.decisions import Decisions, implementations_of
from gapless.encodings.monet.ilp.columns import wanted_tensors
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.profiles.training.graph import Implementation, TrainingGraph
from gapless.solution import Status
from gapless.solvers.proofs import confirmed
from gapless.solvers.registry import solve_model

__all__ = ["Fits", "fits"]

_SOLVER = "cpsat"
_LARGEST_BYTES = 2**50
"""Up to which budgets sums of bytes stay within what the solver counts with."""


@dataclass(frozen=True)
class Fits:
    """Whether a plan fits a budget; both are None where that is open, and `decisions` unless it does."""

    is_possible: bool | None
    decisions: Decisions | None = None


def fits(graph: TrainingGraph, budget_bytes: int, options: SolveOptions) -> Fits:
    """Whether a plan's rows of memory fit, within the limits of `options`.

    A proof that nothing fits is made twice, the second time without presolve; what isn't confirmed is open.
    """
    known = surely(graph, budget_bytes)
    if known is None:
        return Fits(False)
    if budget_bytes > _LARGEST_BYTES:
        return Fits(None)
    programme = _Programme(graph, budget_bytes, *known)
    options = replace(options, gap=0.0, threads=1, on_progress=None, on_plan=None)
    solution = solve_model(programme.model, options, _SOLVER)
    if solution.values is not None:
        return Fits(True, programme.decode(solution.values > 0.5))
    solution = confirmed(programme.model, solution, options, _SOLVER)
    return Fits(False if solution.status is Status.INFEASIBLE else None)


@dataclass
class _Table:
    """Variables by stage and node, none where there is no choice but no."""

    of: dict[tuple[int, int], int] = field(default_factory=dict)

    def get(self, *cells: tuple[int, int]) -> list[int]:
        return [self.of[cell] for cell in cells if cell in self.of]

    def values(self, values: NDArray[np.bool_], shape: tuple[int, int]) -> NDArray[np.bool_]:
        found = np.zeros(shape, dtype=np.bool_)
        for cell, column in self.of.items():
            found[cell] = values[column]
        return found


@dataclass
class _Rows:
    """The rows as they come: entries by row, with the most of each, the least, and the column that it depends on."""

    entries: list[list[tuple[int, float]]] = field(default_factory=list)
    bounds: list[tuple[float, float, int]] = field(default_factory=list)

    def most(
        self, entries: Iterable[tuple[int, float]], most: float, least: float = -np.inf, only_if: int = -1
    ) -> None:
        """The sum is at most so much."""
        self.entries.append(list(entries))
        self.bounds.append((most, least, only_if))

    def implies(self, column: int, *others: int) -> None:
        """Where the column is set, one of the others is."""
        self.most([(column, 1.0), *((other, -1.0) for other in others)], 0.0)

    def exclude(self, column: int, other: int) -> None:
        """Not both are set."""
        self.most([(column, 1.0), (other, 1.0)], 1.0)

    def add_to(self, model: Model) -> None:
        """All of them, as one family."""
        most, least, only_if = zip(*self.bounds, strict=True)
        flat = [(row, *entry) for row, entries in enumerate(self.entries) for entry in entries]
        rows, columns, values = np.array(flat).T
        model.add_sparse("fits", len(most), rows.astype(int), columns.astype(int), values, least, most, only_if)


class _Programme:
    """The model. `stored`, `runs`, `in_place` as in `Decisions`; `there`: at a stage's backward node, or for later."""

    def __init__(
        self, graph: TrainingGraph, budget_bytes: int, stored: NDArray[np.bool_], cannot: NDArray[np.bool_]
    ) -> None:
        self.graph, self.budget_bytes, self.stages = graph, budget_bytes, len(graph.backward) + 1
        self.rows, self.columns = _Rows(), 0
        self.size = graph.output_bytes.tolist()
        self.alive = [set(alive.tolist()) for alive in graph.alive]
        self.stored, self.runs, self.in_place, self.there = _Table(), _Table(), _Table(), _Table()
        self.variants: list[list[int]] = []
        self._decide(stored, cannot)
        for stage in range(1, self.stages):
            self._end_stage(stage)
        self.readers = self._readers()
        for stage, node in self.runs.of:
            self._run(stage, node)
        self.model = Model("monet_fits")
        self.model.binaries("decision", self.columns)
        self.rows.add_to(self.model)

    def _decide(self, stored: NDArray[np.bool_], cannot: NDArray[np.bool_]) -> None:
        """The columns of all that can matter."""
        wanted, yes = wanted_tensors(self.graph), self._new()
        self.rows.most([(yes, 1.0)], 1.0, 1.0)
        for cell in itertools.product(range(1, self.stages), range(len(self.size))):
            if wanted[cell]:
                self.stored.of[cell] = self._new()
                if stored[cell]:
                    self.rows.implies(yes, self.stored.of[cell])
                if not cannot[cell]:
                    self.runs.of[cell] = self._new()
        for node, op in enumerate(self.graph.forward):
            if op.creator is None:
                self.runs.of[0, node] = yes
            elif (1, node) in self.stored.of:  # made in the forward pass if and only if it is kept
                self.runs.of[0, node] = self.stored.of[1, node]
        self.in_place.of.update({cell: self._new() for cell in self.runs.of if self.graph.forward[cell[1]].in_place})

    def _new(self) -> int:
        self.columns += 1
        return self.columns - 1

    def _readers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for node, op in enumerate(self.graph.forward):
            for read in set(op.inputs) if op.creator is None else ():
                found.setdefault(read, []).append(node)
        return found

    def _end_stage(self, stage: int) -> None:
        """The backward node has what it needs, and fits with it and with what is there for later (4.8, 4.12)."""
        node, rows = self.graph.backward[stage - 1], self.rows
        chosen = [self._new() for _ in node.variants]
        rows.most([(choice, 1.0) for choice in chosen], 1.0, 1.0)
        self.variants.append(chosen)
        charged = [
            (_least(variant.implementations), choice) for choice, variant in zip(chosen, node.variants, strict=True)
        ]
        for tensor in range(len(self.size)):
            later = self.stored.get((stage + 1, tensor))
            needs = [choice for choice, v in zip(chosen, node.variants, strict=True) if tensor in v.needs]
            if not later and not needs:
                continue
            there = self.there.of[stage, tensor] = self._new()
            for reason in (*later, *needs):
                rows.implies(reason, there)
            rows.implies(there, *self.stored.get((stage, tensor)), *self.runs.get((stage, tensor)))
            charged.append((self.size[tensor], there))
        self._charge(self._fixed(stage) + node.output_bytes, charged)

    def _fixed(self, stage: int) -> int:
        """Parameters and gradients."""
        if stage == 0:
            return self.graph.fixed_bytes
        return self.graph.backward[stage - 1].fixed_bytes + int(self.graph.gradient_bytes[stage - 1])

    def _charge(self, taken: int, charged: Iterable[tuple[int, int]], only_if: int = -1) -> None:
        """A row of memory: what is taken anyway, and bytes where their column is set."""
        self.rows.most(((column, float(size)) for size, column in charged), self.budget_bytes - taken, only_if=only_if)

    def _run(self, stage: int, node: int) -> None:
        """A run has its inputs or its creator, fits (4.1, 4.14), and in place leaves no input behind (4.10)."""
        op, run, rows = self.graph.forward[node], self.runs.of[stage, node], self.rows
        if op.creator is not None and (stage, op.creator) not in self.runs.of:
            rows.most([(run, 1.0)], 0.0)
            return
        if op.creator is not None:
            rows.implies(run, self.runs.of[stage, op.creator])
        elif stage:
            for read in op.inputs:
                rows.implies(run, *self.stored.get((stage, read)), *self.runs.get((stage, read)))
        if stage and node == self.graph.loss:  # costs and holds nothing
            return
        workspace = _least(implementations_of(self.graph, node, stage, False))
        charged = list(self._beside(stage, node))
        if (stage, node) in self.in_place.of:
            charged.append((_least(op.in_place) - workspace, self._overwrite(stage, node)))
        taken = self._fixed(stage) + workspace + self.size[node] + sum(self.size[other] for other in self.alive[node])
        self._charge(taken, charged, run)

    def _beside(self, stage: int, node: int) -> Iterator[tuple[int, int]]:
        """What a row charges besides L_i: what is there before the node, and what the stage began with behind it."""
        after, upto = (self.there, len(self.size)) if stage else (self.stored, node)
        for other in range(upto):
            if other < node and other not in self.alive[node]:
                yield from ((self.size[other], column) for column in after.get((stage or 1, other)))
            elif other > node:
                yield from ((self.size[other], column) for column in self.stored.get((stage, other)))

    def _overwrite(self, stage: int, node: int) -> int:
        over, beside = self.graph.forward[node].overwrites, self.in_place.of[stage, node]
        assert over is not None
        self.rows.implies(beside, self.runs.of[stage, node])
        gone = self.there.get((stage, over)) if stage else self.stored.get((1, over))
        later = [self.runs.of[stage, k] for k in self.readers.get(over, ()) if k > node and (stage, k) in self.runs.of]
        for other in (*gone, *later):
            self.rows.exclude(beside, other)
        return beside

    def decode(self, values: NDArray[np.bool_]) -> Decisions:
        """The decisions of a plan."""
        graph, shape = self.graph, (self.stages, len(self.size))
        runs, in_place = self.runs.values(values, shape), self.in_place.values(values, shape)
        implementation = np.zeros(shape, dtype=np.int64)
        for stage, node in np.argwhere(runs).tolist():
            choices = implementations_of(graph, node, stage, bool(in_place[stage, node]))
            implementation[stage, node] = np.argmin([impl.workspace_bytes for impl in choices])
        variant = [next(k for k, choice in enumerate(c) if values[choice]) for c in self.variants]
        chosen = [node.variants[k].implementations for node, k in zip(graph.backward, variant, strict=True)]
        backward = np.array(
            [np.argmin([impl.workspace_bytes for impl in choices]) for choices in chosen], dtype=np.int64
        )
        stored = self.stored.values(values, (self.stages + 1, len(self.size)))
        return Decisions(stored, runs, in_place, implementation, np.array(variant, dtype=np.int64), backward)


def _least(implementations: tuple[Implementation, ...]) -> int:
    return min(impl.workspace_bytes for impl in implementations)
