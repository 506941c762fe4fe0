"""NodeTemplate: one machine as its file describes it; and the cluster of any number of nodes, equal or not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, permutations

import numpy as np

from gapless.array_types import Ids
from gapless.errors import InputError
from gapless.topologies.fabric import Fabric, Nics, join
from gapless.topologies.links import MOST_LINKS, LinkBuilder, refuse_too_many
from gapless.topologies.ports.congestion import Congestion, Slowdown
from gapless.topologies.ports.switch_groups import Reduction, SwitchGroup
from gapless.topologies.topology import Nic, Switch, Topology

__all__ = ["Cluster", "LocalLink", "NicTemplate", "NodeTemplate", "SwitchTemplate"]


@dataclass(frozen=True)
class LocalLink:
    """A directed link between two ranks of a node; `resources` are names of what it shares with other links."""

    source: int
    target: int
    alpha_s: float
    beta_s_per_byte: float
    resources: tuple[str, ...] = ()


@dataclass(frozen=True)
class SwitchTemplate:
    """A non-blocking switch: every pair of its ranks is joined; a rank sends, and receives, one transfer at a time.

    `congestion`: of each rank's ports, one out and one in. `reduction`: what it does besides, None for nothing.
    """

    ranks: tuple[int, ...]
    alpha_s: float
    beta_s_per_byte: float
    congestion: Slowdown | None = None
    reduction: Reduction | None = None


@dataclass(frozen=True)
class NicTemplate:
    """A network interface and the ranks that share it; it sends, and receives, one transfer at a time.

    `congestion`: of its two sides, out and in.
    """

    ranks: tuple[int, ...]
    alpha_s: float
    beta_s_per_byte: float
    congestion: Slowdown | None = None


@dataclass(frozen=True)
class NodeTemplate:
    """One node: ranks 0 .. ranks_per_node - 1, links, switches, NICs. Raises `InputError` naming the field.

    Ranks of different nodes reach each other through the NICs of both (`Cluster`), in a cluster of nodes like this one
    as `fabric` says. A NIC without ranks keeps the others' numbers: NIC i of a node is on rail i.
    """

    name: str
    ranks_per_node: int
    links: tuple[LocalLink, ...] = ()
    switches: tuple[SwitchTemplate, ...] = ()
    nics: tuple[NicTemplate, ...] = ()
    source: str = ""
    fabric: Fabric = field(default_factory=Fabric)

    def __post_init__(self) -> None:
        groups = [("switches", switch.ranks) for switch in self.switches] + [("nics", nic.ranks) for nic in self.nics]
        for title, ranks in [*groups, *(("links", (link.source, link.target)) for link in self.links)]:
            for rank in ranks:
                if not 0 <= rank < self.ranks_per_node:
                    raise InputError(f"{self.name}: {title}: ranks must be in 0..{self.ranks_per_node - 1}, got {rank}")
            if len(set(ranks)) != len(ranks):
                raise InputError(f"{self.name}: {title}: ranks must differ, got {list(ranks)}")
        for switch in self.switches:
            if len(switch.ranks) < 2:
                raise InputError(
                    f"{self.name}: switches: a switch must join at least 2 ranks, got {list(switch.ranks)}"
                )
        for rank, count in Counter(rank for nic in self.nics for rank in nic.ranks).items():
            if count > 1:
                raise InputError(f"{self.name}: nics: a rank must use at most one NIC, rank {rank} uses two")

    def cluster(self, nodes: int) -> Topology:
        """`nodes` copies of this node, joined as its fabric says. Raises `InputError` for too few or many."""
        if nodes < 1:
            raise InputError(f"nodes: must be >= 1, got {nodes}")
        if nodes * self.ranks_per_node > MOST_LINKS:
            got = nodes * self.ranks_per_node
            raise InputError(f"{self.name} x {nodes}: must have at most {MOST_LINKS:,} ranks, would have {got:,}")
        return Cluster(f"{self.name} x {nodes}", (self,) * nodes, self.fabric).topology()

    def without_ranks(self, lacking: Sequence[int]) -> NodeTemplate:
        """The node without these ranks: the others keep their order, and all NICs stay, perhaps without ranks.

        Raises `InputError` for ranks that it doesn't have, or where none is left.
        """
        for rank in lacking:
            if not 0 <= rank < self.ranks_per_node:
                raise InputError(f"{self.name}: without_ranks: must be in 0..{self.ranks_per_node - 1}, got {rank}")
        left = [rank for rank in range(self.ranks_per_node) if rank not in lacking]
        if not left:
            raise InputError(f"{self.name}: without_ranks: must leave a rank, got all {self.ranks_per_node}")
        number = {rank: place for place, rank in enumerate(left)}

        def kept(ranks: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(number[rank] for rank in ranks if rank in number)

        return replace(
            self,
            name=f"{self.name} without {', '.join(map(str, sorted(set(lacking))))}",
            ranks_per_node=len(left),
            links=tuple(
                replace(link, source=number[link.source], target=number[link.target])
                for link in self.links
                if link.source in number and link.target in number
            ),
            switches=tuple(
                replace(switch, ranks=kept(switch.ranks)) for switch in self.switches if len(kept(switch.ranks)) > 1
            ),
            nics=tuple(replace(nic, ranks=kept(nic.ranks)) for nic in self.nics),
        )


@dataclass(frozen=True)
class Cluster:
    """Nodes in the order of their ranks: those of node n follow those of node n - 1.

    Ranks of different nodes reach each other through the NICs of both, as `fabric` says.
    Raises `InputError` where there is no node, or several and one of them has no NIC.
    """

    name: str
    nodes: tuple[NodeTemplate, ...]
    fabric: Fabric = field(default_factory=Fabric)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InputError(f"{self.name}: nodes: must be >= 1, got 0")
        for node in self.nodes:
            if len(self.nodes) > 1 and not node.nics:
                raise InputError(f"{node.name}: nics: must hold at least one to join {len(self.nodes)} nodes, got none")
        self._refuse_too_many()

    @cached_property
    def first_rank(self) -> Ids:
        """The first rank of each node, and the number of all ranks: int64, shape (nodes + 1,)."""
        return np.concatenate([[0], np.cumsum([node.ranks_per_node for node in self.nodes])]).astype(np.int64)

    def topology(self) -> Topology:
        """Ranks, links and resources of all nodes."""
        builder = LinkBuilder()
        names = list[str]()
        for _, run in groupby(enumerate(self.nodes), key=lambda numbered: numbered[1]):
            alike = list(run)
            names += _add_nodes(builder, alike[0][1], alike[0][0], self.first_rank[[number for number, _ in alike]])
        if len(self.nodes) > 1:
            names += join(builder, self._nics(), self.fabric)
        links, keys = builder.finish()
        resources = tuple(names[key] for key in keys.tolist())
        numbered = list(enumerate(self.nodes))
        return Topology(
            name=self.name,
            node_of_device=tuple(np.repeat(np.arange(len(self.nodes)), np.diff(self.first_rank)).tolist()),
            links=links,
            resources=resources,
            nics=tuple(Nic(n, self._ranks(n, nic.ranks)) for n, node in numbered for nic in node.nics if nic.ranks),
            switches=tuple(Switch(n, self._ranks(n, one.ranks)) for n, node in numbered for one in node.switches),
            congestion=tuple(self._congestion(resources)),
            switch_groups=tuple(self._switch_groups({name: number for number, name in enumerate(resources)})),
        )

    def _ranks(self, node: int, local: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(self.first_rank[node]) + rank for rank in local)

    def _nics(self) -> Nics:
        found = [(n, k, nic) for n, node in enumerate(self.nodes) for k, nic in enumerate(node.nics)]
        return Nics(
            node=np.array([n for n, _, _ in found]),
            rail=np.array([k for _, k, _ in found]),
            alpha_s=np.array([nic.alpha_s for _, _, nic in found]),
            beta_s_per_byte=np.array([nic.beta_s_per_byte for _, _, nic in found]),
            ranks=np.array([self.first_rank[n] + rank for n, _, nic in found for rank in nic.ranks], dtype=np.int64),
            size=np.array([len(nic.ranks) for _, _, nic in found], dtype=np.int64),
        )

    def _switch_groups(self, number_of: Mapping[str, int]) -> Iterator[SwitchGroup]:
        """The ranks behind each switch that adds up or multicasts; those of each rail where the fabric does.

        `number_of`: the resources by name.
        """
        for n, node in enumerate(self.nodes):
            for k, switch in enumerate(node.switches):
                if switch.reduction is not None:
                    ranks = self._ranks(n, switch.ranks)
                    names = [[f"node{n}:switch{k}:{side}{rank}" for side in ("out", "in")] for rank in ranks]
                    yield SwitchGroup(ranks, switch.reduction, _numbered(names, number_of))
        if self.fabric.reduction is not None and len(self.nodes) > 1:
            used = [(n, k, nic) for n, node in enumerate(self.nodes) for k, nic in enumerate(node.nics) if nic.ranks]
            shared = next((nic for _, _, nic in used if len(nic.ranks) > 1), None)
            if shared is not None:
                got = list(shared.ranks)
                raise InputError(f"{self.name}: fabric: reduction needs a NIC for each rank, got one for ranks {got}")
            for rail in sorted({k for _, k, _ in used}) if self.fabric.rails else [None]:
                ends = [(n, k, nic) for n, k, nic in used if rail in (None, k)]
                names = [[f"node{n}:nic{k}:{side}" for side in ("out", "in")] for n, k, _ in ends]
                if len(ends) > 1:
                    ranks = tuple(self._ranks(n, nic.ranks)[0] for n, _, nic in ends)
                    yield SwitchGroup(ranks, self.fabric.reduction, _numbered(names, number_of))

    def _refuse_too_many(self) -> None:
        ranks = sum(node.ranks_per_node for node in self.nodes)
        if ranks > MOST_LINKS:
            raise InputError(f"{self.name}: must have at most {MOST_LINKS:,} ranks, would have {ranks:,}")
        local = sum(
            len(node.links) + sum(len(switch.ranks) * (len(switch.ranks) - 1) for switch in node.switches)
            for node in self.nodes
        )
        most = max(len(node.nics) for node in self.nodes)
        behind = np.zeros((len(self.nodes), most), dtype=np.int64)
        for number, node in enumerate(self.nodes):
            behind[number, : len(node.nics)] = [len(nic.ranks) for nic in node.nics]
        behind = behind if self.fabric.rails else behind.sum(axis=1, keepdims=True)
        joined = int((behind.sum(axis=0) ** 2 - (behind**2).sum(axis=0)).sum())
        way_out = "ask for fewer nodes" if self.fabric.rails else "ask for fewer nodes, or for rails"
        refuse_too_many(self.name, local + joined, way_out)

    def _congestion(self, resources: tuple[str, ...]) -> Iterator[Congestion]:
        """The tables of switches and NICs, with the sides that are in use, by their names; equal ones of all nodes."""
        sides: dict[tuple[str, Slowdown], list[int]] = {}
        for number, node in enumerate(self.nodes):
            tables = [(f"switch{k}", switch.congestion) for k, switch in enumerate(node.switches)]
            tables += [(f"nic{k}", nic.congestion) for k, nic in enumerate(node.nics)]
            for title, table in tables:
                if table is not None:
                    sides.setdefault((title, table), []).append(number)
        for (title, table), nodes in sides.items():
            side = re.compile(rf"node({'|'.join(map(str, nodes))}):{title}:(out|in)\d*")
            yield Congestion(tuple((k,) for k, name in enumerate(resources) if side.fullmatch(name)), table)


def _numbered(names: Sequence[Sequence[str]], number_of: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """The numbers of pairs of resources."""
    return tuple((number_of[out], number_of[into]) for out, into in names)


def _add_nodes(builder: LinkBuilder, template: NodeTemplate, number: int, first_rank: Ids) -> list[str]:
    """The links inside equal nodes, from node `number` on; returns the names of their resources, by key."""
    nodes = len(first_rank)
    names: dict[tuple[str, int | None], int] = {}  # name, and the rank that follows it, as the cluster numbers it
    rows: list[tuple[int, int, float, float, list[int]]] = []
    for link in template.links:
        held = [names.setdefault((name, None), len(names)) for name in link.resources]
        rows.append((link.source, link.target, link.alpha_s, link.beta_s_per_byte, held))
    for place, switch in enumerate(template.switches):
        for source, target in permutations(switch.ranks, 2):
            sides = ((f"switch{place}:out", source), (f"switch{place}:in", target))
            held = [names.setdefault(side, len(names)) for side in sides]
            rows.append((source, target, switch.alpha_s, switch.beta_s_per_byte, held))
    first = builder.keys(nodes * len(names))
    if rows:
        width = max(len(row[4]) for row in rows)
        local = np.array([[*row[4], *[-1] * (width - len(row[4]))] for row in rows], dtype=np.int64)
        keys = first + np.arange(nodes)[:, None, None] * len(names) + local
        base = np.repeat(first_rank, len(rows))
        from_rank, to_rank, alpha_s, beta_s = (np.tile(np.array([row[k] for row in rows]), nodes) for k in range(4))
        keys = np.where(local < 0, -1, keys).reshape(nodes * len(rows), width)
        builder.add(base + from_rank, base + to_rank, alpha_s, beta_s, keys)
    return [
        f"node{number + place}:{name}" + ("" if rank is None else str(start + rank))
        for place, start in enumerate(first_rank.tolist())
        for name, rank in names
    ]
