"""What a schedule on one device holds, event by event."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gapless.ir.schedule import Schedule

__all__ = ["live_bytes"]


def live_bytes(schedule: Schedule, order: Iterable[int]) -> NDArray[np.int64]:
    """Bytes held while each event runs, workspace included, in the given order of events; int64, shape (n,)."""
    graph, size = schedule.graph, schedule.graph.size_bytes.tolist()
    there = set(graph.initial.tensors.tolist())
    held = sum(size[tensor] for tensor in there)
    live = []
    for row in order:
        op = graph.ops[int(schedule.op[row])]
        impl = op.implementations[int(schedule.implementation[row])]
        gone, made = there.intersection(impl.overwrites), set(op.outputs) - there
        held += sum(size[tensor] for tensor in made) - sum(size[tensor] for tensor in gone)
        live.append(held + impl.workspace_bytes)
        there = (there - gone) | made
        freed = there.intersection(schedule.freed_tensor[row].tolist())
        held -= sum(size[tensor] for tensor in freed)
        there -= freed
    return np.array(live, dtype=np.int64)
