"""After a failure: the machine that is left, the collective among the ranks left, and which ranks are cut off."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np

from gapless.encodings.taccl.question import Question
from gapless.errors import InputError
from gapless.ir.collective import ROOTED, Collective, collective_by_name
from gapless.ir.process_groups import Group, Groups
from gapless.topologies.ports.failures import ranks_listed
from gapless.topologies.topology import Topology

__all__ = ["among_those_left", "check_reach", "has_failures", "machine_left"]


def has_failures(asked: Question) -> bool:
    """Whether the question is for a machine after a failure."""
    return any(value is not None for value in (asked.without_links, asked.without_ranks, asked.degraded))


def machine_left(machine: Topology, asked: Question) -> Topology:
    """The machine without what the question names as gone, and slower where it is degraded."""
    return machine.without(asked.without_links or (), _gone(asked), _shares(asked))


def _gone(asked: Question) -> tuple[int, ...]:
    ranks = asked.without_ranks or ()
    return (ranks,) if isinstance(ranks, int) else tuple(ranks)


def _shares(asked: Question) -> dict[str, float]:
    """What is degraded, and the share of its bandwidth that it has left. Raises `InputError` for what isn't a share."""
    found = {}
    for entry in asked.degraded or ():
        name, _, share = entry.rpartition(":")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"degraded: must be names with a share of the bandwidth, such as 3-7:0.5, got {entry!r}")
    return found


def among_those_left(
    collective: str | Collective | Groups, asked: Question, machine: Topology, size_bytes: int
) -> str | Collective | Groups:
    """The collective without the ranks that have left: among the others as a group, or in each of its groups.

    Raises `InputError` where its root or target has left, a collective of one's own needs a rank that has, or fewer
    than two ranks are left.
    """
    gone = _gone(asked)
    if not gone:
        return collective
    if isinstance(collective, Groups):
        left = [found for group in collective.groups if (found := _group_left(group, gone)) is not None]
        if not left:
            raise InputError(f"without_ranks: must leave two ranks of a group or more, got {ranks_listed(gone)}")
        return replace(collective, groups=tuple(left))
    if isinstance(collective, Collective):
        needed = [rank for rank in gone if collective.inputs[rank] or collective.outputs[rank]]
        if needed:
            raise InputError(
                f"without_ranks: must be ranks that the collective does without, got {needed[0]}; "
                "name a collective, or describe it without the rank"
            )
        return collective
    everybody = tuple(range(machine.device_count))
    if len(gone) > machine.device_count - 2:
        raise InputError(f"without_ranks: must leave two ranks or more, got {ranks_listed(gone)}")
    first = asked.root if asked.root is not None or collective not in ROOTED else 0
    for name, rank in (("root", asked.root), ("target", asked.target)):
        if rank is not None and not 0 <= rank < machine.device_count:
            raise InputError(f"{name} must be in 0..{machine.device_count - 1}, got {rank}")
    if asked.root is None and first in gone:
        first = next(rank for rank in everybody if rank not in gone)
    last = asked.target
    if last is None and collective == "sendrecv":
        last = max(rank for rank in everybody if rank not in gone)
    kept = _group_left(Group(collective, everybody, size_bytes, first, last), gone)
    return Groups((kept,)) if kept is not None else collective


def _group_left(group: Group, gone: tuple[int, ...]) -> Group | None:
    """A group without the ranks that have left; None where fewer than two stay."""
    left = tuple(rank for rank in group.ranks if rank not in gone)
    if len(left) < 2:
        return None
    places = {}
    for name in ("root", "target"):
        place = getattr(group, name)
        if place is not None and place < len(group.ranks):
            rank = group.ranks[place]
            if rank in gone:
                raise InputError(f"{name}: must be a rank that is left, got rank {rank}, which has left")
            place = left.index(rank)
        places[name] = place
    return replace(group, ranks=left, **places)


def check_reach(
    topology: Topology, collective: str | Collective | Groups, root: int | None, target: int | None
) -> None:
    """Raise `InputError` that says which ranks can't reach which, where the collective needs it."""
    count = topology.device_count
    if isinstance(collective, Groups):
        asked = collective.joined(count)
    elif isinstance(collective, str):
        parts = count if collective == "alltoall" else 1
        asked = collective_by_name(collective, count, parts, root, target)
    else:
        asked = collective
    cut = _needed(asked) & ~_reached(topology)
    if not cut.any():
        return
    source = int(np.argmax(cut.any(axis=1)))
    apart = np.flatnonzero(cut[source])
    alike = np.flatnonzero((cut[:, apart]).all(axis=1))
    raise InputError(
        f"topology {topology.name!r}: falls apart: {_ranks(alike.tolist())} can't reach {_ranks(apart.tolist())}; "
        "leave out the ranks too, or give back a link"
    )


def _needed(collective: Collective) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """`needed[r, t]`: whether rank t must get something of rank r, bool."""
    count, chunks = collective.rank_count, collective.chunk_count
    has, wants = (np.zeros((count, chunks), dtype=np.bool_) for _ in range(2))
    for table, buffers in ((has, collective.inputs), (wants, collective.outputs)):
        for rank, buffer in enumerate(buffers):
            table[rank, list(buffer)] = True
    needed = (has.astype(np.float32) @ wants.T.astype(np.float32)) > 0
    np.fill_diagonal(needed, False)
    return np.asarray(needed)


def _reached(topology: Topology) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """`reached[r, t]`: whether there is a path from rank r to rank t, bool: by strongly connected components."""
    condensed = nx.condensation(topology.to_networkx())
    reached = np.zeros((topology.device_count, topology.device_count), dtype=np.bool_)
    for part in condensed:
        behind = [part, *nx.descendants(condensed, part)]
        targets = [rank for one in behind for rank in condensed.nodes[one]["members"]]
        reached[np.ix_(list(condensed.nodes[part]["members"]), targets)] = True
    return reached


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_listed(ranks)}"
