"""The solver of head maps: the best heads of a layer for every count, then the counts of all layers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gapless import __version__
from gapless.encodings.chai.head_map import HeadDecision, HeadMap, Ints, map_of
from gapless.encodings.chai.lowering import step_s, to_schedule
from gapless.encodings.chai.methods import IN_ORDER, Baselines, Fronts, HeadSearch, Medians, items_of
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem
from gapless.encodings.chai.queries import fewer_queries
from gapless.encodings.chai.question import LOSS
from gapless.errors import InputError
from gapless.io.typed import data_of
from gapless.methods import run_methods
from gapless.methods.medians import LayerMedians, ranked
from gapless.model.knapsack import Relaxation
from gapless.options import Deadline, SolveOptions
from gapless.profiles.heads.profile import nearest
from gapless.question.parameters import parameters_of
from gapless.solution import Solution, Status, StopReason, claim_of
from gapless.solvers.registry import load_backend
from gapless.system import Plan

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["cost", "pinned", "solve", "with_swaps"]


def solve(asked: Problem, options: SolveOptions, given: object = None) -> Plan:
    """The head map of least error within the budget; without one where even one head a layer is too many."""
    parameters, deadline = parameters_of(Parameters, given), Deadline(options)
    if asked.most_kept < asked.profile.layers:
        claim = Solution(
            Status.INFEASIBLE, StopReason.FINISHED, "gapless", __version__, options.seed, deadline.elapsed_s,
            unit="error",
        )  # fmt: skip
        return Plan(claim, None, {"method": asked.method, "most_saving": asked.most_saving})
    if asked.swaps:
        importlib.import_module("gapless.torch.heads.models")  # missing: known before there is work to lose
    medians = _measured(asked) if asked.distance == LOSS else tuple(ranked(cost) for cost in asked.cost)
    search = _Search(asked, options, parameters, deadline, medians)
    search.report()
    run_methods(IN_ORDER, asked, search, parameters.methods)
    if deadline.over:  # what is beside the plan is left out where there is no time for it
        return search.plan(search.medians)
    return search.plan(search.medians, Baselines(asked, search.medians, parameters, options.seed))


@dataclass
class _Search(HeadSearch):
    """Key heads for every layer and count, ever better ones, each of which make a plan."""

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.deadline.over

    def offer(self, candidate: Medians) -> None:
        """Go on from these."""
        self.medians = candidate
        self.report()

    def report(self) -> None:
        """What is known so far is a plan."""
        if self.options.on_plan is not None:
            medians = self.medians
            modes = _rounded(self.problem, medians)
            error = sum(float(each.errors[mode]) for each, mode in zip(medians, modes, strict=True))
            self.options.on_plan(error, lambda: self.plan(medians))

    def plan(self, medians: Medians, beside: Baselines | None = None) -> Plan:
        """The plan of what is known; with `beside`, the baselines, the fronts and the swaps too."""
        asked, parameters = self.problem, self.parameters
        fronts = None if beside is None else Fronts.of(medians, parameters)
        if fronts is None:
            modes = _rounded(asked, medians)
            bound = Relaxation(items_of(medians, "bounds")).bound_at(asked.most_kept)
        else:
            best, least = fronts.found.at(asked.most_kept), fronts.bounds.at(asked.most_kept)
            assert best is not None, "one head a layer is within the budget"
            assert least is not None, "one head a layer is within the budget"
            modes, bound = best.modes.tolist(), least.bound
        baselines = beside or Baselines(asked, medians, parameters, self.options.seed)
        kept = [each.kept[mode] for each, mode in zip(medians, modes, strict=True)]
        maps = {"exact": HeadMap.of(kept, asked.profile, asked.heads_by)}
        maps |= {} if beside is None else beside.within(asked.most_kept)
        if asked.method not in maps:
            maps[asked.method] = baselines.named(asked.method, asked.most_kept)
        if asked.query_saving:
            apart, key_heads = asked.profile.distance(asked.distance), asked.profile.key_heads
            maps = {
                name: fewer_queries(each, apart, key_heads, asked.most_used, parameters.most_work)
                for name, each in maps.items()
            }
        chosen, details = maps[asked.method], dict[str, object]()
        if asked.query_saving:
            details["used_heads"] = sum(len(set(row)) for row in chosen.representative.tolist())
        if asked.swaps and beside is not None:
            chosen, details["swaps"] = with_swaps(asked, chosen, parameters, self.options.seed, self.deadline)
        details["baselines"] = {name: _row(asked, each) for name, each in maps.items() if name != asked.method}
        if fronts is not None:
            details |= {
                "front": _front(asked, fronts, parameters),
                "baseline_fronts": _baseline_fronts(asked, baselines, parameters),
            }
        claim = claim_of(
            asked.error(chosen), bound, self.options, solver="highs", version=load_backend("highs"),
            wall_s=self.deadline.elapsed_s, unit="error", source="knapsack" if fronts is not None else "relaxation",
            otherwise=StopReason.TIME_LIMIT if self.deadline.has_struck else StopReason.FINISHED,
        )  # fmt: skip
        milps = sum(each.milps for each in medians)
        decision = chosen.decision
        details = {**_details(asked, chosen, decision), "milps": milps, **details}
        return Plan(claim, to_schedule(asked, chosen), details, decision=decision)


def _rounded(asked: Problem, medians: Medians) -> list[int]:
    """The place of each layer's count, in a time that grows with their number."""
    choice = Relaxation(items_of(medians, "errors")).at(asked.most_kept)
    assert choice is not None, "one head a layer is within the budget"
    return [int(mode) for mode in choice.modes]


