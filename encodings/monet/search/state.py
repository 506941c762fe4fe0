"""What a solve of MONeT knows at a moment: the best plan, the bound and whose word that is; and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.offload.keeper import keeper_of
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.annealing import Annealing
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.model import Model
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import PROVEN_GAP, Solution, Status, StopReason

__all__ = ["SOLVER", "SOLVER_TOLERANCE", "UNCONFIRMED_GAP", "Attempt", "Found", "State", "is_within", "stopped"]

SOLVER = "highs"
"""Solves the models where the options name no other backend."""
SOLVER_TOLERANCE = 5e-7
"""A MILP solver keeps rows to about 1e-6: its bound is lowered by what that can be worth, so that it stays a bound."""

UNCONFIRMED_GAP = 10 * PROVEN_GAP
"""The least gap of a plan whose bound is one solver's word."""


@dataclass(frozen=True)
class Attempt:
    """Decisions on the problem's graph, None where none were found, and what holds for every answer to the question.

    `bound_s`: every plan costs at least that. `is_infeasible`: no plan fits the budget. `class_bound_s`: what every
    plan of the method's own class costs at least, None where nothing is known of it beside `bound_s`. `stop_reason`:
    why there is no better plan. `solver`: who found it. `graph_of`: makes of the problem's graph the one that the
    decisions are of, for a method with operators of its own.
    """

    decisions: Decisions | None
    stop_reason: StopReason
    solver: str
    bound_s: float = 0.0
    is_infeasible: bool = False
    class_bound_s: float | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    graph_of: Callable[[TrainingGraph], TrainingGraph] = field(default=lambda graph: graph)


def stopped(options: SolveOptions) -> StopReason:
    """Why a search that could go on has stopped."""
    return StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT


@dataclass(frozen=True)
class Found:
    """What solving a model came to; `unit_s`: of its objective.

    `is_of_problem`: whether its bound holds for the problem, or the model was only to suggest `start`. `plan`:
    decisions that replay clean, with their cost. `windows`: of a relaxation.
    """

    phase: str
    milp: Model
    unit_s: float
    solution: Solution
    is_of_problem: bool = True
    start: KeepSet | None = None
    plan: tuple[Decisions, float] | None = None
    windows: int = 0

    @property
    def bound_s(self) -> float:
        """What it claims of every plan's cost; 0 for nothing."""
        if self.solution.bound is None or not self.is_of_problem:
            return 0.0
        return self.solution.bound * self.unit_s * (1 - SOLVER_TOLERANCE)

    def lowered(self, bound_s: float) -> Found:
        """The same with a bound that is no higher, which it claims as well."""
        if self.bound_s <= bound_s or self.solution.bound is None:
            return self
        return replace(self, solution=replace(self.solution, bound=self.solution.bound * bound_s / self.bound_s))


def is_within(found_s: float, bound_s: float, gap: float) -> bool:
    """Whether a plan's cost is within a gap of a bound, or as good as proven."""
    return found_s <= bound_s or (relative_gap(found_s, bound_s) or 0.0) <= max(gap, PROVEN_GAP)


