"""Process groups: collectives among some ranks of a machine, one or several at once, as a single collective.

A group's ranks are given by number (`0-7,16-23`) or by the axes along which a framework lays its ranks out, the fastest
first (`tp=8,dp=4`): the groups are along the last axis, one for each place on the others. `tp=8` are ranks 0-7, 8-15
and so on, `tp=8,dp=4` are 0, 8, 16, 24 and 1, 9, 17, 25 and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import prod

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.ir.collective import COLLECTIVES, MOST_CHUNKS, ROOTED, Collective, collective_by_name
from gapless.topologies.links import Links
from gapless.topologies.topology import Topology
from gapless.units import format_bytes, parse_bytes

__all__ = ["Group", "Groups", "along_axes", "groups_of", "read_group"]

_SPLITS = 16
"""The smallest share is cut into at most so many chunks, so that the others are nearly whole numbers of these."""
_CLOSE = 0.01
"""The part by which all shares together may be rounded up, for fewer chunks."""
_MOST_UNLIKE = 256
"""How many times as many bytes one share may have as another: so many chunks of the largest go with one."""


@dataclass(frozen=True)
class Group:
    """A named collective among `ranks`, of which number k is at position k, for buffers of `size_bytes`.

    `root`, `target`: positions, where the collective has them. Raises `InputError` for ranks that stand twice.
    """

    collective: str
    ranks: tuple[int, ...]
    size_bytes: int
    root: int | None = None
    target: int | None = None

    def __post_init__(self) -> None:
        if len(self.ranks) < 2 or len(set(self.ranks)) != len(self.ranks):
            raise InputError(f"group: ranks must be two or more, each once, got {_listed(self.ranks)}")

    def among_itself(self, chunks: int = 1) -> Collective:
        """The collective of a communicator that has no other ranks."""
        count = len(self.ranks)
        cut = chunks * count if self.collective == "alltoall" else chunks
        return collective_by_name(self.collective, count, cut, self.root, self.target)

    @property
    def share_bytes(self) -> int:
        """What is for one rank, or comes from one: a chunk where there are as few as can be."""
        return -(-self.size_bytes // max(map(len, self.among_itself().inputs)))


@dataclass(frozen=True)
class Groups:
    """Groups that work at the same time. `relays`: ranks outside of a group may forward its data.

    All chunks have `chunk_bytes` bytes, such that the shares of all groups are nearly whole numbers of chunks. They are
    rounded up to that: together by at most 1 %, unless 16 chunks for the smallest are too few.
    """

    groups: tuple[Group, ...]
    relays: bool = True

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError("groups: must be at least one, got none")
        shares = {group.share_bytes for group in self.groups}
        if max(shares) > _MOST_UNLIKE * min(shares):
            got = f"{format_bytes(min(shares))} and {format_bytes(max(shares))}"
            raise InputError(
                f"groups: what goes from rank to rank must be within a factor of {_MOST_UNLIKE} in all, got {got}"
                "; plan the smaller ones by themselves"
            )

    @cached_property
    def name(self) -> str:
        """`allgather-groups`: the collectives, of one's own as a whole."""
        return "+".join(dict.fromkeys(group.collective for group in self.groups)) + "-groups"

    @cached_property
    def chunk_bytes(self) -> int:
        """The size of a chunk where there are as few as can be."""
        shares = [group.share_bytes for group in self.groups for _ in range(group.among_itself().chunk_count)]
        sizes = [-(-min(shares) // parts) for parts in range(1, _SPLITS + 1)]
        excess = [sum(-share % size for share in shares) for size in sizes]
        return next((size for size, more in zip(sizes, excess, strict=True) if more <= _CLOSE * sum(shares)),
                    sizes[excess.index(min(excess))])  # fmt: skip

    @property
    def chunk_counts(self) -> list[int]:
        """Into how many chunks each group's shares are cut."""
        return [-(-group.share_bytes // self.chunk_bytes) for group in self.groups]

    @property
    def most_ranks(self) -> int:
        """The size of the largest group."""
        return max(len(group.ranks) for group in self.groups)

    @property
    def is_disjoint(self) -> bool:
        """Whether no rank is in two groups."""
        members = [rank for group in self.groups for rank in group.ranks]
        return len(set(members)) == len(members)

    def joined(self, rank_count: int) -> Collective:
        """All groups as one collective, in as few chunks as there can be, group after group.

        Where some of them reduce, a chunk of the others is a sum of one part. Raises `InputError` for ranks that are
        not there and for too many chunks.
        """
        inputs: list[list[int]] = [[] for _ in range(rank_count)]
        outputs: list[list[int]] = [[] for _ in range(rank_count)]
        first, reduces = 0, False
        for group, alone in zip(self.groups, self.alone, strict=True):
            outside = [rank for rank in group.ranks if not 0 <= rank < rank_count]
            if outside:
                raise InputError(f"process groups: ranks must be in 0..{rank_count - 1}, got {outside[0]}")
            for sides, buffers in ((inputs, alone.inputs), (outputs, alone.outputs)):
                for rank, buffer in zip(group.ranks, buffers, strict=True):
                    sides[rank] += [first + chunk for chunk in buffer]
            first, reduces = first + alone.chunk_count, reduces or alone.reduces
        if first > MOST_CHUNKS:
            raise InputError(f"groups: must have at most {MOST_CHUNKS:,} chunks, got {first:,}")
        return Collective(self.name, rank_count, 1, tuple(map(tuple, inputs)), tuple(map(tuple, outputs)), reduces)

    def kept(self, topology: Topology) -> Topology:
        """The topology with the links that the groups may use.

        Raises `InputError` where no rank but members may forward, and these are not connected.
        """
        if self.relays:
            return topology
        members = [self._mask(group, topology.device_count) for group in self.groups]
        inside = [mask[topology.link_source] & mask[topology.link_target] for mask in members]
        for group, links in zip(self.groups, inside, strict=True):
            network = topology.to_networkx(links=np.flatnonzero(links).tolist()).subgraph(group.ranks)
            if not nx.is_strongly_connected(network):
                raise InputError(
                    f"relays: must be yes where a group is not connected by itself, as {_listed(group.ranks)}; got no"
                )
        rows = np.flatnonzero(np.any(inside, axis=0))
        return replace(topology, links=Links.of([topology.links[row] for row in rows.tolist()]))

    def allowed(self, topology: Topology, parts: int) -> NDArray[np.bool_] | None:
        """`allowed[c, l]`: whether chunk c, of chunks cut into `parts`, may take link l; None where all that are kept.

        Of disjoint groups a chunk can't leave its own over the links that are `kept`.
        """
        if self.relays or self.is_disjoint:
            return None
        rows = []
        for group, alone in zip(self.groups, self.alone, strict=True):
            mask = self._mask(group, topology.device_count)
            row = mask[topology.link_source] & mask[topology.link_target]
            rows.append(np.broadcast_to(row, (alone.chunk_count * parts, len(row))))
        return np.concatenate(rows)

    @property
    def description(self) -> dict[str, object]:
        """In plain values, for the problem section of a plan."""
        rows = [{**asdict(group), "ranks": list(group.ranks)} for group in self.groups]
        groups = [{name: value for name, value in row.items() if value is not None} for row in rows]
        return {"relays": self.relays, "groups": groups}

    @cached_property
    def alone(self) -> list[Collective]:
        """Each group by itself, in chunks of the size that all have."""
        return [group.among_itself(count) for group, count in zip(self.groups, self.chunk_counts, strict=True)]

    def _mask(self, group: Group, rank_count: int) -> NDArray[np.bool_]:
        mask = np.zeros(rank_count, dtype=np.bool_)
        mask[list(group.ranks)] = True
        return mask


def groups_of(
    texts: Iterable[str],
    rank_count: int,
    collective: str,
    size_bytes: int | None,
    root: int | None = None,
    target: int | None = None,
) -> list[Group]:
    """The groups that texts name, such as `tp=8`, `ep=8:alltoall:64MB` and `0-7,16-23::1MB`.

    What a text leaves out, collective and size, is as given. Raises `InputError` that names text and rule.
    """
    found = []
    for text in texts:
        ranks, named, size = read_group(text)
        name = named or collective
        if name not in COLLECTIVES:
            collective_by_name(name, rank_count)  # it says which there are
        size_here = size or size_bytes
        if size_here is None:
            raise InputError("size: must be given, such as 1MB, or behind each group, such as tp=8:allgather:1MB")
        ends = (root if name in ROOTED else None, target if name == "sendrecv" else None)
        lists = along_axes(ranks, rank_count) if isinstance(ranks, Mapping) else [ranks]
        found += [Group(name, tuple(members), size_here, *ends) for members in lists]
    for title, value in (("root", root), ("target", target)):
        if value is not None and all(getattr(group, title) is None for group in found):
            raise InputError(f"{title}: must be left out, no collective of the groups has one; got {value}")
    return found


def read_group(text: str) -> tuple[dict[str, int] | list[int], str, int | None]:
    """(axes with their sizes, or ranks; collective; size) of `AXES-OR-RANKS[:COLLECTIVE[:SIZE]]`."""
    where, _, rest = text.strip().partition(":")
    name, _, size = rest.partition(":")
    entries = [entry.strip() for entry in where.split(",")]
    if all(re.fullmatch(r"[A-Za-z_]\w*=[1-9]\d{0,8}", entry) for entry in entries):
        pairs = [entry.split("=") for entry in entries]
        axes = {axis: int(length) for axis, length in pairs}
        if len(axes) != len(pairs):
            raise InputError(f"group: axes must have different names, got {where!r}")
        return axes, name.strip(), _size(size)
    if not all(re.fullmatch(r"\d{1,9}(-\d{1,9})?", entry) for entry in entries):
        raise InputError(f"group: must be axes (tp=8,dp=4) or ranks (0-7,16-23), then :COLLECTIVE:SIZE, got {text!r}")
    ranks: list[int] = []
    for entry in entries:
        first, _, last = entry.partition("-")
        if int(last or first) - int(first) >= MOST_CHUNKS:
            raise InputError(f"group: must have at most {MOST_CHUNKS:,} ranks, got {entry!r}")
        ranks += range(int(first), int(last or first) + 1)
    return ranks, name.strip(), _size(size)


def along_axes(axes: Mapping[str, int], rank_count: int) -> list[list[int]]:
    """The groups along the last of the axes; the first runs fastest, and what is left over is one more axis.

    Raises `InputError` where the axes don't divide the ranks, or the last has one place only.
    """
    *_, (last, length) = axes.items()
    block = prod(axes.values())
    if rank_count % block:
        named = ",".join(f"{axis}={size}" for axis, size in axes.items())
        raise InputError(f"group: the {block} ranks of {named} must divide the {rank_count} of the topology")
    if length < 2:
        raise InputError(f"group: axis {last} must have two ranks or more, got {length}")
    stride = block // length
    return [
        list(range(at + start, at + block, stride)) for at in range(0, rank_count, block) for start in range(stride)
    ]


def _size(text: str) -> int | None:
    return parse_bytes(text.strip(), "group") if text.strip() else None


def _listed(ranks: Sequence[int]) -> str:
    """`0, 1, 2, ...`."""
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
