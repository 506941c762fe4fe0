"""The rules by which Optimus-CC compresses (Song et al., 2023), as baselines by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.order.baselines import one_f_one_b, whole
from gapless.encodings.pipeline.order.stages import Cut, Stages
from gapless.encodings.pipeline.order.timeline import Candidate, Kind, Order, timed
from gapless.encodings.pipeline.problem import Problem

__all__ = ["RECIPES", "Recipe", "epilogue", "follow", "followed"]


@dataclass(frozen=True)
class Recipe:
    """1F1B, and what of it is compressed.

    `hops`: none, the epilogue's (section 5.2), or all. `fuses_embedding`: section 6. `stages`: the share of the stages
    whose sums are compressed, from the first one on (section 7).
    """

    hops: str = "none"
    fuses_embedding: bool = False
    stages: float = 0.0


RECIPES: dict[str, Recipe] = {
    "1f1b": Recipe(),
    "1f1b+cb": Recipe("epilogue"),
    "1f1b+naive-cb": Recipe("all"),
    "1f1b+cb+fe": Recipe("epilogue", True),
    "1f1b+cb+fe+sc75": Recipe("epilogue", True, 0.75),
    "1f1b+cb+fe+dp": Recipe("epilogue", True, 1.0),
}
"""By the letters of the paper's tables: CB, compressed backpropagation; FE, fused embedding; SC75, selective stages."""


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
    problem = replace(problem, replicas=replace(problem.replicas, fuses_embedding=recipe.fuses_embedding))
    stages = whole(stages_of(problem, cut))
    plain = one_f_one_b(stages)
    everything = np.broadcast_to(stages.crosses[:, None], plain.hop_modes.shape)
    hops = {"none": np.zeros_like(everything), "epilogue": epilogue(stages, plain), "all": everything}[recipe.hops]
    sums = np.arange(stages.count) < round(recipe.stages * stages.count)
    order = Order(plain.sequences, np.where(hops, hop_mode, 0), np.where(sums, sum_mode, 0))
    timeline, spoiling = timed(stages, order), spoiling_of(problem, cut, stages.crosses)
    assert timeline is not None, "1F1B has no deadlock"
    return Candidate("1f1b", cut, stages, order, timeline), 0.0 if spoiling is None else spoiling.total(order)


def followed(problem: Problem, cut: Cut) -> dict[str, tuple[Candidate, float]]:
    """Each recipe that suits the question, in the modes in which it is fastest within the error budget."""
    if problem.placement != "linear" or problem.compression is None:
        return {}
    modes, found = range(1, 1 + len(problem.modes)), {}
    for name, recipe in RECIPES.items():
        tried = [follow(problem, cut, recipe, hop, total) for hop in modes for total in modes]
        allowed = [pair for pair in tried if pair[1] <= problem.error_budget]
        if allowed:
            best, error = min(allowed, key=lambda pair: (pair[0].rank, pair[1]))
            found[name] = replace(best, method=name), error
    return found
