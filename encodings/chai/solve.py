"""The solver of head maps: the best heads of a layer for every count, then the counts of all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gapless import __version__
from gapless.budget import Front, Items, front
from gapless.encodings.chai.baselines import Baselines
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.lowering import step_s, to_schedule
from gapless.encodings.chai.medians import LayerMedians, guessed, proven
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import LOSS, Problem
from gapless.encodings.chai.swaps import with_swaps
from gapless.options import Deadline, Progress, SolveOptions
from gapless.parameters import parameters_of
from gapless.solution import Solution, Status, StopReason, claim_of
from gapless.solvers.registry import load_backend
from gapless.system import Plan, named

__all__ = ["solve"]


@dataclass(frozen=True)
class _Fronts:
    """The least errors of every number of kept key heads: as found, and bounds on them."""

    found: Front
    bounds: Front
    medians: Sequence[LayerMedians]

    def kept(self, most_kept: int) -> tuple[list[tuple[int, ...]], float] | None:
        """The key heads of each layer within so many in all, and a bound on their error."""
        choice, bound = self.found.at(most_kept), self.bounds.at(most_kept)
        if choice is None or bound is None:
            return None
        return [each.kept[mode] for each, mode in zip(self.medians, choice.modes.tolist(), strict=True)], bound.bound


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
        named("gapless.torch.heads.library:transformers")  # missing: known before there is work to lose
    medians = _measured(asked) if asked.distance == LOSS else [guessed(cost) for cost in asked.cost]
    baselines = Baselines(asked, medians, parameters.k_means_rounds, options.seed)

    def plan(is_last: bool) -> Plan:
        return _plan(asked, options, deadline, parameters, _fronts(medians, parameters), baselines, is_last)

    if options.on_plan is not None:
        first = plan(False)
        options.on_plan(first.solution.objective or 0.0, lambda: first)
    for layer, cost in enumerate(asked.cost):
        medians[layer] = proven(cost, medians[layer], deadline)
        if options.on_progress is not None:
            phase = f"layer {layer + 1} of {asked.profile.layers}"
            options.on_progress(Progress(deadline.elapsed_s, None, None, phase))
    return plan(True)


def _measured(asked: Problem) -> list[LayerMedians]:
    """The profile's own heads of each layer and count, charged what was measured: nothing is left to prove."""
    rises = asked.profile.rises
    assert rises is not None, "the question was refused without"
    return [LayerMedians(row, row, rises.heads(layer)) for layer, row in enumerate(rises.filled)]


def _fronts(medians: Sequence[LayerMedians], parameters: Parameters) -> _Fronts:
    counts = np.arange(1, len(medians[0].errors) + 1, dtype=np.float64)
    cost = np.broadcast_to(counts, (len(medians), len(counts)))
    found, bounds = (
        front(Items(cost, np.array([getattr(each, name) for each in medians])), parameters.most_work)
        for name in ("errors", "bounds")
    )
    return _Fronts(found, bounds, medians)


def _plan(
    asked: Problem, options: SolveOptions, deadline: Deadline, parameters: Parameters, fronts: _Fronts,
    baselines: Baselines, is_last: bool,
) -> Plan:  # fmt: skip
    """The plan of what is known; swaps are for the last one."""
    best = fronts.kept(asked.most_kept)
    assert best is not None, "one head a layer is within the budget"
    maps = {"exact": HeadMap.of(best[0], asked.profile, asked.heads_by), **baselines.within(asked.most_kept)}
    chosen, swaps = maps[asked.method], {}
    if asked.swaps and is_last:
        chosen, account = with_swaps(asked, chosen, parameters, options.seed, deadline)
        swaps = {"swaps": account}
    claim = claim_of(
        asked.error(chosen), best[1], options, solver="highs", version=load_backend("highs"),
        wall_s=deadline.elapsed_s, unit="error", source="knapsack",
        otherwise=StopReason.TIME_LIMIT if deadline.has_struck else StopReason.FINISHED,
    )  # fmt: skip
    details = {
        "method": asked.method,
        "saved": 1 - asked.cache_bytes(int(chosen.counts.sum())) / asked.full_cache_bytes,
        "most_saving": asked.most_saving,
        "kept_heads": int(chosen.counts.sum()),
        "mean_kept": float(chosen.counts.mean()),
        "cache_bytes": asked.cache_bytes(int(chosen.counts.sum())),
        "full_cache_bytes": asked.full_cache_bytes,
        "full_step_s": step_s(asked, _all(asked)),
        "errors": {name: chosen.error(asked.profile.distance(name)) for name in ("output", "scores")},
        **_rises(asked, chosen),
        **swaps,
        "milps": sum(each.milps for each in fronts.medians),
        "kept": [list(heads) for heads in chosen.kept],
        "representatives": chosen.representative.tolist(),
        "baselines": {name: _row(asked, each) for name, each in maps.items() if name != asked.method},
        "front": _front(asked, fronts, parameters),
        "baseline_fronts": _baseline_fronts(asked, baselines, parameters),
    }
    return Plan(claim, to_schedule(asked, chosen), details)


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
