"""From choices to a schedule in the graph IR, on one device of the mesh, whose memory is the limit on usage.

Time points at which nodes start or end are instants a second apart; an event lasts from each to the next. It writes the
tensors of the nodes that start there, and frees at its end those whose interval ends then. The ledger beside it has the
costs: a node's where it starts, an edge's where the later of its two nodes does.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.instances.instance import Instance
from gapless.ir.graph import Budget
from gapless.ir.schedule import Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Topology

__all__ = ["COST", "named_choices", "to_schedule"]

COST = "cost"
"""The ledger."""

Ints = NDArray[np.int64]


def to_schedule(instance: Instance, choices: Ints) -> Schedule:
    """The schedule of a choice for each node, int64, shape (nodes,)."""
    is_live = instance.intervals[:, 0] < instance.intervals[:, 1]
    times = np.unique(np.concatenate([instance.intervals[:, 0], instance.intervals[is_live, 1]]))
    first = np.searchsorted(times, instance.intervals[:, 0])
    end = np.where(is_live, np.searchsorted(times, instance.intervals[:, 1]), first + 1)
    spent = _spent(instance, choices, first, len(times))
    builder = ScheduleBuilder()
    starting, ending = _by_time(first, len(times)), _by_time(end, len(times) + 1)
    for node, (usages, choice) in enumerate(zip(instance.usages, choices.tolist(), strict=True)):
        builder.tensor(f"{node}:{choice}", int(usages[choice]) if is_live[node] else 0)
    count = int(end.max(initial=0))
    for at in range(count):
        spends = ((0, float(spent[at])),) if spent[at] else ()
        frees = [(node, 0) for node in ending[at + 1]]
        builder.compute(f"time {times[at]}", "time", 0, float(at), 1.0, (), starting[at], frees, spends=spends)
    topology = Topology("device of the mesh", (0,), memory_bytes=(instance.usage_limit,))
    return builder.schedule(topology, instance.name, (Budget(COST, float(sum(spent))),), as_listed=True)


def _by_time(times: Ints, count: int) -> list[list[int]]:
    """The nodes at each time."""
    order = np.argsort(times, kind="stable")
    cuts = np.searchsorted(times[order], np.arange(count + 1)).tolist()
    return [order[start:stop].tolist() for start, stop in pairwise(cuts)]


def _spent(instance: Instance, choices: Ints, first: Ints, count: int) -> list[int]:
    """What is paid at each time, in whole numbers of any size."""
    spent, taken = [0] * count, choices.tolist()
    for node, (at, cost) in enumerate(zip(first.tolist(), instance.costs, strict=True)):
        spent[at] += int(cost[taken[node]])
    later = first[instance.edges].max(axis=1, initial=0).tolist()
    for at, (node, other), table in zip(later, instance.edges.tolist(), instance.tables, strict=True):
        spent[at] += int(table[taken[node], taken[other]])
    return spent


def named_choices(schedule: Schedule) -> list[int] | None:
    """The choice of each node by the names of a schedule's tensors; None where they aren't of this system."""
    found = []
    for node, name in enumerate(schedule.graph.tensor_names):
        head, colon, choice = name.partition(":")
        if not (colon and head == str(node) and choice.isdecimal()):
            return None
        found.append(int(choice))
    return found
