"""Failures: what of a machine is named as gone or degraded, by pairs of ranks and by what links share.

`3-7`: all links between two ranks, both ways. `3>7` (or `3->7`): those of one direction. Anything else names resources:
`node1:nic2:out` is one, `node1:nic2` both of its sides, `nic2` the NIC of that number in every node. So a name stands
for all resources that have its parts, one after the other; what holds one of them is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.topologies.links import Links
from gapless.topologies.ports.switch_groups import SwitchGroup

__all__ = ["changed_name", "factors_of", "groups_left", "held_of", "links_named", "ranks_listed", "resources_named"]

_PAIR = re.compile(r"(\d{1,9})\s*(->|>|-)\s*(\d{1,9})")
_SHOWN = 8


def links_named(field: str, names: Sequence[str], links: Links, resources: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each link is one of those that are named, bool of shape (links,).

    Raises `InputError` that opens with `field` for a name that no link and no resource has.
    """
    found = np.zeros(len(links), dtype=np.bool_)
    for name in names:
        pair = _PAIR.fullmatch(name.strip())
        found |= held_of(links, resources_named(field, name, resources)) if pair is None else _joining(
            field, name, (int(pair[1]), int(pair[3])), pair[2] == "-", links
        )  # fmt: skip
    return found


def resources_named(field: str, name: str, resources: Sequence[str]) -> NDArray[np.int64]:
    """The resources that have all parts of a name, one after the other: numbers, int64.

    Raises `InputError` where there is none.
    """
    wanted = f":{name.strip()}:"
    rows = np.flatnonzero([wanted in f":{resource}:" for resource in resources])
    if len(rows):
        return np.asarray(rows, dtype=np.int64)
    parts = [part for resource in resources for part in (resource, resource.rpartition(":")[0]) if part]
    known = f"; {suggestion(name, parts) or _shown(resources)}" if resources else ", which has none"
    raise InputError(
        f"{field}: must be links (3-7, or 3>7 for one direction) or resources of the topology, got {name!r}{known}"
    )


def held_of(links: Links, resources: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each link holds one of some resources, bool of shape (links,)."""
    held = np.zeros(len(links), dtype=np.bool_)
    holder = np.repeat(np.arange(len(links)), np.diff(links.held_start))
    held[holder[np.isin(links.held, resources)]] = True
    return held


def factors_of(degraded: Mapping[str, float], links: Links, resources: Sequence[str]) -> NDArray[np.float64]:
    """The share of its bandwidth that each link has left, float of shape (links,); of several the smallest.

    Raises `InputError` for an unknown name, and a share that isn't in (0, 1].
    """
    shares = np.ones(len(links))
    for name, share in degraded.items():
        if not 0 < share <= 1:
            rule = f"must be a share of the bandwidth that is left, in (0, 1], got {share:g} for {name}"
            raise InputError(
                f"degraded: {rule}" + (f"; {share:g} times slower is {1 / share:.4g}" if share > 1 else "")
            )
        named = links_named("degraded", [name], links, resources)
        shares[named] = np.minimum(shares[named], share)
    return shares


def groups_left(
    groups: Sequence[SwitchGroup], links: Links, gone: NDArray[np.bool_], shares: NDArray[np.float64]
) -> Iterator[SwitchGroup]:
    """The groups of switches that add up, without the ranks that lack a link to another of their group.

    Of these, the one that lacks most leaves first. `shares`: of bandwidth that the links have left; an operation is as
    slow as the slowest of its links.
    """
    for group in groups:
        place = {rank: number for number, rank in enumerate(group.ranks)}
        inside = np.isin(links.source, group.ranks) & np.isin(links.target, group.ranks)
        lost = np.zeros((len(place), len(place)), dtype=np.bool_)
        for row in np.flatnonzero(inside & gone).tolist():
            lost[place[int(links.source[row])], place[int(links.target[row])]] = True
        lost |= lost.T
        kept = np.ones(len(place), dtype=np.bool_)
        while lost.any():
            worst = int(np.argmax(lost.sum(axis=1)))
            kept[worst] = lost[worst] = lost[:, worst] = False
        if kept.sum() > 1:
            rows = np.flatnonzero(kept).tolist()
            ranks = tuple(group.ranks[row] for row in rows)
            among = np.isin(links.source, ranks) & np.isin(links.target, ranks) & ~gone
            beta_s = group.reduction.beta_s_per_byte / float(shares[among].min(initial=1.0))
            ports = tuple(group.ports[row] for row in rows) if group.ports else ()
            yield replace(group, ranks=ranks, ports=ports, reduction=replace(group.reduction, beta_s_per_byte=beta_s))


def changed_name(name: str, links: Sequence[str], ranks: Sequence[int], degraded: Mapping[str, float]) -> str:
    """`torus:8x8 without 3-7, rank 5; nic2 at 0.5 of its bandwidth`."""
    gone = [*links, *([f"rank{'s' if len(ranks) > 1 else ''} {ranks_listed(ranks)}"] if ranks else [])]
    slow = [f"{one} at {share:g} of its bandwidth" for one, share in degraded.items()]
    return "; ".join([f"{name} without {', '.join(gone)}" if gone else name, *slow])


def ranks_listed(ranks: Sequence[int]) -> str:
    """`0-4, 6, 8-63`."""
    numbers = np.unique(np.asarray(ranks, dtype=np.int64))
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs if len(run))


def _joining(
    field: str, name: str, ends: tuple[int, int], both_ways: bool, links: Links
) -> NDArray[np.bool_]:  # fmt: skip
    """The links from one rank to another, and back if `both_ways`."""
    first, last = ends
    found = (links.source == first) & (links.target == last)
    if both_ways:
        found |= (links.source == last) & (links.target == first)
    if not found.any():
        to = ranks_listed(links.target[links.source == first].tolist())
        known = f"rank {first} has links to {to}" if to else f"rank {first} has no links"
        raise InputError(f"{field}: must be links of the topology, got {name!r}; {known}")
    return np.asarray(found)


def _shown(names: Sequence[str]) -> str:
    return f"known are {', '.join(names[:_SHOWN])}" + (", ..." if len(names) > _SHOWN else "")
