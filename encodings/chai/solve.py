"""The solver of head maps: the best heads of a layer for every count, then the counts of all layers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless import __version__
from gapless.encodings.chai.baselines import Baselines
from gapless.encodings.chai.head_map import HeadMap, Ints, map_of, nearest
from gapless.encodings.chai.lowering import step_s, to_schedule
from gapless.encodings.chai.medians import LayerMedians, guessed, price_bounds, proven_at, ranked
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem
from gapless.encodings.chai.question import LOSS
from gapless.errors import InputError
from gapless.model.knapsack import Front, Items, Relaxation, front
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.question.parameters import parameters_of
from gapless.solution import PROVEN_GAP, Solution, Status, StopReason, claim_of
from gapless.solvers.registry import load_backend
from gapless.system import Plan

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["cost", "pinned", "solve", "with_swaps"]


@dataclass(frozen=True)
class _Fronts:
    """The least errors of every number of kept key heads: as found, and bounds on them."""

    found: Front
    bounds: Front

    def gap(self, most_kept: int) -> float:
        """How far the error within so many kept key heads may be above the least, relative to it."""
        choice, bound = self.found.at(most_kept), self.bounds.at(most_kept)
        assert choice is not None, "one head a layer is within the budget"
        assert bound is not None, "one head a layer is within the budget"
        return relative_gap(choice.error, min(bound.bound, choice.error)) or 0.0


def solve(asked: Problem, options: SolveOptions, given: Any = None) -> Plan:
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
    search = _Search(asked, options, parameters, deadline)
    search.offer()
    search.run()
    return search.plan()


class _Search:
    """Key heads for every layer and count: cheap ones, then good ones, then bounds on those that the budget allows."""

    def __init__(self, asked: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline) -> None:
        self.asked, self.options, self.parameters, self.deadline = asked, options, parameters, deadline
        self.medians = _measured(asked) if asked.distance == LOSS else [ranked(cost) for cost in asked.cost]

    def run(self) -> None:
        """As far as time allows."""
        if self.asked.distance == LOSS:
            return
        layers = self.asked.profile.layers
        self._price(max(1, self.parameters.price_rounds // 10))
        self.offer()
        for layer, cost in enumerate(self.asked.cost):
            if self.deadline.over:
                break
            good = guessed(cost)
            self.medians[layer] = replace(good, bounds=np.maximum(good.bounds, self.medians[layer].bounds))
            self._say(f"layer {layer + 1} of {layers}")
            if layer in (layers // 2, layers - 1):
                self.offer()
        self._price(self.parameters.price_rounds)
        self._prove()

    def offer(self) -> None:
        """What is known so far is a plan."""
        if self.options.on_plan is not None:
            medians = tuple(self.medians)
            error = sum(float(each.errors[mode]) for each, mode in zip(medians, self._rounded(), strict=True))
            self.options.on_plan(error, lambda: self._plan(medians, None))

    def _rounded(self, medians: Sequence[LayerMedians] | None = None) -> list[int]:
        """The place of each layer's count, in a time that grows with their number."""
        choice = Relaxation(_items(self.medians if medians is None else medians, "errors")).at(self.asked.most_kept)
        assert choice is not None, "one head a layer is within the budget"
        return [int(mode) for mode in choice.modes]

    def _price(self, rounds: int) -> None:
        """Bounds from prices, at what one more kept head gains within the budget."""
        found, most_kept = Relaxation(_items(self.medians, "errors")), self.asked.most_kept
        fewer = max(most_kept - 1, self.asked.profile.layers)
        price = found.bound_at(fewer) - found.bound_at(fewer + 1)
        errors = np.array([each.errors for each in self.medians])
        cost = np.array(self.asked.cost)
        bounds = price_bounds(cost, errors, price, rounds, self.deadline)
        for layer, each in enumerate(self.medians):
            held = np.minimum(np.maximum(each.bounds, bounds[layer]), each.errors)
            self.medians[layer] = replace(each, bounds=held)

    def _prove(self) -> None:
        """Exact key heads for the counts that the best plan, or the best that the bounds allow, has."""
        while not self.deadline.over:
            fronts = _fronts(self.medians, self.parameters)
            if fronts.gap(self.asked.most_kept) <= max(self.options.gap, PROVEN_GAP):
                return
            chosen = [fronts.bounds.at(self.asked.most_kept), fronts.found.at(self.asked.most_kept)]
            pairs = [pair for each in chosen if each is not None for pair in enumerate(each.modes.tolist())]
            open_pairs = [pair for pair in dict.fromkeys(pairs) if not self.medians[pair[0]].is_proven(pair[1] + 1)]
            if not open_pairs:
                return
            for number, (layer, mode) in enumerate(open_pairs):
                if self.deadline.remaining_s <= 0:
                    return
                self._say(f"proof {number + 1} of {len(open_pairs)}")
                cost = self.asked.cost[layer]
                self.medians[layer] = proven_at(cost, self.medians[layer], mode + 1, self.deadline)

    def _say(self, phase: str) -> None:
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(self.deadline.elapsed_s, None, None, phase))

    def plan(self) -> Plan:
        """The plan at the end; what is beside it is left out where there is no time for it."""
        if self.deadline.over:
            return self._plan(self.medians, None)
        self.offer()
        rounds, seed = self.parameters.k_means_rounds, self.options.seed
        return self._plan(self.medians, Baselines(self.asked, self.medians, rounds, seed))

    def _plan(self, medians: Sequence[LayerMedians], beside: Baselines | None) -> Plan:
        """The plan of what is known; with `beside`, the baselines, the fronts and the swaps too."""
        asked, parameters = self.asked, self.parameters
        fronts = None if beside is None else _fronts(medians, parameters)
        if fronts is None:
            modes = self._rounded(medians)
            bound = Relaxation(_items(medians, "bounds")).bound_at(asked.most_kept)
        else:
            best, least = fronts.found.at(asked.most_kept), fronts.bounds.at(asked.most_kept)
            assert best is not None, "one head a layer is within the budget"
            assert least is not None, "one head a layer is within the budget"
            modes, bound = best.modes.tolist(), least.bound
        baselines = beside or Baselines(asked, medians, parameters.k_means_rounds, self.options.seed)
        kept = [each.kept[mode] for each, mode in zip(medians, modes, strict=True)]
        maps = {"exact": HeadMap.of(kept, asked.profile, asked.heads_by)}
        if beside is not None:
            maps |= baselines.within(asked.most_kept)
        elif asked.method != "exact":
            maps[asked.method] = baselines.named(asked.method, asked.most_kept)
        chosen, details = maps[asked.method], dict[str, Any]()
        if asked.swaps and beside is not None:
            chosen, details["swaps"] = with_swaps(asked, chosen, parameters, self.options.seed, self.deadline)
        details["baselines"] = {name: _row(asked, each) for name, each in maps.items() if name != asked.method}
        if fronts is not None:
            details |= {
                "front": _front(asked, fronts, parameters),
                "baseline_fronts": _baseline_fronts(asked, baselines, parameters),
            }
        milps = sum(each.milps for each in medians)
        claim = claim_of(
            asked.error(chosen), bound, self.options, solver="highs", version=load_backend("highs"),
            wall_s=self.deadline.elapsed_s, unit="error", source="knapsack" if fronts is not None else "relaxation",
            otherwise=StopReason.TIME_LIMIT if self.deadline.has_struck else StopReason.FINISHED,
        )  # fmt: skip
        return Plan(
            claim,
            to_schedule(asked, chosen),
            {**_details(asked, chosen), "milps": milps, **details},
            decision=chosen.decision,
        )


