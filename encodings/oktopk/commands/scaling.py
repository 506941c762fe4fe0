"""Weak scaling by replay: what each allreduce takes as ranks are added, of the same gradient at the same density.

Beside it stand the words that the busiest rank receives and the latencies in turn, which Table 1 of the paper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.checker import check
from gapless.encodings.oktopk.allreduce.bounds import table_1
from gapless.encodings.oktopk.allreduce.lowering import received_words
from gapless.encodings.oktopk.allreduce.network import flat_topology
from gapless.encodings.oktopk.allreduce.others import dense_ring, gtopk, topka, topkdsa
from gapless.encodings.oktopk.allreduce.strategies import first_candidate, first_strategy
from gapless.encodings.oktopk.cuts.methods import CutSearch, boundaries_by
from gapless.encodings.oktopk.parameters import DEFAULTS
from gapless.encodings.oktopk.problem import Problem, problem
from gapless.encodings.oktopk.question import ScalingQuestion
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.ir.simulate import retime
from gapless.options import Deadline
from gapless.plot.style import PALETTE, check_plot, finish, new_axes, time_scale
from gapless.profiles.sparsity.estimates import ADJUSTED_SHARE
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["OVERLAPPED", "ScalingRow", "draw_scaling", "scale"]

OVERLAPPED = "dense, overlapped"
"""The dense ring while the backward pass goes on, as soon as it can be over."""
_BACKWARD = 2 / 3
"""The share of a step's computation that is the backward pass, with which a dense allreduce may overlap."""
_BALANCED_ABOVE = 4.0
"""Of the mean: what the fullest rank holds where the paper balances."""


@dataclass(frozen=True)
class ScalingRow:
    """One allreduce on so many ranks. `words`: that the busiest rank receives; `latencies`: messages that wait for each
    other, at most; both by replay, and by Table 1 of the paper: `words_least` to `words_most`, `latencies_most`.
    `step_s`: computation and `time_s`; `efficiency`: against the fewest ranks.
    """

    ranks: int
    name: str
    time_s: float
    step_s: float
    efficiency: float
    words: int
    words_least: float
    words_most: float
    latencies: int
    latencies_most: float


def scale(question: ScalingQuestion, session: Session) -> Answer:
    """All allreduces on each number of ranks, the fewest first; those that there is time for."""
    deadline, rows, left = Deadline(session.options), list[ScalingRow](), list[int]()
    for ranks in sorted(set(question.ranks)):
        if rows and deadline.over:
            left.append(ranks)
            continue
        session.say(f"{ranks} ranks ...")
        asked = problem(
            question.indices, ranks=ranks, density=question.density, bandwidth=question.bandwidth,
            latency=question.latency, add=question.add, add_start=question.add_start,
        )  # fmt: skip
        if asked.sets.values is None:
            raise InputError("indices: must have values, by which gTopk and Gaussiank choose; record them")
        rows += _rows(asked, question.compute, {row.name: row.step_s for row in rows[: len(_NAMES)]}, deadline)
    data = {"compute_s": question.compute, "rows": [vars(row) for row in rows]}
    notes = (f"left out for want of time: {', '.join(map(str, left))} ranks",) if left else ()
    return Answer(data, _text(rows), notes, is_complete=not notes)


def _rows(asked: Problem, compute_s: float, first_s: Mapping[str, float], deadline: Deadline) -> list[ScalingRow]:
    """One number of ranks. `first_s`: a step's times on the fewest."""
    rows, made = list[ScalingRow](), _schedules(asked, deadline)
    count, elements, ranks = int(asked.sets.counts.max()), asked.sets.elements, asked.sets.ranks
    for name, schedule in made.items():
        time_s = check(schedule).makespan_s
        step_s = compute_s + time_s
        if name == OVERLAPPED:
            step_s = (1 - _BACKWARD) * compute_s + max(_BACKWARD * compute_s, time_s)
        bounds = table_1(name, elements, count, ranks)
        rows.append(ScalingRow(
            ranks, name, time_s, step_s, first_s.get(name, step_s) / step_s,
            int(received_words(schedule).max()), bounds.words_least, bounds.words_most, _latencies(schedule),
            bounds.latencies,
        ))  # fmt: skip
    return rows


