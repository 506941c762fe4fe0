"""Paths from the flow: what carries the least time in fractions of chunks, rounded to whole chunks.

The flow of `concurrent_flow` falls apart into paths with amounts. How many chunks of one owner and one target take each
path is then a whole number: a small integer program on the quotient, one variable a path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.concurrent_flow import ConcurrentFlow
from gapless.encodings.taccl.flow.paths import routing_of
from gapless.encodings.taccl.flow.routing import Path, decomposed
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
    """The quotient's chunks that have owner and target in common, and the paths that carry them, with amounts."""

    chunks: list[int]
    paths: list[Path]
    amounts: list[float]


def round_flow(quotient: QuotientProblem, occupancy_s: Floats, flow: ConcurrentFlow, options: SolveOptions) -> Routing:
    """Paths for the quotient's chunks, each of which a single rank wants, along the paths of a flow for all of them."""
    choices = _choices(quotient, flow)
    counts = _counts(quotient, occupancy_s, choices, options)
    paths: list[Path] = [()] * len(quotient.owner)
    for choice, numbers in zip(choices, counts, strict=True):
        taken = [path for path, count in zip(choice.paths, numbers, strict=True) for _ in range(count)]
        for chunk, path in zip(choice.chunks, taken, strict=True):
            paths[chunk] = path
    return routing_of(paths)


def _choices(quotient: QuotientProblem, flow: ConcurrentFlow) -> list[_Choice]:
    """For chunks that have owner and target in common, paths of the flow with amounts that add up to their number."""
    tail, head = quotient.topology.link_source.tolist(), quotient.topology.link_target.tolist()
    if flow.by_target:
        tail, head = head, tail
    members: dict[int, dict[int, list[int]]] = {}
    for chunk, (owner, target) in enumerate(zip(quotient.owner, quotient.wanted.argmax(axis=1).tolist(), strict=True)):
        end, other = (target, owner) if flow.by_target else (owner, target)
        members.setdefault(end, {}).setdefault(other, []).append(chunk)
    choices = []
    for end, others in members.items():
        amount = flow.flow[int(np.flatnonzero(flow.ends == end)[0])].copy()
        carried = decomposed(end, {other: float(len(chunks)) for other, chunks in others.items()}, amount, tail, head)
        for other, taken in carried.items():
            paths = [path[::-1] if flow.by_target else path for path, _ in taken]
            choices.append(_Choice(others[other], paths, [through for _, through in taken]))
    return choices


def _counts(
    quotient: QuotientProblem, occupancy_s: Floats, choices: list[_Choice], options: SolveOptions
) -> list[list[int]]:
    """How many chunks take each path, such that no clock is taken for longer than need be."""
    if all(len(choice.paths) == 1 for choice in choices):
        return [[len(choice.chunks)] for choice in choices]
    model = Model("taccl_path_counts")
    whole = [
        model.integers(f"taken_{k}", len(choice.paths), upper=len(choice.chunks)) for k, choice in enumerate(choices)
    ]
    time = int(model.continuous("time"))
    unit_s = float(occupancy_s.mean())
    model.add_sparse(
        "every_chunk_takes_a_path",
        len(choices),
        np.repeat(np.arange(len(choices)), [len(ids) for ids in whole]),
        np.concatenate(whole),
        1.0,
        lower=(wanted := np.array([len(choice.chunks) for choice in choices], dtype=np.float64)),
        upper=wanted,
    )
    rows, columns, values = [], [], []
    for ids, choice in zip(whole, choices, strict=True):
        for column, path in zip(ids.tolist(), choice.paths, strict=True):
            for link in path:
                for group in quotient.groups[link]:
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
