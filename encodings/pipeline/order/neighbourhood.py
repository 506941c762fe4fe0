"""Large-neighbourhood search: the ops of a window of time go into a new order on some ranks, all others keep theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from gapless.array_types import Mask
from gapless.encodings.pipeline.order.exact.window import Window
from gapless.encodings.pipeline.order.offload import enough
from gapless.encodings.pipeline.order.orders import Order, Timeline
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.ticks import in_ticks
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.parameters import Parameters
from gapless.options import Deadline
from gapless.solvers.registry import solve_model

__all__ = ["improved"]


_REPLAYS = 4
"""What a round does to every op of the order, in replays of it: two, paths to its end, and what is kept."""
_CELLED = 2
"""By how much smaller windows are where each pair of ops may be in a cell, which is a choice of its own."""
_ROUNDING = 1e-9
"""Sums in another order differ by less than this share."""


def improved(
    stages: Stages, order: Order, goal_s: float, seed: int, deadline: Deadline, parameters: Parameters
) -> Iterator[Order]:
    """Each order that is better than all before it, until one takes `goal_s`, the rounds are over, or the time is.

    Each round replays the whole order, so that large ones have fewer: as many as replay `heuristic_ops`. Where steps
    follow one another, windows shorten spans and the step in turns. With links to hosts windows keep as much on ranks
    as the order does.
    """
    random, here = np.random.default_rng(seed), timed(stages, order)
    assert here is not None, "a search starts from an order that can be run"
    ticked, best = in_ticks(stages, here.cost_s).stages, here
    replays = max(1, parameters.heuristic_ops // max(1, _REPLAYS * sum(map(len, order.sequences))))
    for turn in range(min(parameters.rounds, replays)):
        if deadline.over or best.cost_s <= goal_s * (1 + _ROUNDING):
            return
        of_turn = ticked if stages.steps == 1 else replace(ticked, steps=1, by_span=turn % 2 == 0)
        if stages.offloads:
            of_turn = enough(ticked, partial(_fits, order=order))
        other = _reordered(of_turn, order, random, deadline, parameters)
        timeline = None if other is None else timed(stages, other)
        if other is None or timeline is None or not has_room(stages, other, timeline):
            continue
        if timeline.cost_s <= here.cost_s * (1 + _ROUNDING):
            order, here = other, timeline
        if here.rank < best.rank:
            best = here
            yield order


def _fits(stages: Stages, order: Order) -> bool:
    """Whether an order can be played without copies to hosts."""
    timeline = timed(stages, order)
    return timeline is not None and has_room(stages, order, timeline)


def _reordered(
    ticked: Stages, order: Order, random: np.random.Generator, deadline: Deadline, parameters: Parameters
) -> Order | None:
    """The order with the best that CP-SAT finds for a random window, None where no order of the window matters."""
    timeline = timed(ticked, order)
    if timeline is None:  # ticks are rounded down, so that messages may lack room that they had
        return None
    timeline = _whole(timeline)
    most_ops = parameters.window_ops // (_CELLED if ticked.has_cells else 1)
    window = Window(ticked, order, timeline, *_stretch(ticked, timeline, random, most_ops))
    if window.least >= timeline.cost_s:
        return None
    options = replace(deadline.stage(), threads=1, gap=0.0, step_limit=parameters.window_steps, on_progress=None,
                      on_plan=None, seed=int(random.integers(2**31)))  # fmt: skip
    ordered = window.model()
    values = solve_model(ordered, options, "cpsat", window.values()).values
    return None if values is None else window.order_of(values)


def _whole(timeline: Timeline) -> Timeline:
    """With times that are whole, as those of the least span needn't be: all rounded down, what was a whole number apart
    still is."""
    start_s = np.floor(timeline.start_s)
    end_s = start_s + np.round(timeline.end_s - timeline.start_s)
    return replace(timeline, start_s=start_s, end_s=end_s, sent_s=np.floor(timeline.sent_s))


def _stretch(
    stages: Stages, timeline: Timeline, random: np.random.Generator, most_ops: int
) -> tuple[float, float, Mask]:
    """The first and the last start of a random window, and the ranks that are reordered, neighbours, bool of shape
    (P,): about `most_ops` ops together, or all that these ranks have.
    """
    width = int(random.integers(min(2, stages.ranks), stages.ranks + 1))
    first = int(random.integers(stages.ranks - width + 1))
    is_free = (np.arange(stages.ranks) >= first) & (np.arange(stages.ranks) < first + width)
    start_s = timeline.start_s.reshape(-1, stages.count, stages.micro_batches)
    starts = np.sort(start_s[:, is_free[stages.rank]].reshape(-1))
    at = int(random.integers(-(most_ops // 2), max(len(starts) - most_ops // 2, 1)))
    return float(starts[max(at, 0)]), float(starts[min(at + most_ops, len(starts)) - 1]), is_free