_NAMES = ("dense", OVERLAPPED, "TopkA", "Gaussiank", "TopkDSA", "gTopk", "Ok-Topk", "plan")


def _schedules(asked: Problem, deadline: Deadline) -> dict[str, Schedule]:
    """Of the first recorded step, by name: gathers by recursive doubling where ranks are a power of two."""
    sets, network = asked.sets.part(steps=slice(0, 1)), asked.network
    one = replace(asked, sets=sets, held_out=0)
    search = CutSearch(one, DEFAULTS, deadline)
    gather = first_strategy(one)[1]
    fewer = sets.part(density=max(1, round(ADJUSTED_SHARE * int(sets.counts.max()))) / sets.elements)

    def planned(name: str) -> Schedule:
        selected = partial(one.selected, sets)
        above = _BALANCED_ABOVE if name == "averaged" else None
        return first_candidate(one, name, boundaries_by(name, search), selected, deadline, balance_above=above).schedule

    ring = dense_ring(sets.elements, network)
    makers: tuple[Callable[[], Schedule | None], ...] = (
        lambda: ring, lambda: ring, lambda: topka(sets, 0, network, gather), lambda: topka(fewer, 0, network, gather),
        lambda: topkdsa(sets, 0, network, gather), lambda: gtopk(sets, 0, network), lambda: planned("averaged"),
        lambda: planned("exact"),
    )  # fmt: skip
    made = {name: make() for name, make in zip(_NAMES, makers, strict=True)}
    return {name: schedule for name, schedule in made.items() if schedule is not None}


def _latencies(schedule: Schedule) -> int:
    """Of messages that wait for each other: the same schedule where nothing but a latency takes time."""
    topology = flat_topology(schedule.topology.device_count, math.inf, _LONG_S)
    end_s = retime(schedule, topology).end_s.max(initial=0.0)
    return int(np.floor(end_s / _LONG_S * (1 + 1e-12)))


_LONG_S = 1e9
"""A latency beside which what adding takes is nothing."""


def _text(rows: list[ScalingRow]) -> str:
    lines = [["ranks", "", "allreduce", "step", "efficiency", "words", "Table 1", "latencies", "Table 1"]]
    for row in rows:
        lines.append([
            str(row.ranks), row.name, format_seconds(row.time_s), format_seconds(row.step_s), f"{row.efficiency:.1%}",
            f"{row.words:,}", _between(row.words_least, row.words_most), str(row.latencies),
            f"{row.latencies_most:,.0f}",
        ])  # fmt: skip
    most = max(row.ranks for row in rows)
    last = {row.name: row.step_s for row in rows if row.ranks == most}
    others = [step_s / last["plan"] for name, step_s in last.items() if name != "plan"]
    return "\n".join([
        table(lines),
        f"on {most} ranks, a step with the plan is {min(others):.2f} to {max(others):.2f} times as fast as with others",
        "words: that the busiest rank receives; latencies: of messages that wait for each other; selecting isn't in it",
        f"Gaussiank: {ADJUSTED_SHARE:g} k, the least that an adjusted threshold selects; Ok-Topk: averaged boundaries, "
        f"balanced above {_BALANCED_ABOVE:g} times the mean; plan: exact boundaries",
    ])  # fmt: skip


def _between(least: float, most: float) -> str:
    return f"{most:,.0f}" if math.isclose(least, most) else f"{least:,.0f} - {most:,.0f}"


def draw_scaling(data: Mapping[str, Any]) -> Figure | SubFigure:
    """A step's time by ranks, a line an allreduce; returns the figure."""
    check_plot()
    rows, ax = data["rows"], new_axes(6.5, 4.0)
    scale_s, unit = time_scale(max(row["step_s"] for row in rows))
    for name, colour in zip(dict.fromkeys(row["name"] for row in rows), cycle(PALETTE), strict=False):
        own = [row for row in rows if row["name"] == name]
        steps = [row["step_s"] / scale_s for row in own]
        ax.plot([row["ranks"] for row in own], steps, marker="o", markersize=3, color=colour, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel("ranks")
    ax.set_ylabel(f"a step ({unit})")
    return finish(ax, legend="inside").figure
