"""Frames: the events of a schedule as records, one a row, for tables."""

from __future__ import annotations

from typing import Any

from gapless.ir.schedule import EventKind, Schedule

__all__ = ["event_records"]


def event_records(schedule: Schedule) -> list[dict[str, Any]]:
    """A dictionary for each event, in the order of the schedule.

    `kind`: compute, transfer or collective. `start_s`, `end_s`. `what`: the op, or the tensors that move. `where`: the
    engine's device and name, or the link. `implementation`: of the op, None for transfers. `reduces`: whether what
    moves is added to what is there.
    """
    topology, graph = schedule.topology, schedule.graph
    records = []
    for event in schedule.events():
        moves = event.kind is EventKind.TRANSFER
        tensors = ", ".join(graph.tensor_name(tensor) for tensor in event.moves)
        engine = "" if moves else "{}.{}".format(*topology.engines[event.place])
        records.append({
            "kind": event.kind.name.lower(),
            "start_s": event.start_s,
            "end_s": event.end_s,
            "what": tensors if moves else graph.ops[event.op].name,
            "where": topology.link_name(event.place) if moves else engine,
            "implementation": None if moves else event.implementation,
            "reduces": event.reduces,
        })  # fmt: skip
    return records
