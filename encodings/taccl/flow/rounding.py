"""Ways from the flow: what carries the least time in fractions of chunks, rounded to whole chunks.

The flow of `concurrent_flow` falls apart into ways with amounts. How many chunks of one owner and one target take each
way is then a whole number: a small integer program on the board, one variable a way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.concurrent_flow import ConcurrentFlow
from gapless.encodings.taccl.flow.paths import routing_of
from gapless.encodings.taccl.flow.routing import Way, carrying_way
from gapless.encodings.taccl.sends import Routing
from gapless.encodings.taccl.symmetry.quotient import QuotientProblem
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model

__all__ = ["round_flow"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_NOTHING = 1e-6
"""Less of a chunk than this on a link is rounding."""


@dataclass(frozen=True)
class _Choice:
    """The board's chunks that have owner and target in common, and the ways that carry them, with amounts."""

    chunks: list[int]
    ways: list[Way]
    amounts: list[float]


def round_flow(board: QuotientProblem, occupancy_s: Floats, flow: ConcurrentFlow, options: SolveOptions) -> Routing:
    """Paths for the board's chunks, each of which a single rank wants, along the ways of a flow for all of them."""
    choices = _choices(board, flow)
    counts = _counts(board, occupancy_s, choices, options)
    ways: list[Way] = [()] * len(board.owner)
    for choice, its in zip(choices, counts, strict=True):
        taken = [way for way, count in zip(choice.ways, its, strict=True) for _ in range(count)]
        for chunk, way in zip(choice.chunks, taken, strict=True):
            ways[chunk] = way
    return routing_of(ways)


def _choices(board: QuotientProblem, flow: ConcurrentFlow) -> list[_Choice]:
    """For chunks that have owner and target in common, ways of the flow with amounts that add up to their number."""
    targets = board.wanted.argmax(axis=1).tolist()
    members: dict[tuple[int, int], list[int]] = {}
    for chunk, (owner, target) in enumerate(zip(board.owner, targets, strict=True)):
        members.setdefault((target, owner) if flow.by_target else (owner, target), []).append(chunk)
    left = {end: _Left.of(board, flow, end) for end, _ in members}
    return [left[end].choice(other, chunks) for (end, other), chunks in members.items()]


@dataclass(frozen=True)
class _Left:
    """What is left of the flow of one owner (target); `leaving[r]`: the links that carry some of it on from rank r."""

    end: int
    amount: Floats
    leaving: dict[int, list[int]]
    head: list[int]
    backwards: bool

    @classmethod
    def of(cls, board: QuotientProblem, flow: ConcurrentFlow, end: int) -> _Left:
        tail, head = board.topology.link_source.tolist(), board.topology.link_target.tolist()
        if flow.by_target:
            tail, head = head, tail
        amount = flow.flow[int(np.flatnonzero(flow.ends == end)[0])].copy()
        leaving: dict[int, list[int]] = {}
        for link in np.flatnonzero(amount > _NOTHING).tolist():
            leaving.setdefault(tail[link], []).append(link)
        return cls(end, amount, leaving, head, flow.by_target)

    def choice(self, other: int, chunks: list[int]) -> _Choice:
        """Take away what goes to (comes from) one rank."""
        wanted, ways, amounts = float(len(chunks)), [], []
        while wanted > _NOTHING and (way := carrying_way(self.end, other, self.leaving, self.amount, self.head)):
            through = float(min(wanted, *self.amount[list(way)]))
            self.amount[list(way)] -= through
            wanted -= through
            ways.append(way[::-1] if self.backwards else way)
            amounts.append(through)
        return _Choice(chunks, ways, amounts)


def _counts(
    board: QuotientProblem, occupancy_s: Floats, choices: list[_Choice], options: SolveOptions
) -> list[list[int]]:
    """How many chunks take each way, such that no clock is taken for longer than need be."""
    if all(len(choice.ways) == 1 for choice in choices):
        return [[len(choice.chunks)] for choice in choices]
    model = Model("taccl_ways")
    whole = [
        model.integers(f"taken_{k}", len(choice.ways), upper=len(choice.chunks)) for k, choice in enumerate(choices)
    ]
    time = int(model.continuous("time"))
    unit_s = float(occupancy_s.mean())
    model.add_sparse(
        "every_chunk_takes_a_way",
        len(choices),
        np.repeat(np.arange(len(choices)), [len(ids) for ids in whole]),
        np.concatenate(whole),
        1.0,
        lower=(wanted := np.array([len(choice.chunks) for choice in choices], dtype=np.float64)),
        upper=wanted,
    )
    rows, columns, values = [], [], []
    for ids, choice in zip(whole, choices, strict=True):
        for column, way in zip(ids.tolist(), choice.ways, strict=True):
            for link in way:
                for group in board.groups[link]:
                    rows.append(group)
                    columns.append(column)
                    values.append(-occupancy_s[link] / unit_s)
    used, row = np.unique(rows, return_inverse=True)
    model.add_sparse(
        "time_covers_clock",
        len(used),
        np.concatenate([row, np.arange(len(used))]),
        np.concatenate([columns, np.full(len(used), time)]),
        np.concatenate([values, np.ones(len(used))]),
        lower=0.0,
    )
    model.minimize((1.0, [time]))
    solution = solve_model(model, options)
    if solution.values is None:
        return [_nearest(choice) for choice in choices]
    return [np.round(solution.values[ids]).astype(int).tolist() for ids in whole]


def _nearest(choice: _Choice) -> list[int]:
    """Whole numbers near the amounts, with their sum: the largest remainders are rounded up."""
    amounts = np.array(choice.amounts)
    counts = np.floor(amounts + _NOTHING).astype(int)
    short = len(choice.chunks) - int(counts.sum())
    counts[np.argsort(counts - amounts, kind="stable")[:short]] += 1
    return [int(count) for count in counts]
