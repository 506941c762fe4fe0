"""NodeTemplate: one machine as its file describes it, and the cluster of any number of such nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from planwright.errors import InputError
from planwright.topologies.topology import Link, Nic, Switch, Topology

__all__ = ["LocalLink", "NicTemplate", "NodeTemplate", "SwitchTemplate"]


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
    """A non-blocking switch: every pair of its ranks is joined; a rank sends, and receives, one transfer at a time."""

    ranks: tuple[int, ...]
    alpha_s: float
    beta_s_per_byte: float


@dataclass(frozen=True)
class NicTemplate:
    """A network interface and the ranks that share it; it sends, and receives, one transfer at a time."""

    ranks: tuple[int, ...]
    alpha_s: float
    beta_s_per_byte: float


@dataclass(frozen=True)
class NodeTemplate:
    """One node: ranks 0 .. ranks_per_node - 1, links, switches, NICs. Raises `InputError` naming the field.

    Every rank of a node reaches every rank of the other nodes through the NICs of both, in full bandwidth between them.
    """

    name: str
    ranks_per_node: int
    links: tuple[LocalLink, ...] = ()
    switches: tuple[SwitchTemplate, ...] = ()
    nics: tuple[NicTemplate, ...] = ()
    source: str = ""

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
        served = [rank for nic in self.nics for rank in nic.ranks]
        for rank in served:
            if served.count(rank) > 1:
                raise InputError(f"{self.name}: nics: a rank must use at most one NIC, rank {rank} uses two")

    def cluster(self, nodes: int) -> Topology:
        """`nodes` copies of this node, joined through their NICs.

        Rank `local` of node `n` is number `n * ranks_per_node + local`.
        """
        if nodes < 1:
            raise InputError(f"nodes: must be >= 1, got {nodes}")
        if nodes > 1 and not self.nics:
            raise InputError(f"{self.name}: nics: must hold at least one to join {nodes} nodes, got none")
        builder = _Builder()
        for node in range(nodes):
            self._add_node(builder, node)
        nics = [(node, nic) for node in range(nodes) for nic in self.nics]
        for (source_node, source_nic), (target_node, target_nic) in permutations(nics, 2):
            if source_node != target_node:
                self._join(builder, source_node, source_nic, target_node, target_nic)
        return Topology(
            name=f"{self.name} x {nodes}",
            node_of_device=tuple(node for node in range(nodes) for _ in range(self.ranks_per_node)),
            links=tuple(builder.links),
            resources=tuple(builder.resources),
            nics=tuple(Nic(node, self._globals(node, nic.ranks)) for node, nic in nics),
            switches=tuple(Switch(n, self._globals(n, switch.ranks)) for n in range(nodes) for switch in self.switches),
        )

    def _globals(self, node: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(node * self.ranks_per_node + rank for rank in ranks)

    def _add_node(self, builder: _Builder, node: int) -> None:
        base = node * self.ranks_per_node
        for link in self.links:
            shared = tuple(f"node{node}:{name}" for name in link.resources)
            builder.add(base + link.source, base + link.target, link.alpha_s, link.beta_s_per_byte, shared)
        for number, switch in enumerate(self.switches):
            for source, target in permutations(switch.ranks, 2):
                sides = (
                    f"node{node}:switch{number}:out{base + source}",
                    f"node{node}:switch{number}:in{base + target}",
                )
                builder.add(base + source, base + target, switch.alpha_s, switch.beta_s_per_byte, sides)

    def _join(
        self, builder: _Builder, source_node: int, source: NicTemplate, target_node: int, target: NicTemplate
    ) -> None:
        alpha_s = max(source.alpha_s, target.alpha_s)
        beta_s_per_byte = max(source.beta_s_per_byte, target.beta_s_per_byte)  # the slower side sets the pace
        sides = (
            f"node{source_node}:nic{self.nics.index(source)}:out",
            f"node{target_node}:nic{self.nics.index(target)}:in",
        )
        for source_rank, target_rank in _pairs(
            self._globals(source_node, source.ranks), self._globals(target_node, target.ranks)
        ):
            builder.add(source_rank, target_rank, alpha_s, beta_s_per_byte, sides)


class _Builder:
    """Collects links and numbers the named resources in order of first use."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.resources: dict[str, int] = {}

    def add(self, source: int, target: int, alpha_s: float, beta_s_per_byte: float, resources: tuple[str, ...]) -> None:
        numbers = tuple(self.resources.setdefault(name, len(self.resources)) for name in resources)
        self.links.append(Link(source, target, alpha_s, beta_s_per_byte, numbers))


def _pairs(sources: tuple[int, ...], targets: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return ((source, target) for source in sources for target in targets)