def _measured(asked: Problem) -> list[LayerMedians]:
    """The profile's own heads of each layer and count, charged what was measured: nothing is left to prove."""
    rises = asked.profile.rises
    assert rises is not None, "the question was refused without"
    return [LayerMedians(row, row, rises.heads(layer)) for layer, row in enumerate(rises.filled)]


def _items(medians: Sequence[LayerMedians], name: str) -> Items:
    counts = np.arange(1, len(medians[0].errors) + 1, dtype=np.float64)
    values = np.array([getattr(each, name) for each in medians])
    return Items(np.broadcast_to(counts, values.shape), values)


def _fronts(medians: Sequence[LayerMedians], parameters: Parameters) -> _Fronts:
    return _Fronts(*(front(_items(medians, name), parameters.most_work) for name in ("errors", "bounds")))


def _details(asked: Problem, chosen: HeadMap) -> dict[str, Any]:
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
        "kept": [list(heads) for heads in chosen.kept],
        "representatives": chosen.representative.tolist(),
    }


def _rises(asked: Problem, chosen: HeadMap) -> dict[str, Any]:
    """By layer, the rise of the loss whose sum is the error, and how many of them lie between measured ones."""
    if asked.distance != LOSS or asked.profile.rises is None:
        return {}
    is_measured = asked.profile.rises.is_measured[range(asked.profile.layers), chosen.counts - 1]
    return {"rises": asked.rises(chosen).tolist(), "interpolated": int((~is_measured).sum())}


def _all(asked: Problem) -> HeadMap:
    everything = [range(asked.profile.key_heads)] * asked.profile.layers
    return HeadMap.of(everything, asked.profile, asked.heads_by)


def _row(asked: Problem, chosen: HeadMap) -> dict[str, Any]:
    return {
        "error": asked.error(chosen),
        "kept_heads": int(chosen.counts.sum()),
        "step_s": step_s(asked, chosen),
    }


def _front(asked: Problem, fronts: _Fronts, parameters: Parameters) -> list[list[float]]:
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
) -> tuple[HeadMap, dict[str, Any]]:
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
    account = {
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
