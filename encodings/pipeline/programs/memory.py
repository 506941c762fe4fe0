"""What ranks hold in truth: what micro-batches keep, and messages until they are sent or used."""

from __future__ import annotations

import numpy as np

from gapless.array_types import Floats
from gapless.checker import check
from gapless.checker.timeline import RELATIVE_TOLERANCE
from gapless.encodings.pipeline.compression.modes import Spoiling, compressor_bytes
from gapless.encodings.pipeline.order.orders import Order, Timeline, durations
from gapless.encodings.pipeline.order.room import held_bytes as order_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.lowering import to_schedule

__all__ = ["held_bytes"]


def held_bytes(
    problem: Problem, stages: Stages, order: Order, timeline: Timeline, spoiling: Spoiling | None = None
) -> Floats:
    """The most that each rank holds at once besides its states, float of shape (P,); compressors' errors are in it.

    A message is held by its sender from the op that makes it until it has arrived, and by its receiver from when it
    leaves until the op that uses it ends. Never less than the replay finds, at most a little more: a gradient counts
    from the start of its op, what is decoded or run again before it included. Where something takes no time, instants
    don't say what comes first: then it is what the replay finds.
    """
    if _has_ties(stages, order, timeline):
        replayed = check(to_schedule(problem, stages, order, timeline, spoiling))
        states = np.bincount(stages.rank, weights=stages.state_bytes, minlength=stages.ranks)
        return np.array(replayed.peak_bytes[: stages.ranks], dtype=np.float64) - states  # hosts stand behind them
    peaks = order_bytes(stages, order.hop_modes, timeline)
    if stages.embedding_s:  # at the end, when nothing else is kept
        ends = stages.rank[[0, -1]]
        peaks[ends] = np.maximum(peaks[ends], problem.profile.embedding_bytes)
    return peaks + np.bincount(stages.rank, compressor_bytes(problem, stages, order), stages.ranks)


def _has_ties(stages: Stages, order: Order, timeline: Timeline) -> bool:
    """Whether an op, a part of one, or a send that blocks takes no time."""
    shortest_s = [durations(stages, order).min(), stages.forward_s.min()]
    if stages.recomputes.any():
        shortest_s.append((stages.backward_s - stages.rerun_s)[stages.recomputes].min())
        shortest_s.append(stages.rerun_s[stages.recomputes].min())
    hops = np.flatnonzero(stages.crosses)
    used = [(mode, hop) for hop in hops.tolist() for mode in np.unique(order.hop_modes[hop]).tolist()]
    for mode, hop in used:
        if mode:
            shortest_s += [stages.encode_s[mode, hop], stages.decode_s[mode, hop], stages.backward_s.min()]
        if stages.blocks:
            shortest_s += [stages.hop_s[mode, hop], stages.forward_hop_s[hop]]
    return bool(min(shortest_s) <= RELATIVE_TOLERANCE * timeline.step_s)
