"""The solver of caches: formats of heads, then modes of layers, exactly; and the baselines beside."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gapless import __version__
from gapless.encodings.cache.baselines import BASELINES, Layers, baseline
from gapless.encodings.cache.choice import Options
from gapless.encodings.cache.decision import CacheDecision
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


def solve(asked: Problem, options: SolveOptions, given: object = None) -> Plan:
    """The modes that spoil least within the bytes; without a plan where even the smallest modes take more."""
    parameters, deadline = parameters_of(Parameters, given), Deadline(options)
    offered = Options(asked, parameters.most_work)
    choice = None if offered.least_bytes > asked.cache_bytes else offered.best(asked.cache_bytes)
    chosen = None
    if choice is not None and asked.method == "exact":
        chosen = offered.layers_of(choice)
    elif choice is not None:
        chosen = baseline(asked.method, asked, parameters, options.seed)
    if choice is None or chosen is None:
        status = Status.INFEASIBLE if choice is None else Status.NO_SOLUTION
        claim = Solution(
            status, StopReason.FINISHED, "gapless", __version__, options.seed, deadline.elapsed_s, unit="error"
        )
        return Plan(claim, None, {"method": asked.method, "least_bytes": offered.least_bytes})
    bound = offered.bound(asked.cache_bytes, parameters.prices)
    if offered.is_exact:
        bound = max(bound, choice.bound)
    claim = claim_of(
        asked.error(chosen), min(bound, choice.error), options, solver="gapless", version=__version__,
        wall_s=deadline.elapsed_s, unit="error", source="knapsack", otherwise=StopReason.FINISHED,
    )  # fmt: skip
    decision = CacheDecision.made_of(chosen, asked.profile.layout)
    return Plan(claim, to_schedule(asked, chosen), {
        "method": asked.method, **_row(asked, chosen),
        "saved": 1 - asked.bytes_of(chosen) / asked.full_bytes,
        "full_bytes": asked.full_bytes,
        "full_step_s": step_s(asked, asked.full),
        "layer_bytes": [asked.bytes_of([each]) for each in chosen],
        "layer_errors": [math.fsum(asked.charges(layer, each)) for layer, each in enumerate(chosen)],
        "baselines": _beside(asked, parameters, options.seed),
        "front": _front(asked, offered, parameters),
    }, decision=decision)  # fmt: skip


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


def _front(asked: Problem, offered: Options, parameters: Parameters) -> list[list[float]]:
    """Pairs of bytes and least error, from the fewest bytes on."""
    budgets, errors = offered.front.budgets, offered.front.errors
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
