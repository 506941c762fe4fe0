"""The least budget that a plan is found for: nested checkpoints at ever smaller budgets, then a search from them.

On graphs that aren't too large, constraint programmes then narrow what is between it and what is proven, from both
sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gapless.checker import check
from gapless.encodings.monet.bounds.fitting import fits
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.parameters import Fitting, Nesting, Parameters
from gapless.encodings.monet.search.annealing import Annealing
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.nested import nested_checkpoints, smallest_variants
from gapless.options import Deadline, SolveOptions
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["least_nested", "least_searched", "narrowed", "needed_bytes"]

_UNIT_S = 1e9
"""Of the price of memory that is too much: next to it, time is for nothing."""
_CLOSE = 1.002
"""Budgets are halved until what fits is within this of what doesn't."""


def needed_bytes(graph: TrainingGraph, decisions: Decisions) -> int | None:
    """The least budget that decisions fit, in the memory rows and in the replay; None if they can't be executed."""
    judged, replayed = evaluate(graph, decisions), check(to_schedule(graph, decisions))
    if judged.faults or not replayed.valid:
        return None
    return max(judged.peak_bytes, int(max(replayed.peak_bytes)))


def least_nested(
    graph: TrainingGraph, between_bytes: tuple[int, int], nesting: Nesting, stop: Callable[[], bool]
) -> tuple[int, Decisions] | None:
    """Nested checkpoints that need the fewest bytes between two budgets, and how many; None where none was found."""
    variants, (low, high) = smallest_variants(graph), between_bytes
    tried, best = high, None
    while not stop() and (best is None or high > max(low * _CLOSE, low + 1)):
        decisions = nested_checkpoints(graph, tried, variants, tried, nesting)
        needed = None if decisions is None else needed_bytes(graph, decisions)
        if decisions is not None and needed is not None and (best is None or needed < best[0]):
            best = needed, decisions
        if best is None:
            return None
        low, high = (tried, high) if decisions is None else (low, min(tried, needed or tried))
        tried = (low + high) // 2
    return best


def least_searched(
    graph: TrainingGraph,
    bound_bytes: int,
    starts: Iterable[KeepSet],
    parameters: Parameters,
    seed: int,
    stop: Callable[[], bool],
) -> Iterator[int]:
    """What keep-sets need that annealing finds from each start, each time with an equal part of the steps."""
    starts = list(starts)
    keeper = Keeper(graph, bound_bytes)
    for keep in starts:
        annealing = Annealing(keeper, _UNIT_S, seed, parameters.cooling, parameters.moves)
        annealing.round(keep, parameters.least_budget_steps // len(starts), stop)
        if annealing.least is not None:
            needed = needed_bytes(graph, keeper.decide(annealing.least.keep))
            if needed is not None:
                yield needed


def narrowed(
    graph: TrainingGraph, between_bytes: tuple[int, int], fitting: Fitting, options: SolveOptions
) -> tuple[int, int]:
    """What every plan needs and what one was found for, by whether any plan fits budgets between the two given.

    First the proof is moved up as far as it goes, then the plan down to what is still open.
    """
    (bound, found), left, ceiling = between_bytes, fitting.budgets, between_bytes[1]
    deadline, options = Deadline(options), replace(options, step_limit=fitting.steps)
    for is_proof in (True, False):
        floor, ceiling = (bound - 1, found) if is_proof else (ceiling, found)
        while ceiling - floor > max(fitting.tolerance * floor, 1) and left > 0 and not deadline.over:
            middle, left = (floor + ceiling) // 2, left - 1
            tried = fits(graph, middle, options)
            if tried.decisions is not None:
                found = min(found, needed_bytes(graph, tried.decisions) or found)
            if tried.is_possible is False:
                bound = max(bound, middle + 1)
            is_below = tried.is_possible is False or (tried.is_possible is None and not is_proof)
            floor, ceiling = (middle, ceiling) if is_below else (floor, middle)
    return bound, found
