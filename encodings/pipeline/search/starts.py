"""Starts: plans that are there already, as orders of a question that they answer too.

A plan for less memory is one for more. It is timed with the room of its own question as well as with that of the new
one, so that it is never slower than it was, whatever waits for room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.policies import Choice, curve_of
from gapless.encodings.pipeline.cut.search import fixed_cut
from gapless.encodings.pipeline.order.orders import Candidate, Order, number
from gapless.encodings.pipeline.order.stages import STAGE_INPUT, Kind, Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.start import Start
from gapless.encodings.pipeline.schedules.baselines import whole
from gapless.io.formats.torch_pipeline import Action

__all__ = ["started"]

_KIND = {"F": Kind.FORWARD, "I": Kind.BACKWARD, "B": Kind.BACKWARD, "W": Kind.WEIGHT}


def started(problem: Problem, start: Start) -> tuple[Choice, Candidate] | None:
    """What a start comes to in a question, and its choice of what recomputes; None where it is no answer to it."""
    cut, fixed = start.decision.cut, fixed_cut(problem)
    if problem.cut == "bottleneck" or (fixed is not None and cut != fixed) or not _suits(problem, start):
        return None
    splits = any(action.kind != "B" for row in start.decision.actions for action in row if action.kind != "F")
    choice = _choice(problem, start.decision, splits)
    if choice is None:
        return None
    found = [made for question in _rooms(problem, start) if (made := _timed(question, start.decision, choice, splits))]
    best = min(found, key=lambda made: made.rank, default=None)
    return None if best is None else (choice, best)


def _rooms(problem: Problem, start: Start) -> list[Problem]:
    """The question, and with the start's own limit where that is tighter."""
    most, own = problem.in_flight or math.inf, start.in_flight or math.inf
    is_alike = (problem.in_flight is None) == (start.in_flight is None)  # else messages count in one of them alone
    is_tighter = is_alike and own <= most and start.memory_bytes <= problem.memory_bytes
    return [replace(problem, memory_bytes=start.memory_bytes, in_flight=start.in_flight)] * is_tighter + [problem]


def _suits(problem: Problem, start: Start) -> bool:
    """Whether the start has the layers, ranks, micro-batches and placement of the question."""
    asked = (problem.profile.layer_count, problem.ranks, problem.micro_batches, problem.placement, problem.chunks)
    return asked == (start.layers, start.ranks, start.micro_batches, start.placement, start.chunks)


def _choice(problem: Problem, decision: PipelineDecision, splits: bool) -> Choice | None:
    """The policy of each stage; None where the question leaves it another."""
    count = problem.stage_count
    names = decision.policies or ("",) * count
    asked = [(STAGE_INPUT,) if stage in decision.recomputed else tuple(names[stage].split()) for stage in range(count)]
    curves = curve_of(_of_least_work(problem), decision.cut, splits)
    found = [next((one for one in curve if one.layers == own), None) for curve, own in zip(curves, asked, strict=True)]
    chosen = tuple(one for one in found if one is not None)
    return chosen if len(chosen) == count else None


def _timed(problem: Problem, decision: PipelineDecision, choice: Choice, splits: bool) -> Candidate | None:
    """The decision's order with the stages of a question; None where it doesn't hold there."""
    is_known = splits in problem.shapes(any(policy.recomputes for policy in choice))
    stages = stages_of(_of_least_work(problem), decision.cut, choice, splits if is_known else not splits)
    stages = stages if is_known or splits else whole(stages)
    if stages.splits != splits:
        return None
    if problem.work:
        work = np.array(problem.work) / min(problem.work)
        feed = decision.feed or tuple(range(len(work)))
        stages = replace(stages, work=work[list(feed)], feed=feed)
    order = _order(problem, decision, stages)
    timeline = None if order is None else timed(stages, order)
    if order is None or timeline is None or not has_room(stages, order, timeline):
        return None
    spoiling = spoiling_of(problem, decision.cut, stages.crosses)
    if spoiling is not None and spoiling.total(order) > problem.error_budget:
        return None
    return Candidate(decision.method, decision.cut, stages, order, timeline)


def _of_least_work(problem: Problem) -> Problem:
    """The question whose costs stages multiply by the work of each micro-batch."""
    return problem.relaxed if problem.work else problem


def _order(problem: Problem, decision: PipelineDecision, stages: Stages) -> Order | None:
    """In numbers of ops; None where an op is missing, or a mode isn't offered."""
    numbers = {
        (kind, *stages.names(stage, micro_batch)): number(stages, kind, stage, micro_batch)
        for kind in (list(Kind) if stages.splits else list(Kind)[:2])
        for stage in range(stages.count)
        for micro_batch in range(stages.micro_batches)
    }

    def numbered(actions: Sequence[Action]) -> Ints:
        found = [numbers.get((_KIND[each.kind], each.stage, each.micro_batch), -1) for each in actions]
        return np.array(found, dtype=np.int64)

    sequences = tuple(numbered(row) for row in decision.actions)
    if not np.array_equal(np.sort(np.concatenate(sequences)), np.arange(len(numbers))):
        return None
    names = {name: mode for mode, name in enumerate(problem.mode_names)}
    hop_modes = np.zeros((stages.count - 1, stages.micro_batches), dtype=np.int64)
    for each in decision.hop_modes:
        hop_modes[each.hop, each.micro_batch] = names.get(each.mode, -1)
    sum_modes = [names.get(name, -1) for name in decision.sum_modes] or [0] * stages.count
    if hop_modes.min(initial=0) < 0 or min(sum_modes) < 0:
        return None
    messages = tuple(_messages(stages, numbered(queue)) for queue in decision.queues)
    cells = frozenset(numbered(sorted(decision.celled)).tolist())
    return Order(sequences, hop_modes, np.array(sum_modes, dtype=np.int64), messages, cells=cells)


def _messages(stages: Stages, ops: Ints) -> Ints:
    """The messages that these ops make."""
    kind_stage, micro_batch = np.divmod(ops, stages.micro_batches)
    kind, stage = np.divmod(kind_stage, stages.count)
    return np.asarray((kind * (stages.count - 1) + stage - kind) * stages.micro_batches + micro_batch)
