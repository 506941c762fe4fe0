"""The solver of caches: formats of heads, then modes of layers, exactly; and the baselines beside."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gapless import __version__
from gapless.encodings.cache.baselines import BASELINES, Layers, baseline
from gapless.encodings.cache.choice import Options
from gapless.encodings.cache.decision import CacheDecision
from gapless.encodings.cache.fronts import Fronts
from gapless.encodings.cache.lowering import step_s, to_schedule
from gapless.encodings.cache.parameters import Parameters
from gapless.encodings.cache.problem import Problem
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.question.parameters import parameters_of
from gapless.solution import Solution, Status, StopReason, claim_of
from gapless.system import Plan

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["cost", "solve"]


_LOWERING_S = 1e-3
"""What lowering, replaying and writing take for each layer at most; kept of a time limit."""


def solve(asked: Problem, options: SolveOptions, given: object = None) -> Plan:
    """The modes that spoil least within the bytes; without a plan where even the smallest modes take more."""
    parameters, deadline = parameters_of(Parameters, given), Deadline(options)
    deadline.keep(_LOWERING_S * asked.profile.layers)
    offered = Options(asked)
    if offered.least_bytes > asked.cache_bytes:
        return _nothing(Status.INFEASIBLE, asked, offered, options, deadline)
    priced = offered.priced(asked.cache_bytes, parameters.prices)
    chosen = priced.layers if asked.method == "exact" else baseline(asked.method, asked, parameters, options.seed)
    if chosen is None:
        return _nothing(Status.NO_SOLUTION, asked, offered, options, deadline)
    search = _Search(asked, options, parameters, deadline, chosen, priced.bound)
    search.offer()
    search.improve(offered)
    return search.plan()


def _nothing(status: Status, asked: Problem, offered: Options, options: SolveOptions, deadline: Deadline) -> Plan:
    claim = Solution(
        status, StopReason.FINISHED, "gapless", __version__, options.seed, deadline.elapsed_s, unit="error"
    )
    return Plan(claim, None, {"method": asked.method, "least_bytes": offered.least_bytes})


@dataclass
class _Search:
    """The best modes so far, a bound on all, and what stands beside, as far as there was time for it."""

    asked: Problem
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    chosen: Layers
    bound: float
    baselines: dict[str, object] = field(default_factory=dict)
    front: list[list[float]] = field(default_factory=list)

    def offer(self) -> None:
        """What is known so far is a plan."""
        if self.options.on_plan is not None:
            known = replace(self)
            self.options.on_plan(self.asked.error(self.chosen), known.plan)

    def improve(self, offered: Options) -> None:
        """The exact choice, then the baselines and the front, while there is time."""
        asked, deadline = self.asked, self.deadline
        fronts = Fronts.of(offered, self.parameters.most_work, lambda: deadline.over)
        if fronts is None or deadline.over:
            return
        choice = fronts.best(asked.cache_bytes)
        assert choice is not None, "the smallest modes are within the budget"
        if fronts.is_exact:
            self.bound = max(self.bound, choice.bound)
        made = fronts.layers_of(choice)
        if asked.method == "exact" and asked.error(made) <= asked.error(self.chosen):
            self.chosen = made
        self.bound = min(self.bound, choice.error)
        self.front = _front(fronts, self.parameters)
        self.offer()
        if not deadline.over:
            self.baselines = _beside(asked, self.parameters, self.options.seed)

    def plan(self) -> Plan:
        """The plan of what is known."""
        asked, chosen = self.asked, self.chosen
        claim = claim_of(
            asked.error(chosen), self.bound, self.options, solver="gapless", version=__version__,
            wall_s=self.deadline.elapsed_s, unit="error", source="knapsack", otherwise=self._reason,
        )  # fmt: skip
        return Plan(claim, to_schedule(asked, chosen), {
            "method": asked.method, **_row(asked, chosen),
            "saved": 1 - asked.bytes_of(chosen) / asked.full_bytes,
            "full_bytes": asked.full_bytes,
            "tokens": asked.tokens,
            "sequence": asked.profile.sequence,
            "windows": sum(each.window > 0 for each in chosen),
            "full_step_s": step_s(asked, asked.full),
            "layer_bytes": [asked.bytes_of([each]) for each in chosen],
            "layer_errors": [math.fsum(asked.charges(layer, each)) for layer, each in enumerate(chosen)],
            "baselines": self.baselines,
            "front": self.front,
        }, decision=CacheDecision.made_of(chosen, asked.profile.layout))  # fmt: skip

    @property
    def _reason(self) -> StopReason:
        """Why the search ended, where nothing is proven: the time, or the work; a baseline has no more to do."""
        if self.deadline.has_struck:
            return StopReason.TIME_LIMIT
        return StopReason.WORK_LIMIT if self.asked.method == "exact" else StopReason.FINISHED


def _row(asked: Problem, chosen: Layers) -> dict[str, object]:
    return {"error": asked.error(chosen), "cache_bytes": asked.bytes_of(chosen), "step_s": step_s(asked, chosen)}


def _beside(asked: Problem, parameters: Parameters, seed: int) -> dict[str, object]:
    """All baselines but the plan itself; a format that takes more bytes stands there with `fits` false."""
    rows: dict[str, object] = {}
    for name, made in BASELINES.items():
        found = None if name == asked.method else made(asked, parameters, seed)
        if found is not None:
            rows[name] = {**_row(asked, found), "fits": asked.bytes_of(found) <= asked.cache_bytes}
    return rows


def _front(fronts: Fronts, parameters: Parameters) -> list[list[float]]:
    """Pairs of bytes and least error, from the fewest bytes on."""
    budgets, errors = fronts.front.budgets, fronts.front.errors
    places = np.unique(np.linspace(0, len(budgets) - 1, min(len(budgets), parameters.front_points)).round().astype(int))
    return [[float(budgets[place]), float(errors[place])] for place in places]


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """The error of the plan's modes, inf where they take more bytes. Raises `InputError` for modes that can't be."""
    decision, profile = CacheDecision.of(plan), problem.profile
    chosen = decision.layers
    if len(chosen) != profile.layers or decision.layout != profile.layout:
        raise InputError(f"plan: must be of the profile's {profile.layers} layers and its layout")
    if any((len(each.keys), len(each.representatives)) != (profile.key_heads, profile.heads) for each in chosen):
        raise InputError(f"plan: layers must have {profile.heads} heads, {profile.key_heads} of them with keys")
    return problem.error(chosen) if problem.bytes_of(chosen) <= problem.cache_bytes else math.inf
