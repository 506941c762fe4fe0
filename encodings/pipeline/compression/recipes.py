"""Optimus-CC's recipes (Song et al., 2023) followed: as baselines beside a plan, and as plans of their own by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gapless.encodings.pipeline.compression.modes import Spoiling, spoiling_of
from gapless.encodings.pipeline.compression.rules import PUBLISHED, RECIPES, Recipe
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.order.orders import Candidate, Order
from gapless.encodings.pipeline.order.stages import Cut, Kind, Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole

__all__ = ["epilogue", "follow", "followed", "recipe_orders"]


def epilogue(stages: Stages, order: Order) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Hops whose gradients arrive when their receiver has no forward left, bool of shape (S - 1, M)."""
    chosen = np.zeros(order.hop_modes.shape, dtype=np.bool_)
    per_kind = stages.count * stages.micro_batches
    for sequence in order.sequences:
        kinds, rest = np.divmod(sequence, per_kind)
        last = int(np.flatnonzero(kinds == Kind.FORWARD)[-1])
        after = rest[last + 1 :][kinds[last + 1 :] == Kind.BACKWARD]
        stage, micro_batch = np.divmod(after, stages.micro_batches)
        sent = stage < stages.count - 1
        chosen[stage[sent], micro_batch[sent]] = True
    return chosen & stages.crosses[:, None]


def follow(problem: Problem, cut: Cut, recipe: Recipe, hop_mode: int = 1, sum_mode: int = 1) -> tuple[Candidate, float]:
    """What a recipe makes of a cut, whether or not memory is enough, and what it spoils. `hop_mode`, `sum_mode`:
    numbers of the table's modes, 1 for the first.
    """
    replicas = replace(problem.replicas, fuses_embedding=recipe.fuses_embedding)
    problem = replace(problem, replicas=replicas, method="auto")
    stages = whole(stages_of(problem, cut, splits=problem.shapes()[-1]))
    order = _order(stages, recipe, hop_mode, sum_mode)
    timeline, spoiling = timed(stages, order, needs_room=False), spoiling_of(problem, cut, stages.crosses)
    assert timeline is not None, "1F1B has no deadlock"
    return Candidate(recipe.schedule, cut, stages, order, timeline), 0.0 if spoiling is None else spoiling.total(order)


def _order(stages: Stages, recipe: Recipe, hop_mode: int, sum_mode: int) -> Order:
    """The schedule's, with the modes of what the recipe compresses."""
    plain = BASELINES[recipe.schedule].order(stages)
    everything = np.broadcast_to(stages.crosses[:, None], plain.hop_modes.shape)
    hops = {"none": np.zeros_like(everything), "epilogue": epilogue(stages, plain), "all": everything}[recipe.hops]
    sums = stages.rank < round(recipe.share * stages.ranks)
    return replace(plain, hop_modes=np.where(hops, hop_mode, 0), reduce_modes=np.where(sums, sum_mode, 0))


def _choices(recipe: Recipe, modes: int) -> Iterator[tuple[int, int]]:
    """Modes of hops and sums, by number; those of what goes plain don't matter."""
    for hop in range(1, 1 + modes) if recipe.hops != "none" else (1,):
        for total in range(1, 1 + modes) if recipe.share else (1,):
            yield hop, total


def recipe_orders(problem: Problem, recipe: Recipe, stages: Stages, spoiling: Spoiling | None) -> list[Order]:
    """A recipe's orders of these stages within the error budget: one for each choice of modes."""
    own = whole(stages)
    orders = [_order(own, recipe, *modes) for modes in _choices(recipe, len(problem.modes))]
    return [order for order in orders if spoiling is None or spoiling.allows(order)]


def followed(problem: Problem, cut: Cut) -> dict[str, tuple[Candidate, float]]:
    """Each recipe of the paper that suits the question, in the modes in which it is fastest within the error budget."""
    schedule = {"linear": "1f1b", "looped": "interleaved-1f1b"}.get(str(problem.placement))
    if schedule is None or problem.compression is None:
        return {}
    found = {}
    for name in (schedule + added for added in PUBLISHED):
        recipe = RECIPES.get(name, Recipe(schedule))
        tried = [follow(problem, cut, recipe, *modes) for modes in _choices(recipe, len(problem.modes))]
        allowed = [pair for pair in tried if pair[1] <= problem.error_budget]
        if allowed:
            best, error = min(allowed, key=lambda pair: (pair[0].rank, pair[1]))
            found[name] = replace(best, method=name), error
    return found
