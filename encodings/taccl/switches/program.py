"""A program of plain transfers and steps of switches, each as early as possible in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gapless.array_types import Ids
from gapless.ir.collective import Collective
from gapless.ir.schedule import EventKind, Ragged, Schedule
from gapless.ir.switch_ops import SwitchOps
from gapless.topologies.topology import Topology

__all__ = ["Bundle", "SwitchProgram"]


@dataclass(frozen=True)
class Bundle:
    """An operation of a switch: `root` is None where it reduces to all of `ranks`."""

    root: int | None
    ranks: tuple[int, ...]
    chunks: tuple[int, ...]
    reduces: bool


@dataclass
class SwitchProgram:
    """What is appended starts as soon as what it holds is free, what it reads is there, and nobody uses what it writes.

    `free_s`: of each link and resource, `written_s`, `used_s`: of each copy, by chunk and rank.
    """

    topology: Topology
    chunks: int
    chunk_bytes: int
    rows: list[tuple[float, float, bool, int]] = field(default_factory=list)
    links: list[Ids] = field(default_factory=list)
    moves: list[tuple[int, ...]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    step_end_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topology, ranks = self.topology, self.topology.device_count
        self.free_s = np.zeros(len(topology.links) + len(topology.resources))
        self.written_s, self.used_s = np.zeros((self.chunks, ranks)), np.zeros((self.chunks, ranks))
        self.link_of = np.full((ranks, ranks), -1)
        order = np.argsort(-topology.beta_s_per_byte, kind="stable")  # of parallel links the fastest
        self.link_of[topology.link_source[order], topology.link_target[order]] = order
        self._held: dict[bytes, Ids] = {}

    @property
    def end_s(self) -> float:
        """When all that was appended is over."""
        return max((row[1] for row in self.rows), default=0.0)

    @property
    def events(self) -> int:
        """The transfers so far."""
        return sum(map(len, self.links))

    def send(self, source: int, target: int, chunks: tuple[int, ...], reduces: bool) -> None:
        """A plain transfer of some chunks."""
        link = self.link_of[source, target]
        cost_s = self.topology.alpha_s[link] + self.topology.beta_s_per_byte[link] * len(chunks) * self.chunk_bytes
        held = self._holds(np.array([link]))
        reads, writes = [(np.array([source]), chunks)], [(np.array([target]), chunks)]
        start_s = self._ready_s(held, reads, writes)
        self._do(start_s, start_s + float(cost_s), held, reads, writes)
        self._note(start_s, start_s + float(cost_s), np.array([link]), chunks, reduces, -1)

    def step(self, which: int, bundles: Sequence[Bundle]) -> None:
        """Operations of a switch group at once, after the step before: two at the same time would be one."""
        group = self.topology.switch_groups[which]
        load = np.zeros((2, self.topology.device_count))
        held, reads, writes, made = (
            list[Ids](),
            list[tuple[Ids, tuple[int, ...]]](),
            list[tuple[Ids, tuple[int, ...]]](),
            [],
        )
        port_of = dict(zip(group.ranks, group.ports, strict=False))
        for one in bundles:
            sources, targets = self._ends(one)
            links = self._links_of(one, sources, targets)
            load[0, sources] += len(one.chunks)
            load[1, targets] += len(one.chunks)
            held.append(self._holds(links))
            if group.reduction.loopback and one.root is not None:
                side = 0 if one.reduces else 1
                load[side, one.root] += len(one.chunks)
                if one.root in port_of:
                    held.append(np.array([len(self.topology.links) + port_of[one.root][side]]))
            reads.append((np.union1d(sources, targets) if one.reduces else sources, one.chunks))
            writes.append((targets, one.chunks))
            made.append(links)
        cost_s = group.reduction.alpha_s + group.reduction.beta_s_per_byte * float(load.max()) * self.chunk_bytes
        together = np.unique(np.concatenate(held))
        start_s = max(self._ready_s(together, reads, writes), self.step_end_s.get(which, 0.0))
        self.step_end_s[which] = start_s + cost_s
        self._do(start_s, start_s + cost_s, together, reads, writes)
        for one, links in zip(bundles, made, strict=True):
            self.groups.append(which)
            self._note(start_s, start_s + cost_s, links, one.chunks, one.reduces, len(self.groups) - 1)

    def _ends(self, one: Bundle) -> tuple[Ids, Ids]:
        everybody = np.array(one.ranks)
        if one.root is None:
            return everybody, everybody
        others, root = everybody[everybody != one.root], np.array([one.root])
        return (others, root) if one.reduces else (root, others)

    def _links_of(self, one: Bundle, sources: Ids, targets: Ids) -> Ids:
        if one.root is not None:
            return np.asarray(self.link_of[sources, targets])
        return np.asarray(self.link_of[np.ix_(sources, targets)][~np.eye(len(sources), dtype=bool)])

    def _holds(self, links: Ids) -> Ids:
        """The links, and the resources behind them, each once."""
        key = links.tobytes()
        if key not in self._held:
            topology = self.topology
            start = topology.held_start
            resources = [topology.held[start[link] : start[link + 1]] for link in links.tolist()]
            self._held[key] = np.unique(np.concatenate([links, *(len(topology.links) + each for each in resources)]))
        return self._held[key]

    def _ready_s(
        self, held: Ids, reads: list[tuple[Ids, tuple[int, ...]]], writes: list[tuple[Ids, tuple[int, ...]]]
    ) -> float:
        start_s = float(self.free_s[held].max())
        for ranks, chunks in reads:
            start_s = max(start_s, float(self.written_s[np.ix_(np.array(chunks), ranks)].max()))
        for ranks, chunks in writes:
            start_s = max(start_s, float(self.used_s[np.ix_(np.array(chunks), ranks)].max()))
        return start_s

    def _do(
        self, start_s: float, end_s: float, held: Ids, reads: list[tuple[Ids, tuple[int, ...]]],
        writes: list[tuple[Ids, tuple[int, ...]]],
    ) -> None:  # fmt: skip
        self.free_s[held] = end_s
        for ranks, chunks in (*reads, *writes):
            place = np.ix_(np.array(chunks), ranks)
            self.used_s[place] = np.maximum(self.used_s[place], end_s)
        for ranks, chunks in writes:
            self.written_s[np.ix_(np.array(chunks), ranks)] = end_s

    def _note(
        self, start_s: float, end_s: float, links: Ids, chunks: tuple[int, ...], reduces: bool, number: int
    ) -> None:
        self.rows.append((start_s, end_s, reduces, number))
        self.links.append(links)
        self.moves.append(chunks)

    def schedule(self, collective: Collective) -> Schedule:
        """All of it, in the order of starts."""
        order = sorted(range(len(self.rows)), key=lambda number: self.rows[number][0])
        counts = np.array([len(self.links[number]) for number in order])
        row = np.repeat(np.arange(len(order)), counts)
        columns = list(zip(*(self.rows[number] for number in order), strict=True))
        start_s, end_s = (np.array(column, dtype=np.float64)[row] for column in columns[:2])
        count = len(row)
        return Schedule(
            graph=collective.graph(self.chunk_bytes),
            topology=self.topology,
            kind=np.full(count, int(EventKind.TRANSFER)),
            start_s=start_s,
            end_s=end_s,
            place=np.concatenate([self.links[number] for number in order]),
            op=np.full(count, -1),
            implementation=np.full(count, -1),
            reduces=np.array(columns[2], dtype=np.bool_)[row],
            moves=Ragged.of(self.moves[number] for number in order).take(row),
            freed_tensor=Ragged.empty(count),
            freed_device=Ragged.empty(count),
            name=f"{collective.name} on {self.topology.name}",
            switch_ops=SwitchOps(np.array(columns[3])[row], np.array(self.groups, dtype=np.int64)),
        )
