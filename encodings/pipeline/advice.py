"""What memory and compression buy: the front of step time against memory against error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gapless.checker import check
from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.search import CutSearch
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import EvenHops, Problem, Replicas, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.solve import planned
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.report.short_repr import BriefText
from gapless.report.text import table
from gapless.units import format_bytes, format_seconds

__all__ = ["Advice", "Option", "advise"]

_PARAMETERS = Parameters(
    heuristic_ops=100_000, exact_steps=400, rounds=8, ordered_cuts=8, refined_cuts=1, moded_orders=3,
    mode_rounds=2,
)  # fmt: skip
"""Fewer cuts and orders than `solve` tries, for many questions at once."""

_CLOSE = 1e-3
"""Memory that shortens the step by less than this share buys nothing."""

_SHARES = (0.25, 0.5, 1.0)
"""Of the error budget that is asked for, or of what it spoils to compress all."""


@dataclass(frozen=True)
class Option:
    """A plan. `in_flight`: micro-batches that a rank may hold, None for no limit; `peak_bytes`: of the fullest rank.

    `bound_s`: of plans with the question's cut and placement.
    """

    in_flight: int | None
    error: float
    peak_bytes: float
    step_s: float
    bound_s: float
    method: str
    cut: Cut

    @property
    def data(self) -> dict[str, object]:
        """A row of the answer, in plain values."""
        return {**vars(self), "cut": list(self.cut)}

    @property
    def costs(self) -> tuple[float, float, float]:
        """Time, memory and error."""
        return self.step_s, self.peak_bytes, self.error

    def is_beaten_by(self, other: Option) -> bool:
        """Whether another is at least as good in all costs, and better in one."""
        return self.costs != other.costs and all(b <= a for a, b in zip(self.costs, other.costs, strict=True))


@dataclass(frozen=True)
class Step:
    """What one more micro-batch in flight, of so many then, costs and saves."""

    in_flight: int | None
    more_bytes: float
    saved_s: float


@dataclass(frozen=True, repr=False)
class Advice(BriefText):
    """Options, plain ones first, by memory. `free_s`: what no plan beats if messages and sums took no time. `left_out`:
    what there was no time for, empty where that is nothing.
    """

    problem: Problem
    options: tuple[Option, ...]
    free_s: float
    left_out: str = ""

    @cached_property
    def front(self) -> tuple[Option, ...]:
        """The options that no other beats in time, memory and error; of equal ones that with the lower limit."""
        limited = [*self.options[1:], *self.options[:1]]
        one_each = {option.costs: option for option in reversed(limited)}.values()
        return tuple(option for option in one_each if not any(option.is_beaten_by(other) for other in self.options))

    @property
    def plain(self) -> Option | None:
        """The fastest option without compression."""
        return min((x for x in self.options if not x.error), key=lambda x: (x.step_s, x.peak_bytes), default=None)

    @property
    def most_saved(self) -> float:
        """The share of the fastest plain step that compression could save at most, were messages and sums free."""
        return 0.0 if self.plain is None or not self.plain.step_s else max(0.0, 1 - self.free_s / self.plain.step_s)

    @property
    def steps(self) -> list[Step]:
        """What each further micro-batch of memory buys, without compression."""
        plain = [option for option in self.options if not option.error and option.in_flight is not None]
        return [
            Step(after.in_flight, after.peak_bytes - before.peak_bytes, before.step_s - after.step_s)
            for before, after in pairwise(plain)
        ]

    @property
    def data(self) -> dict[str, object]:
        """The answer in plain values."""
        asked = self.problem
        return {
            "problem": asked.system, "profile": asked.profile.name, "ranks": asked.ranks,
            "micro_batches": asked.micro_batches, "free_network_s": self.free_s, "most_saved": self.most_saved,
            "compression": self.verdict, "front": [option.data for option in self.front],
            "rows": [option.data for option in self.options],
            "one_more_micro_batch": [vars(step) for step in self.steps],
        }  # fmt: skip

    @property
    def verdict(self) -> str:
        """Whether compression is needed at all, in a line."""
        plain, best = self.plain, min(self.options, key=lambda option: option.step_s, default=None)
        if plain is None or best is None:
            return "unknown: no plan was found in time"
        if self.most_saved <= _CLOSE:
            return "not needed: without it the step is as short as if messages took no time"
        limit = f"it can save at most {100 * self.most_saved:.1f} % of the fastest plain step"
        if self.problem.compression is None:
            return f"{limit}; how much of it at which error needs --compression, a table of measured errors"
        saved = 1 - best.step_s / plain.step_s
        if saved <= _CLOSE:
            return f"not worth it: more memory hides the messages; {limit}"
        return f"saves {100 * saved:.1f} % of the fastest plain step at error {best.error:.3g}; {limit}"

    @property
    def text(self) -> str:
        """The front as a table, what memory buys, and the verdict."""
        rows = [["in flight", "memory", "error", "step", f"bound, {self.problem.placed} placement", "order"]]
        for option in sorted(self.front, key=lambda option: (option.error, option.peak_bytes)):
            rows.append([
                "any" if option.in_flight is None else str(option.in_flight), format_bytes(option.peak_bytes),
                f"{option.error:.3g}", format_seconds(option.step_s), format_seconds(option.bound_s), option.method,
            ])  # fmt: skip
        lines = [table(rows)]
        for step in self.steps:
            if step.saved_s > _CLOSE * self.free_s:
                more = format_bytes(max(step.more_bytes, 0.0))
                lines.append(f"{step.in_flight} in flight: {format_seconds(step.saved_s)} less for {more} more")
        return "\n".join([*lines, f"compression: {self.verdict}"])


def advise(
    profile: str | Path | PipelineProfile,
    *,
    ranks: int,
    micro_batches: int | None = None,
    error_budget: float | None = None,
    options: SolveOptions | None = None,
    **question: Any,
) -> Advice:
    """The front of step time against memory, counted in micro-batches, against error.

    `micro_batches`: four a rank by default. `error_budget`: the most that is of interest, by default what it spoils to
    compress all. `options`: their time limit is that of all solves together. `question`: as for `problem`.
    Raises `InputError` as `problem` does.
    """
    asked = problem(profile, ranks=ranks, micro_batches=micro_batches or 4 * ranks, **question)
    if error_budget is not None and asked.compression is None:
        raise InputError("error_budget: needs compression, a table of measured errors")
    deadline = Deadline(options or SolveOptions())
    found: list[Option] = []
    for in_flight in _memories(asked, found):
        if not _try(asked, in_flight, 0.0, deadline, found):
            return Advice(asked, tuple(found), _free_s(asked), f"{in_flight or 'any'} in flight, and what follows")
    if asked.compression is not None:
        most = _largest_error(asked, found[0].cut) if error_budget is None else error_budget
        for in_flight in sorted({ranks, found[-1].in_flight or ranks}):
            for share in _SHARES:
                if not _try(asked, in_flight, share * most, deadline, found):
                    return Advice(asked, tuple(found), _free_s(asked), f"error {share * most:.3g} and what follows")
    return Advice(asked, tuple(found), _free_s(asked))


def _memories(asked: Problem, found: list[Option]) -> Iterator[int | None]:
    """No limit first; then from one micro-batch up, until more buys nothing."""
    yield None
    floor_s = found[0].step_s
    for in_flight in range(1, asked.micro_batches + 1):
        yield in_flight
        if found[-1].step_s <= floor_s * (1 + _CLOSE):
            return


def _try(asked: Problem, in_flight: int | None, budget: float, deadline: Deadline, found: list[Option]) -> bool:
    """Solve one question and add its plan; False where time is up."""
    if deadline.over:
        return False
    compression = asked.compression if budget else None
    question = replace(asked, in_flight=in_flight, error_budget=budget, compression=compression)
    plan = planned(question, replace(deadline.stage(), on_progress=None, on_plan=None), _PARAMETERS)
    if plan.schedule is None or deadline.over:  # what was cut short is not what memory buys
        return False
    report = check(plan.schedule)
    assert report.valid, "a plan that the search timed"
    assert plan.solution.bounds
    decision = plan.decision
    assert isinstance(decision, PipelineDecision), "of a plan of pipelines"
    error = plan.details.get("error", 0.0)
    assert isinstance(error, float), "of a plan of pipelines"
    found.append(Option(
        in_flight, error, float(max(report.peak_bytes)), report.makespan_s,
        plan.solution.bounds[-1].value, decision.method, decision.cut,
    ))  # fmt: skip
    return True


def _free_s(asked: Problem) -> float:
    """A bound on every plan if messages and sums took no time."""
    free = replace(asked, hops=EvenHops(0.0), replicas=Replicas(), compression=None)
    search = CutSearch(free, _PARAMETERS.partial_cuts)
    next(iter(search), None)
    return search.bound


def _largest_error(asked: Problem, cut: Cut) -> float:
    """What it spoils to send every gradient in the mode that spoils most."""
    stages = stages_of(asked, cut)
    spoiling = spoiling_of(asked, cut, stages.crosses)
    assert spoiling is not None
    sums = spoiling.reduce.max(axis=0).sum() if asked.replicas.count > 1 else 0.0
    return float(asked.micro_batches * np.max(spoiling.hop, axis=0).sum() + sums)
