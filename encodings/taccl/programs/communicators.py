"""Communicators: which ranks a runtime has to call a plan with, and the plan that each of them carries out.

Groups that share no rank, and forward nothing for each other, are communicators of their own: ranks are numbered by
their position, and the collective is the named one. Else the plan is a collective of one's own among all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gapless.io.collective_file import collective_data
from gapless.io.groups_file import groups_from
from gapless.process_groups import Group
from gapless.schedule import Ragged, Schedule
from gapless.topologies.links import Links
from gapless.topologies.topology import Topology

__all__ = ["Communicator", "communicators", "write_each"]


@dataclass(frozen=True)
class Communicator:
    """What some ranks carry out, numbered by position: a schedule, and the problem section that goes with it."""

    ranks: tuple[int, ...]
    schedule: Schedule
    description: Mapping[str, Any]

    def is_like(self, other: Communicator) -> bool:
        """Whether both do the same, event by event."""
        mine, theirs = self.schedule, other.schedule
        return self.description == other.description and len(mine) == len(theirs) and all(
            np.array_equal(one, another)
            for one, another in zip(_events(mine), _events(theirs), strict=True)
        )  # fmt: skip


def communicators(schedule: Schedule, description: Mapping[str, Any]) -> list[Communicator]:
    """One for each group, or one of all ranks, in which the groups' collectives are one collective of its own."""
    whole = [Communicator(tuple(range(schedule.topology.device_count)), schedule, description)]
    if "groups" not in description:
        return whole
    groups = groups_from(description, "plan")
    if not groups.is_disjoint:
        return whole
    group_of = np.full(schedule.topology.device_count, -1)
    for number, group in enumerate(groups.groups):
        group_of[list(group.ranks)] = number
    ends = [group_of[end[schedule.place]] for end in (schedule.topology.link_source, schedule.topology.link_target)]
    if (ends[0] != ends[1]).any() or (ends[0] < 0).any():
        return whole
    parts, first, found = description["chunks_per_rank"], 0, list[Communicator]()
    for number, (group, chunks) in enumerate(zip(groups.groups, groups.chunk_counts, strict=True)):
        found.append(_part(schedule, group, np.flatnonzero(ends[0] == number), chunks * parts, first))
        first += found[-1].schedule.graph.tensor_count
    return found


def write_each(
    path: str,
    schedule: Schedule,
    description: Mapping[str, Any],
    write: Callable[[str, Schedule, Mapping[str, Any]], str],
) -> str:
    """A file for each communicator, or one where they all do the same; returns what they are, and which is whose.

    `write(path, schedule, description)` writes one, and says what it is.
    """
    found = communicators(schedule, description)
    if len(found) == 1:
        (only,) = found
        line = write(path, only.schedule, only.description)
        if "groups" not in description:
            return line
        if len(only.ranks) < schedule.topology.device_count:
            return f"{line}; for a communicator of {_named(only.ranks)}"
        return f"{line}; for a communicator of all {len(only.ranks)} ranks: groups share ranks, or others forward"
    if all(each.is_like(found[0]) for each in found[1:]):
        line = write(path, found[0].schedule, found[0].description)
        return f"{line}; one file for all {len(found)} communicators of {len(found[0].ranks)} ranks, which do the same"
    lines = []
    for number, each in enumerate(found):
        where = Path(path).with_name(f"{Path(path).stem}.group{number}{Path(path).suffix}")
        lines.append(f"{where}: {write(str(where), each.schedule, each.description)}; for {_named(each.ranks)}")
    return "\n".join([f"{len(found)} files, one for the communicator of each group", *lines])


def _part(schedule: Schedule, group: Group, events: np.ndarray[Any, Any], chunks: int, first: int) -> Communicator:
    """The events of one group, its chunks being numbered from `first` on."""
    collective, chunk_bytes = group.among_itself(chunks), int(schedule.graph.size_bytes[first])
    topology, place = _among(schedule.topology, group)
    description = {**collective_data(collective), "chunk_bytes": chunk_bytes, "topology": schedule.topology.name}
    moves = schedule.moves.take(events)
    some = replace(
        schedule,
        graph=collective.graph(chunk_bytes),
        topology=topology,
        kind=schedule.kind[events],
        start_s=schedule.start_s[events],
        end_s=schedule.end_s[events],
        place=place[schedule.place[events]],
        op=schedule.op[events],
        implementation=schedule.implementation[events],
        reduces=schedule.reduces[events],
        moves=Ragged(moves.start, moves.values - first),
        freed_tensor=schedule.freed_tensor.take(events),
        freed_device=schedule.freed_device.take(events),
    )
    return Communicator(group.ranks, some, description)


def _among(topology: Topology, group: Group) -> tuple[Topology, np.ndarray[Any, Any]]:
    """The group's ranks and the links between them; and the new number of each link, -1 for others."""
    position = {rank: k for k, rank in enumerate(group.ranks)}
    kept = [k for k, link in enumerate(topology.links) if {link.source, link.target} <= position.keys()]
    place = np.full(len(topology.links), -1)
    place[kept] = np.arange(len(kept))
    links = [topology.links[k] for k in kept]
    numbered = [replace(link, source=position[link.source], target=position[link.target]) for link in links]
    nodes = {node: k for k, node in enumerate(dict.fromkeys(topology.node_of_device[rank] for rank in group.ranks))}
    return Topology(
        name=topology.name,
        node_of_device=tuple(nodes[topology.node_of_device[rank]] for rank in group.ranks),
        links=Links.of(numbered),
        resources=topology.resources,
        congestion=topology.congestion,
    ), place


def _events(schedule: Schedule) -> tuple[np.ndarray[Any, Any], ...]:
    """What makes two schedules do the same, in order of the starts."""
    source, target = (end[schedule.place] for end in (schedule.topology.link_source, schedule.topology.link_target))
    order = np.lexsort((target, source, np.round(schedule.start_s, 12)))
    moves = schedule.moves.take(order)
    return source[order], target[order], schedule.reduces[order], moves.start, moves.values


def _named(ranks: tuple[int, ...]) -> str:
    if ranks == tuple(range(len(ranks))):
        return f"ranks 0-{len(ranks) - 1}"
    return f"ranks {', '.join(map(str, ranks[:16]))}{', ...' if len(ranks) > 16 else ''}"
