"""When sparse pays: its time by density against a dense ring, fill-in, and how stale boundaries may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from gapless.checker import check
from gapless.encodings.oktopk.allreduce.others import dense_ring, topka
from gapless.encodings.oktopk.allreduce.strategies import best_candidate, first_candidate
from gapless.encodings.oktopk.comparison import Drift, drift_of
from gapless.encodings.oktopk.cuts.methods import CutSearch, boundaries_by
from gapless.encodings.oktopk.parameters import DEFAULTS
from gapless.encodings.oktopk.problem import Problem, problem
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.report.short_repr import BriefText
from gapless.report.text import table
from gapless.topologies.topology import Topology
from gapless.units import format_seconds

__all__ = ["Advice", "Row", "advise"]

_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
"""Of the recorded density, at which plans are made where none are asked for."""


@dataclass(frozen=True)
class Row:
    """One density: the last recorded step by exact boundaries, by averaged ones, by TopkA (None where no gather suits).

    `fill_in`: the share of the gradient that is in the union.
    """

    density: float
    sparse_s: float
    averaged_s: float
    topka_s: float | None
    fill_in: float


@dataclass(frozen=True, repr=False)
class Advice(BriefText):
    """Rows by density, from high to low, the time of the dense ring (None where there is no ring), and the drift."""

    asked: Problem
    rows: tuple[Row, ...]
    dense_s: float | None
    drift: Drift
    left_out: str = ""

    @property
    def pays_below(self) -> float | None:
        """The density below which sparse takes less than dense, between rows by a straight line; None if none does."""
        if self.dense_s is None:
            return None
        rows = sorted(self.rows, key=lambda row: row.density)
        if rows[0].sparse_s >= self.dense_s:
            return None
        for low, high in pairwise(rows):
            if high.sparse_s >= self.dense_s:
                share = (self.dense_s - low.sparse_s) / (high.sparse_s - low.sparse_s)
                return low.density + share * (high.density - low.density)
        return rows[-1].density

    @property
    def is_crossed(self) -> bool:
        """Whether sparse is faster at some densities here, and slower at others."""
        return self.pays_below not in (None, max(row.density for row in self.rows))

    @property
    def data(self) -> dict[str, object]:
        """Plain values."""
        return {
            "asked": self.asked.description,
            "dense_s": self.dense_s,
            "pays_below": self.pays_below,
            "is_crossed": self.is_crossed,
            "rows": [vars(row) for row in self.rows],
            "drift": self.drift,
            "left_out": self.left_out,
        }

    @property
    def text(self) -> str:
        """A line a density, what follows from them, and the load by the boundaries' age."""
        rows = [["density", "sparse", "averaged", "TopkA", "dense / sparse", "fill-in"]]
        for row in self.rows:
            gain = "-" if self.dense_s is None else f"{self.dense_s / row.sparse_s:.2f}"
            others = [format_seconds(row.averaged_s), "-" if row.topka_s is None else format_seconds(row.topka_s)]
            rows.append([
                f"{row.density:.4%}", format_seconds(row.sparse_s), *others, gain, f"{row.fill_in:.1%}",
            ])  # fmt: skip
        return "\n".join([table(rows), *self._conclusions()])

    def _conclusions(self) -> list[str]:
        lines, below = [], self.pays_below
        if self.dense_s is None:
            lines.append("no ring was found, so there is no dense allreduce to compare with")
        else:
            dense = f"a dense ring takes {format_seconds(self.dense_s)}"
            if below is None:
                lines.append(f"{dense}: sparse is slower at every density here")
            elif not self.is_crossed:
                lines.append(f"{dense}: sparse is faster at every density here, up to {below:.4%}")
            else:
                lines.append(f"{dense}: sparse is faster below a density of {below:.4%}")
        sooner = [f"{row.density:.4%}" for row in self.rows if row.topka_s is not None and row.topka_s < row.sparse_s]
        if sooner:
            lines.append(f"TopkA, with fewer messages, is faster still at {', '.join(sooner)}")
        ages = self.drift["exact"]
        if len(ages) > 1:
            said = ", ".join(f"{age}: {ages[age]:.3f}" for age in sorted({0, 1, len(ages) // 2, len(ages) - 1}))
            lines.append(f"received load over the ideal by the boundaries' age in steps: {said}")
            often = self.drift["renewal_steps"]
            most = " or more" if often == len(ages) else ""
            lines.append(
                f"new boundaries every {often}{most} steps, if they cost {format_seconds(self.drift['renewal_s'])}"
            )
        return lines


def advise(
    indices: str | Path | IndexSets,
    *,
    options: SolveOptions,
    ranks: int | None = None,
    densities: tuple[float, ...] | None = None,
    topology: str | Topology | None = None,
    nodes: int | None = None,
    bandwidth: float | None = None,
    latency: float | None = None,
    add: float = 0.0,
    add_start: float = 0.0,
    selection: str = "auto",
) -> Advice:
    """Plans of the last step at several densities, and the drift over all steps.

    `densities`: by default the recorded one and shares of it, where values were recorded. The others: as for `problem`.
    Raises `InputError`.
    """
    deadline = Deadline(options)
    asked = problem(
        indices,
        ranks=ranks,
        density=max(densities) if densities else None,
        selection=selection,
        topology=topology,
        nodes=nodes,
        bandwidth=bandwidth,
        latency=latency,
        add=add,
        add_start=add_start,
    )
    sets = asked.sets
    if densities is None:
        shares = _SHARES if sets.values is not None else _SHARES[:1]
        densities = tuple(
            dict.fromkeys(max(1, round(share * sets.density * sets.elements)) / sets.elements for share in shares)
        )
    if len(set(densities)) > 1 and sets.values is None:
        raise InputError("densities: several need values in the index sets; record them, or ask for one")
    last, rows, left = sets.part(steps=slice(sets.steps - 1, None)), list[Row](), list[float]()
    for density in sorted(set(densities), reverse=True):
        if rows and deadline.over:
            left.append(density)
            continue
        rows.append(_row(replace(asked, sets=last.part(density=density)), density, deadline))
    ring = dense_ring(sets.elements, asked.network)
    left_out = f"densities {', '.join(map(str, left))}" if left else ""
    drift = drift_of(sets, asked.network)
    return Advice(asked, tuple(rows), None if ring is None else check(ring).makespan_s, drift, left_out)


def _row(question: Problem, density: float, deadline: Deadline) -> Row:
    """One density: `exact` and the averaged rule, each in the best order and gather."""
    sets, times, search = question.sets, {}, CutSearch(question, DEFAULTS, deadline)
    selected = partial(question.selected, sets)
    for name in ("exact", "averaged"):
        made = name, boundaries_by(name, search), selected
        candidate = best_candidate(question, *made, DEFAULTS, deadline) or first_candidate(question, *made, deadline)
        times[name] = check(candidate.schedule).makespan_s
    gathered = [topka(sets, 0, question.network, gather) for gather in ("direct", "ring", "doubling")]
    topka_s = min((check(one).makespan_s for one in gathered if one is not None), default=None)
    fill_in = len(np.unique(sets.indices)) / sets.elements
    return Row(density, times["exact"], times["averaged"], topka_s, fill_in)
