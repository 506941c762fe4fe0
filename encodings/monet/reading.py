"""From a schedule back to the decisions or the keep-set that it follows: the inverse of `lowering`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapless.encodings.monet.decisions import Decisions, implementations_of
from gapless.encodings.monet.retention import stored_for
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.errors import InputError
from gapless.graph import Implementation
from gapless.profiles.training import graph as training
from gapless.profiles.training.graph import BackwardNode, TrainingGraph
from gapless.schedule import Schedule

__all__ = ["decisions_of", "keep_set_of"]


def decisions_of(graph: TrainingGraph, schedule: Schedule) -> Decisions:
    """The decisions of a schedule of this graph, with each tensor kept only as long as it is still read.

    They cost what the schedule does. Of implementations that take the same time, the one of least workspace is named.
    Raises `InputError` where the schedule runs a node as the graph can't.
    """
    nodes, stages = len(graph.forward), len(graph.backward) + 1
    runs, in_place, reads = (np.zeros((stages, nodes), dtype=np.bool_) for _ in range(3))
    forward_implementation = np.zeros((stages, nodes), dtype=np.int64)
    variant, backward_implementation = np.zeros((2, stages - 1), dtype=np.int64)
    stage = 0
    for number in range(len(schedule)):
        event = schedule.event(number)
        op = schedule.graph.ops[event.op]
        chosen, read = op.implementations[event.implementation], op.reads(event.implementation)
        if op.kind == "backward":
            place = op.outputs[0] - 1 - nodes
            node = graph.backward[place]
            variant[place], backward_implementation[place] = _backward_choice(graph, node, read, chosen.duration_s)
            reads[place + 1, list(node.variants[variant[place]].needs)] = True
            stage = place + 2
        elif op.outputs:
            place = op.outputs[0] - 1
            runs[stage, place] = True
            in_place[stage, place] = _runs_in_place(chosen)
            forward_implementation[stage, place] = _forward_choice(graph, place, stage, chosen)
            reads[stage, [tensor - 1 for tensor in read if tensor]] = True
        stage = max(stage, int(op.kind == "loss"))
    return Decisions(stored_for(reads, runs), runs, in_place, forward_implementation, variant, backward_implementation)


def keep_set_of(graph: TrainingGraph, schedule: Schedule) -> KeepSet:
    """The keep-set that a schedule of this graph follows, or comes closest to: where another search can begin."""
    nodes = len(graph.forward)
    held: set[int] = set()
    made_at: dict[int, int] = {}  # the stage of a recomputation whose tensor nobody has read yet
    stage, lead = 1, np.zeros(nodes, dtype=np.int64)
    kept, again = np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.int64)
    variant = np.zeros(len(graph.backward), dtype=np.int64)
    is_forward = True
    for number in range(len(schedule)):
        event = schedule.event(number)
        op = schedule.graph.ops[event.op]
        impl = op.implementations[event.implementation]
        for tensor in op.reads(event.implementation):
            if tensor in made_at:
                lead[tensor - 1] = max(lead[tensor - 1], stage - made_at.pop(tensor))
        if op.kind == "backward":
            place = op.outputs[0] - 1 - nodes
            stage = place + 2
            variant[place] = _backward_choice(
                graph, graph.backward[place], op.reads(event.implementation), impl.duration_s
            )[0]
        elif op.kind == "forward" and not is_forward:
            again[op.outputs[0] - 1] += 1
            made_at[op.outputs[0]] = stage
        held |= set(op.outputs)
        held -= {*impl.overwrites, *(tensor for tensor, _ in event.frees)}
        if op.kind == "loss" and is_forward:
            kept[[tensor - 1 for tensor in held]] = True
            is_forward = False
    return KeepSet(kept, again > np.where(kept, 0, 1), variant, lead)


def _runs_in_place(chosen: Implementation) -> bool:
    """An intermediate that is made with a creator in place overwrites nothing itself, but is labelled so."""
    return chosen.name.split(", ")[0] == "in place"


def _forward_choice(graph: TrainingGraph, place: int, stage: int, chosen: Implementation) -> int:
    return _of_duration(
        implementations_of(graph, place, stage, _runs_in_place(chosen)), chosen.duration_s, graph.forward[place].name
    )


def _backward_choice(
    graph: TrainingGraph, node: BackwardNode, reads: Sequence[int], duration_s: float
) -> tuple[int, int]:
    """The variant that reads these tensors, apart from the gradients, and its implementation that takes so long."""
    needs = {tensor - 1 for tensor in reads if tensor <= graph.loss}
    for number, candidate in enumerate(node.variants):
        if set(candidate.needs) == needs and any(impl.duration_s == duration_s for impl in candidate.implementations):
            return number, _of_duration(candidate.implementations, duration_s, node.name)
    raise InputError(f"the schedule is of another graph: backward node {node.name!r} can't run so")


def _of_duration(impls: Sequence[training.Implementation], duration_s: float, name: str) -> int:
    fitting = [number for number, impl in enumerate(impls) if impl.duration_s == duration_s]
    if not fitting:
        raise InputError(f"the schedule is of another graph: {name!r} can't run in {duration_s} s")
    return min(fitting, key=lambda number: impls[number].workspace_bytes)
