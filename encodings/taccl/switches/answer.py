"""The answer on a machine whose switches add up and multicast: a plan that uses them, one that doesn't, and a bound for
all. A plan of plain transfers is sought with the methods for those, unless none can be better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.candidate import Candidate, CollectiveDecision, checked
from gapless.encodings.taccl.chunked import claim
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.switches.bounds import is_bandwidth_plain, switch_bounds_s
from gapless.encodings.taccl.switches.plans import switched_plan, why_not
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Bound, PlanClass
from gapless.system import Plan
from gapless.units import format_count, format_seconds

__all__ = ["solve_with_switches"]

_PLAIN = "without operations of switches"


def solve_with_switches(
    problem: Problem,
    options: SolveOptions,
    parameters: Parameters,
    plain: Callable[[Problem, SolveOptions, Parameters], Plan],
) -> Plan:
    """The best plan, with or without operations of switches. `plain`: solves a question on a machine without those."""
    deadline = Deadline(options)
    sent = replace(problem, topology=problem.topology.without_switch_groups())
    of_plain = bounds_of(sent.coarsest, parameters.bounds, deadline.stage())
    bounds_s = switch_bounds_s(problem.coarsest)
    if is_bandwidth_plain(problem.coarsest) and not deadline.over:
        bounds_s["bandwidth"] = of_plain.s_per_byte * problem.coarsest.chunk_bytes
    source = max(bounds_s, key=bounds_s.__getitem__)
    lacking = why_not(problem) or ("" if parameters.methods.allows("switched") else "parameters leave the method out")
    found = None if lacking else switched_plan(problem, deadline, parameters.switches)
    if found is not None:
        checked(found.schedule)
    answer = _Answer(problem, options, deadline, found, lacking, bounds_s, source)
    if found is not None:
        if options.on_plan is not None:
            options.on_plan(found.end_s, answer.by_switches)
        if deadline.over or answer.is_enough or of_plain.any_chunking_s >= found.end_s:
            return answer.by_switches()
    return answer.better(plain(sent, answer.options_of_plain(), parameters))


@dataclass(frozen=True)
class _Answer:
    """What is known of a question: a plan `found` by switches, or why there is none (`lacking`), and bounds."""

    problem: Problem
    options: SolveOptions
    deadline: Deadline
    found: Candidate | None
    lacking: str
    bounds_s: dict[str, float]
    source: str

    @property
    def bound_s(self) -> float:
        """No plan takes less."""
        return self.bounds_s[self.source]

    @property
    def is_enough(self) -> bool:
        """Whether the plan by switches is proven within the gap."""
        gap = None if self.found is None else relative_gap(self.found.end_s, self.bound_s)
        return gap is not None and gap <= self.options.gap

    def options_of_plain(self) -> SolveOptions:
        """The time that is left, with reports of the bound that holds and of the better plan."""
        stage, on_plan, report = self.deadline.stage(), self.options.on_plan, self.options.on_progress
        if on_plan is not None:
            stage = replace(stage, on_plan=lambda end_s, make: on_plan(self._least(end_s), lambda: self.better(make())))
        if report is not None:
            stage = replace(stage, on_progress=lambda news: report(self._reported(news)))
        return stage

    def _least(self, end_s: float) -> float:
        return end_s if self.found is None else min(end_s, self.found.end_s)

    def _reported(self, news: Progress) -> Progress:
        known = [one for one in (news.incumbent, None if self.found is None else self.found.end_s) if one is not None]
        return replace(news, incumbent=min(known, default=None), bound=self.bound_s)

    def by_switches(self) -> Plan:
        """The plan that uses them."""
        found = self.found
        assert found is not None  # it is asked for where there is one
        decision = CollectiveDecision(found.method, found.variant, found.problem.chunks)
        ends = claim(
            found.end_s, self.bound_s, found.solver, found.version, self.options, self.deadline, self.source
        )  # fmt: skip
        ops = found.schedule.switch_ops
        details = found.details(found.end_s / self.bound_s if self.bound_s else None) | {
            "bounds_s": {"the question": self.bound_s},
            "bound_sources_s": self.bounds_s,
            "switches": f"{format_count(0 if ops is None else len(ops.group))} operations add up or multicast",
            "provenance": asdict(decision),
        }
        return Plan(ends, found.schedule, details, problem=found.problem, decision=decision)

    def better(self, plain: Plan) -> Plan:
        """The faster of this plan and one of plain transfers, whose bound is one for such plans alone."""
        end_s, known = plain.solution.objective, plain.solution
        if self.found is not None and (end_s is None or self.found.end_s <= end_s):
            return self.by_switches()
        if end_s is None or plain.schedule is None:
            return replace(plain, solution=replace(known, bound=None, bound_source="", narrower=()))
        own = () if known.bound is None else (Bound(PlanClass.METHOD, known.bound, known.bound_source, _PLAIN),)
        ends = claim(
            end_s, min(self.bound_s, end_s), known.solver, known.version, self.options, self.deadline, self.source,
            narrower=(*own, *map(_of_plain, known.narrower)),
        )  # fmt: skip
        why = self.lacking or "the time was up"
        if self.found is not None:
            why = f"with them it takes {format_seconds(self.found.end_s)}"
        details = {**plain.details, "switches": f"not used, though they add up or multicast: {why}"}
        sent, machine = plain.schedule, self.problem.topology
        if sent.topology == machine.without_switch_groups():
            sent = replace(sent, topology=machine)
        return replace(plain, solution=ends, schedule=sent, details=details)


def _of_plain(bound: Bound) -> Bound:
    """A bound that was found for plain transfers; a sketch has no others."""
    is_narrow = bound.plans is PlanClass.SKETCH or "under sketch" in bound.name
    return bound if is_narrow else replace(bound, name=f"{bound.name}, {_PLAIN}".removeprefix(", "))