def _measured(asked: Problem) -> Medians:
    """The profile's own heads of each layer and count, charged what was measured: nothing is left to prove."""
    rises = asked.profile.rises
    assert rises is not None, "the question was refused without"
    return tuple(LayerMedians(row, row, rises.heads(layer)) for layer, row in enumerate(rises.filled))


def _details(asked: Problem, chosen: HeadMap, decision: HeadDecision) -> dict[str, object]:
    kept_heads = int(chosen.counts.sum())
    return {
        "method": asked.method,
        "saved": 1 - asked.cache_bytes(kept_heads) / asked.full_cache_bytes,
        "most_saving": asked.most_saving,
        "kept_heads": kept_heads,
        "mean_kept": float(chosen.counts.mean()),
        "cache_bytes": asked.cache_bytes(kept_heads),
        "full_cache_bytes": asked.full_cache_bytes,
        "full_step_s": step_s(asked, _all(asked)),
        "errors": {name: chosen.error(asked.profile.distance(name)) for name in ("output", "scores")},
        **_rises(asked, chosen),
        **data_of(decision),
    }


def _rises(asked: Problem, chosen: HeadMap) -> dict[str, object]:
    """By layer, the rise of the loss whose sum is the error, and how many of them lie between measured ones."""
    if asked.distance != LOSS or asked.profile.rises is None:
        return {}
    is_measured = asked.profile.rises.is_measured[range(asked.profile.layers), chosen.counts - 1]
    return {"rises": asked.rises(chosen).tolist(), "interpolated": int((~is_measured).sum())}


def _all(asked: Problem) -> HeadMap:
    everything = [range(asked.profile.key_heads)] * asked.profile.layers
    return HeadMap.of(everything, asked.profile, asked.heads_by)


def _row(asked: Problem, chosen: HeadMap) -> dict[str, object]:
    return {"error": asked.error(chosen), "kept_heads": int(chosen.counts.sum()), "step_s": step_s(asked, chosen)}


def _front(asked: Problem, fronts: Fronts, parameters: Parameters) -> list[list[float]]:
    """Pairs of saving and least error, from nothing saved on."""
    kept, errors = fronts.found.budgets[::-1], fronts.found.errors[::-1]
    points = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), parameters.front_points)).round().astype(int))
    return [[_saving(asked, kept[k]), float(errors[k])] for k in points]


def _baseline_fronts(asked: Problem, baselines: Baselines, parameters: Parameters) -> dict[str, list[list[float]]]:
    """For each baseline, pairs of what it saves and its error at some budgets."""
    layers = asked.profile.layers
    found: dict[str, list[list[float]]] = {}
    for most_kept in np.unique(
        np.linspace(layers, layers * asked.profile.key_heads, parameters.baseline_points).astype(int)
    )[::-1].tolist():
        for name, each in baselines.within(most_kept).items():
            found.setdefault(name, []).append([_saving(asked, int(each.counts.sum())), asked.error(each)])
    return found


def _saving(asked: Problem, kept: float) -> float:
    return 0.5 * (1 - float(kept) / (asked.profile.layers * asked.profile.key_heads))


def with_swaps(
    asked: Problem, chosen: HeadMap, parameters: Parameters, seed: int, deadline: Deadline
) -> tuple[HeadMap, dict[str, object]]:
    """The map after swaps, and an account of them. Raises `InputError` for a model that isn't the profile's."""
    from gapless.torch.heads.models import load_language_model, sequences_of
    from gapless.torch.heads.swaps import swapped

    profile = asked.profile
    model = load_language_model(asked.model, seed)
    here = len(model.layers), model.layers[0].heads, model.layers[0].key_heads
    there = profile.layers, profile.heads, profile.key_heads
    if here != there:
        raise InputError(f"model: must have the profile's {there} layers, heads and key heads, got {here}")
    tokens = model.tokens(asked.calibration)
    sequences = sequences_of(tokens, parameters.swap_sequence, parameters.swap_sequences, "calibration")
    distance = profile.distance(asked.distance)

    def row_of(layer: int, kept: Sequence[int]) -> tuple[Ints, float]:
        row = nearest(distance[layer], kept, profile.group)
        return row, float(distance[layer, range(profile.heads), row].sum())

    found = swapped(model, chosen.kept, profile.key_heads, row_of, sequences, asked.swaps, lambda: deadline.over)
    account: dict[str, object] = {
        "tried": found.tried,
        "made": found.made,
        "loss_before": found.loss_before,
        "loss_after": found.loss_after,
        "error_before": chosen.error(distance),
    }
    return (chosen if not found.made else HeadMap.of(found.kept, profile, asked.distance)), account


def pinned(problem: Problem) -> Mapping[str, object]:
    """The distance, which `auto` chooses by what is measured for a method: sums of two measures are no two errors."""
    return {"distance": problem.distance}


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """The error of the plan's map, inf where it keeps more than the budget. Raises `InputError` for one that isn't."""
    chosen = map_of(plan)
    return problem.error(chosen) if int(chosen.counts.sum()) <= problem.most_kept else math.inf
