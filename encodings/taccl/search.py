"""What the methods of a question share: the question, its bounds, the best of their candidates, and the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of, class_name
from gapless.encodings.taccl.bounds.classes import QuestionBounds
from gapless.encodings.taccl.candidate import SAME, Candidate
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.flow.chunking import Quick
from gapless.encodings.taccl.flow.first import least_limit_s
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Status, StopReason
from gapless.system import Plan

__all__ = ["PART", "Search", "no_plan"]

PART = 0.5
"""Where others follow, a method takes at most this part of the time that is left."""


@dataclass
class Search:
    """The best candidate so far, and the bound of what was asked, 0 as long as there is none.

    `first`: the plan to fall back on; `quick`: likewise, of the greedy. `classes`: the bounds that hold for what was
    asked, and for the question without what narrows it. `asked`: where nobody has said into how many chunks data are
    cut. `by_chunks`: the best of the plans chunk by chunk, with a bound for those. `class_bounds_s`: by class.
    `widest_s`: for any plan of the question, with the bound's name.
    """

    problem: Chunked
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    first: Candidate | None
    quick: Quick
    classes: QuestionBounds
    asked: Problem | None
    bound_s: float = 0.0
    widest_s: tuple[float, str] = (0.0, "")
    best: Candidate | None = None
    by_chunks: Candidate | None = None
    class_bounds_s: dict[str, float] = field(default_factory=dict)

    @property
    def question(self) -> Bounds:
        """The bounds that hold for what was asked."""
        return self.classes.asked

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the problem in its chunks."""
        if self.question.problem is self.problem:
            return self.question
        return self.quick.bounds or bounds_of(self.problem, self.parameters.bounds, self.deadline.stage())

    @property
    def is_alone(self) -> bool:
        """Whether the question asks for a single method."""
        return self.problem.method != "auto" or self.options.solver is not None

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and the time is up or it is proven within the gap."""
        if self.best is None:
            return self.first is not None and self.deadline.over
        return self.deadline.over or self.prove()

    @property
    def end_s(self) -> float:
        """When the best plan is over, inf without one."""
        return math.inf if self.best is None else self.best.end_s

    @property
    def known_s(self) -> float:
        """When the best of all plans is over that may be the answer, inf without one."""
        first = self.first if self.parameters.methods.allows("first") else None
        return min((plan.end_s for plan in (self.best, self.quick.plan, first) if plan is not None), default=math.inf)

    def prove(self) -> bool:
        """Whether the best plan is proven within the gap of what was asked: by the quick bounds, or by all of them."""
        if not self._is_proven:
            self.note_bound(self.question.asked_s)
        return self._is_proven

    @property
    def _is_proven(self) -> bool:
        gap = None if self.best is None else relative_gap(self.end_s, self.bound_s)
        return gap is not None and gap <= self.options.gap

    def note_bound(self, bound_s: float) -> None:
        """A bound of the question."""
        self.bound_s = max(self.bound_s, bound_s)
        self.class_bounds_s[self.question.asked_class] = self.bound_s

    def stage(self, share: float = PART) -> SolveOptions:
        """A part of the time that is left, with reports that go on from the best plan so far."""
        stage = replace(self.deadline.stage(share * self.deadline.remaining_s), on_plan=self._on_plan())
        report, since_s, bound_s = stage.on_progress, self.deadline.elapsed_s, self.widest_s[0] or None
        if report is None:
            return stage
        known = [plan.end_s for plan in (self.best, self.first) if plan is not None]

        def go_on(news: Progress) -> None:
            found_s = min((one for one in (news.incumbent, *known) if one is not None), default=None)
            report(replace(news, incumbent=found_s, bound=bound_s, wall_s=since_s + news.wall_s))

        if self.best is not None:
            go_on(Progress(0.0, None, None, self.best.method))
        return replace(stage, on_progress=go_on)

    def _on_plan(self) -> Callable[[float, Callable[[], Candidate]], None] | None:
        """Takes what a method finds before its end, and offers it as the answer to the question."""
        on_plan = self.options.on_plan
        return None if on_plan is None else lambda end_s, make: on_plan(end_s, lambda: self.answer(make()))

    def offer(self, candidate: Candidate) -> None:
        """Keep a plan if it is faster than the best; of two of one kind the larger bound holds for both."""
        name = class_name(candidate.problem, candidate.is_grouped)
        self.class_bounds_s[name] = max(candidate.proven_s, self.bound_s, self.class_bounds_s.get(name, 0.0))
        if not candidate.is_grouped:
            known = self.by_chunks
            if known is not None and known.method == candidate.method and known.problem is candidate.problem:
                candidate = _better(known, candidate)
            if known is None or candidate.end_s <= known.end_s:
                self.by_chunks = candidate
        if candidate.is_faster(self.best):
            self.best = candidate
            self.announce(candidate)

    def announce(self, candidate: Candidate | None) -> None:
        """Report a plan that may be the answer if nothing better is found."""
        if self.options.on_plan is not None and candidate is not None:
            self.options.on_plan(candidate.end_s, self.answer)

    def ended(self) -> Plan:
        """The answer once no method is left: with the bounds of wider classes than what was asked."""
        self.prove()
        self.widest_s = self.classes.widest
        self.classes.has_ended = not self.deadline.over
        return self.answer()

    def answer(self, news: Candidate | None = None) -> Plan:
        """The best plan, with the bound of the question, and its provenance. `news`: of a method that goes on."""
        known = [plan for plan in (self.best, self.quick.plan, news) if plan is not None]
        is_asked = not self.is_alone and self.parameters.methods.allows("first")
        if self.first is not None and (is_asked or not known or self.deadline.has_struck):
            known.append(self.first)
        if not known:
            return no_plan(self.problem, self.options, self.deadline)
        best = min(known, key=lambda plan: plan.end_s)  # of equal ones the best of the methods
        widest_s, source = self.widest_s
        solution = claim(
            best.end_s, widest_s, best.solver, best.version, self.options, self.deadline, source,
            self.classes.narrower(best, self.class_bounds_s, self.is_alone), confined=self.asked is None,
        )  # fmt: skip
        if self.options.stop.is_set() and solution.status is Status.FEASIBLE:
            solution = replace(solution, stop_reason=StopReason.INTERRUPTED)
        details = best.details(best.end_s / widest_s if widest_s else None) | {
            "bounds_s": dict(self.class_bounds_s),
            "bound_sources_s": dict(best.bounds_s),
            "provenance": asdict(best.decision),
        }
        return Plan(solution, best.schedule, details, problem=best.problem, decision=best.decision)


def no_plan(problem: Chunked, options: SolveOptions, deadline: Deadline) -> Plan:
    """That there is no time for a plan, and about how much there would have to be."""
    details = {"least_time_limit_s": math.ceil(least_limit_s(problem))}
    return Plan(claim(None, 0.0, "", "", options, deadline), None, details, problem=problem)


def _better(one: Candidate, other: Candidate) -> Candidate:
    """The faster of two plans (of equals the other), with the larger of their bounds, which both hold for both."""
    best = one if one.end_s < other.end_s * (1 - SAME) else other
    return replace(best, bound_s=max(one.proven_s, other.proven_s), bounds_s={**one.bounds_s, **other.bounds_s})
