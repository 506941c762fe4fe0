"""What a plan stands beside: one format for all, keys shared alone, one window for all, modes that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from gapless.encodings.cache.choice import Options
from gapless.encodings.cache.fronts import Fronts
from gapless.encodings.cache.parameters import Parameters
from gapless.encodings.cache.problem import Problem
from gapless.encodings.cache.question import UNIFORM
from gapless.profiles.cache.layout import FORMATS
from gapless.profiles.cache.modes import LayerModes

__all__ = ["BASELINES", "Layers", "baseline"]

Layers = tuple[LayerModes, ...]


def baseline(name: str, problem: Problem, parameters: Parameters, seed: int) -> Layers | None:
    """The modes of one of `BASELINES` within the budget; None where it needs more bytes."""
    found = BASELINES[name](problem, parameters, seed)
    return None if found is None or problem.bytes_of(found) > problem.cache_bytes else found


def _uniform(name: str, problem: Problem, parameters: Parameters, seed: int) -> Layers:
    count = problem.profile.key_heads
    return tuple(replace(each, keys=(name,) * count, values=(name,) * count) for each in problem.full)


def _share(problem: Problem, parameters: Parameters, seed: int) -> Layers | None:
    """The exact choice with sharing alone: the p-medians of each layer, and their numbers."""
    fronts = Fronts.of(Options(replace(problem, modes=("sharing",), method="exact")), parameters.most_work)
    assert fronts is not None, "nothing ends it"
    choice = fronts.best(problem.cache_bytes)
    return None if choice is None else fronts.layers_of(choice)


def _window(problem: Problem, parameters: Parameters, seed: int) -> Layers | None:
    """The longest one that fits, in all layers."""
    for window in sorted(problem.profile.windows, reverse=True):
        found = tuple(replace(each, window=window) for each in problem.full)
        if problem.bytes_of(found) <= problem.cache_bytes:
            return found
    return None


def _random(problem: Problem, parameters: Parameters, seed: int) -> Layers | None:
    """An option and formats are drawn for each layer; then heads drawn one by one take fewer bits, until they fit.

    Where that isn't enough, layers drawn one by one take their smallest option.
    """
    rng, options = np.random.default_rng(seed), Options(problem)
    offered = len(FORMATS) if "formats" in problem.modes else 1
    chosen = [layer[int(rng.integers(len(layer)))] for layer in options.layers]
    formats = [rng.integers(offered, size=len(each.items)) for each in chosen]
    heads = [(layer, item) for layer, each in enumerate(formats) for item in range(len(each))]
    turns = [heads[each] for each in rng.permutation(len(heads))] * offered

    def made() -> Layers:
        return tuple(each.with_formats(modes.tolist()) for each, modes in zip(chosen, formats, strict=True))

    spent = problem.bytes_of(made())
    for layer, item in turns:
        if spent <= problem.cache_bytes:
            break
        cost, mode = chosen[layer].items.cost[item], formats[layer][item]
        if mode + 1 < offered:
            formats[layer][item] = mode + 1
            spent += int(cost[mode + 1] - cost[mode])
    for layer in rng.permutation(len(chosen)).tolist():
        if problem.bytes_of(made()) <= problem.cache_bytes:
            break
        chosen[layer] = options.least(layer)
        formats[layer] = chosen[layer].items.cost.argmin(axis=1)
    return made()


BASELINES: dict[str, Callable[[Problem, Parameters, int], Layers | None]] = {
    **{name: partial(_uniform, name) for name in UNIFORM}, "share": _share, "window": _window, "random": _random,
}  # fmt: skip