@dataclass
class State:
    """Grows in the thread of the search only.

    `own_bound_s`, `is_infeasible`: need no solver's word. `known_s`: what the caller has proven and adds itself: it
    counts for the gap only. `claim`, `infeasible`: whose word the bound is, and that
    nothing fits. `least_bytes`: every plan has that budget. `found_bytes`: one was found for that,
    which is more than the budget. `is_limited`: whether the deadline counts although nothing
    was found: no deadline is too short for a first plan.
    """

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    annealing: Annealing
    own_bound_s: float
    known_s: float = 0.0
    claim: Found | None = None
    infeasible: Found | None = None
    is_infeasible: bool = False
    least_bytes: int = 0
    found_bytes: int | None = None
    starts: list[KeepSet] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)
    plan: tuple[Decisions, float] | None = None
    windows: int = 0
    is_limited: bool = False

    @property
    def solver(self) -> str:
        """The backend of the models."""
        return self.options.solver or SOLVER

    @property
    def cells(self) -> int:
        """Forward times backward nodes."""
        return len(self.problem.graph.forward) * len(self.problem.graph.backward)

    @property
    def is_small(self) -> bool:
        """Whether single stages are windows of their own: in the relaxation's windows, and in the integer program."""
        return self.cells <= self.parameters.bounding.small_cells

    @property
    def bound_s(self) -> float:
        """The best bound."""
        return max(self.own_bound_s, 0.0 if self.claim is None else self.claim.bound_s)

    def bound_beside_s(self, cost_s: float) -> float:
        """What is said beside a plan of that cost when the solve is cut short, whose claims nobody could confirm.

        A claim that would call the plan optimal is lowered until it doesn't; one that the plan refutes is dropped.
        """
        claimed_s, most_s = self.bound_s, cost_s * (1 - UNCONFIRMED_GAP)
        if claimed_s > cost_s * (1 + PROVEN_GAP):
            return self.own_bound_s
        return max(self.own_bound_s, min(claimed_s, most_s))

    @property
    def incumbent_s(self) -> float | None:
        """The cost of the best plan that fits."""
        costs_s = [] if self.annealing.best is None else [self.annealing.best.outcome.cost_s]
        return min([*costs_s, *([] if self.plan is None else [self.plan[1]])], default=None)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do, or no time to do it."""
        is_late = (self.is_limited or self.incumbent_s is not None) and self.deadline.over
        return self.is_infeasible or self.infeasible is not None or self.is_close(self.options.gap) or is_late

    def is_close(self, gap: float, beside_s: float = 0.0) -> bool:
        """Whether the best plan is within a gap of the bound, or of one beside it that isn't taken up yet."""
        found_s = self.incumbent_s
        return found_s is not None and is_within(found_s, max(self.bound_s, self.known_s, beside_s), gap)

    def allows(self, method: str) -> bool:
        """Whether a part of the search may be tried."""
        return self.parameters.methods.allows(method)

    def offer(self, candidate: Found) -> None:
        """Take up what a model came to. That nothing fits is an alarm where a plan does, and no claim."""
        self.windows = max(self.windows, candidate.windows)
        if candidate.start is not None:
            self.starts.append(candidate.start)
        if candidate.plan is not None and (self.plan is None or candidate.plan[1] < self.plan[1]):
            self.plan = candidate.plan
        if candidate.bound_s > self.bound_s:
            self.claim = candidate
        if candidate.is_of_problem and candidate.solution.status is Status.INFEASIBLE:
            if self.incumbent_s is None:
                self.infeasible = candidate
            else:
                self.alarm(f"{candidate.phase}: that nothing fits was claimed, and a plan does")
        self.report(candidate.phase)

    def alarm(self, words: str) -> None:
        """Note that a claim is false."""
        self.details["alarm"] = words

    def report(self, phase: str) -> None:
        """Say where the search stands, and offer its best plan."""
        if self.options.on_progress is not None:
            bound_s = self.bound_s or None
            self.options.on_progress(Progress(self.deadline.elapsed_s, self.incumbent_s, bound_s, phase))
        if self.options.on_plan is not None and self.incumbent_s is not None:
            best, cost_s = self.best_plan(), self.incumbent_s

            def attempt() -> Attempt:  # asked for later, with what is proven by then: relaxations go on
                return Attempt(best(), StopReason.INTERRUPTED, self.solver_title, self.bound_beside_s(cost_s))

            self.options.on_plan(cost_s, attempt)

    @property
    def solver_title(self) -> str:
        """Who finds the plan."""
        return f"{self.solver}+annealing"

    def best_plan(self, keeper: Keeper | None = None) -> Callable[[], Decisions]:
        """What makes the decisions of the best plan there is now; in another thread without a keeper of this one."""
        best, plan, problem = self.annealing.best, self.plan, self.problem
        if plan is not None and (best is None or plan[1] < best.outcome.cost_s):
            return lambda: plan[0]
        assert best is not None
        return lambda: (keeper or keeper_of(problem)).decide(best.keep)
