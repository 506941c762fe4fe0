"""The variants of each algorithm: channels, orders and trees, each with ever more pieces of its pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from gapless.encodings.taccl.baselines.cut import Cut, root_of
from gapless.encodings.taccl.baselines.rings import disjoint_rings, local_rings, rail_rings
from gapless.encodings.taccl.baselines.templates import (
    Tree,
    chain_broadcast,
    direct_sends,
    double_tree,
    doubling_allgather,
    rail_allgather,
    rail_alltoall,
    rail_broadcast,
    ring_allgather,
    spread_directly,
    tree_broadcast,
    tree_over_nodes,
)
from gapless.encodings.taccl.baselines.transfers import DETOUR, MOVES, Send
from gapless.ir.collective import Collective
from gapless.topologies.topology import Topology

__all__ = ["Structure", "Variant", "series"]

_PIECES = (1, 2, 4, 8, 16, 32, 64, 128)
_TREE_PACES = ((1, 1), (2, 3), (1, 2))
"""Which is best depends on how many transfers a rank may send at once; a rank has two children, and a parent. In one
piece they are the same.
"""


@dataclass(frozen=True)
class Variant:
    """One form of an algorithm: it cuts blocks into `parts`; `pace` is that of `paced`.

    `sends(cut, is_reversed)`: what it sends to spread the blocks, on the network or on the reverse one. `whole`: it
    cuts all blocks together.
    """

    title: str
    parts: int
    pace: tuple[int, int]
    sends: Callable[[Cut, bool], list[Send]]
    whole: bool = False


Series = Iterator[Variant]
"""Variants that differ in the number of pieces only, ascending."""


@dataclass(frozen=True)
class Structure:
    """What the algorithms of one collective use of a topology, found when it is first needed."""

    topology: Topology
    collective: Collective

    @property
    def root(self) -> int | None:
        """The root of a rooted collective."""
        return root_of(self.collective)

    @cached_property
    def ring(self) -> list[int]:
        """The first of the rings, without a search for the others."""
        return disjoint_rings(self.topology, 1)[0]

    @cached_property
    def rings(self) -> list[list[int]]:
        """Disjoint rings through all ranks."""
        return disjoint_rings(self.topology)

    @cached_property
    def rings_of_nodes(self) -> list[list[list[int]]]:
        """Disjoint rings inside each node, as many in each."""
        found = local_rings(self.topology)
        count = min(map(len, found))
        return [rings[:count] for rings in found]

    @cached_property
    def nodes(self) -> list[list[int]]:
        """The ranks of each node."""
        return self.topology.nodes

    def work(self, algorithm: str, base: str, variant: Variant) -> int:
        """How many transfers a variant for `base` is about, or as much work: to find paths, or send many chunks, is."""
        ranks, parts = self.topology.device_count, variant.parts
        if base not in ("allgather", "alltoall"):
            return (ranks - 1) * parts
        moves = ranks * (ranks - 1) * (1 if variant.whole else parts) // MOVES
        if algorithm == "tree":
            return (ranks - 1) * parts + moves
        if algorithm == "direct":
            return self._direct_work * parts + moves
        return ranks * (ranks.bit_length() if algorithm == "doubling" else ranks - 1) * parts + moves

    @cached_property
    def _direct_work(self) -> int:
        """Messages between all pairs, where those without a link need a path."""
        pairs, topology = self.topology.device_count * (self.topology.device_count - 1), self.topology
        linked = len(set(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True)))
        return linked + (1 + DETOUR) * (pairs - linked)

    @property
    def is_hierarchical(self) -> bool:
        """Whether there are several nodes of as many ranks each, more than one."""
        sizes = {len(ranks) for ranks in self.nodes}
        return len(self.nodes) > 1 and len(sizes) == 1 and sizes != {1}


def series(structure: Structure, algorithm: str, base: str, most_parts: float = math.inf) -> Iterator[Series]:
    """The series of an algorithm for `base`: the name of what the collective does, or undoes where it reduces.

    Those that begin with more than `most_parts` parts may be left out.
    """
    return _SERIES[algorithm](structure, base, most_parts)


def _in_pieces(variant: Callable[[int], Variant], first: int = 0) -> Series:
    """The variants of more and more pieces, from the first number or a later one on."""
    return map(variant, _PIECES[first:])


def _ring(structure: Structure, base: str, most_parts: float) -> Iterator[Series]:
    yield _in_pieces(partial(_ring_variant, structure, base, [structure.ring], "rings"))
    if most_parts < 2:
        return
    for count in sorted({min(2, len(structure.rings)), len(structure.rings)} - {1}):
        if count <= most_parts:
            yield _in_pieces(partial(_ring_variant, structure, base, structure.rings[:count], "rings"))
    if structure.is_hierarchical and len(structure.nodes[0]) <= most_parts:
        rails = rail_rings(structure.nodes, structure.rings_of_nodes[0][0])
        yield _in_pieces(partial(_ring_variant, structure, base, rails, "rail rings"))


def _ring_variant(structure: Structure, base: str, rings: list[list[int]], what: str, pieces: int) -> Variant:
    root = structure.root

    def sends(cut: Cut, is_reversed: bool) -> list[Send]:
        turned = [ring[::-1] for ring in rings] if is_reversed else rings
        if base == "allgather":
            return ring_allgather(cut, turned)
        assert root is not None
        return chain_broadcast(cut, turned, root)

    pace = (pieces, 1) if base == "allgather" else (1, 1)
    return Variant(f"{len(rings)} {what}, {_in_words(pieces)}", len(rings) * pieces, pace, sends)


def _tree(structure: Structure, base: str, most_parts: float) -> Iterator[Series]:
    root = structure.root
    shapes = [("over ranks", double_tree(structure.ring, root))]
    if 1 < len(structure.nodes) < structure.topology.device_count:
        shapes.append(("over nodes", tree_over_nodes(structure.rings_of_nodes, root)))
    for title, trees in shapes:
        for pace in _TREE_PACES:
            yield _in_pieces(partial(_tree_variant, title, trees, pace), first=int(pace != _TREE_PACES[0]))


def _in_words(pieces: int) -> str:
    return "1 piece" if pieces == 1 else f"{pieces} pieces"


def _tree_variant(title: str, trees: list[Tree], pace: tuple[int, int], pieces: int) -> Variant:
    title = f"{title}, {_in_words(pieces)}, pace {pace[0]}:{pace[1]}"
    return Variant(title, len(trees) * pieces, pace, lambda cut, is_reversed: tree_broadcast(cut, trees), whole=True)


def _doubling(structure: Structure, base: str, most_parts: float) -> Iterator[Series]:
    for far_first in (False, True):
        yield _in_pieces(partial(_doubling_variant, far_first))


def _doubling_variant(far_first: bool, pieces: int) -> Variant:
    title = f"{'far' if far_first else 'near'} first, {pieces} pieces"
    return Variant(title, pieces, (pieces, 1), lambda cut, is_reversed: doubling_allgather(cut, far_first))


def _direct(structure: Structure, base: str, most_parts: float) -> Iterator[Series]:
    yield _in_pieces(partial(_direct_variant, structure, base))


def _direct_variant(structure: Structure, base: str, pieces: int) -> Variant:
    count = structure.topology.device_count
    roots = list(range(count)) if structure.root is None else [structure.root]

    def sends(cut: Cut, is_reversed: bool) -> list[Send]:
        return spread_directly(cut, roots, count) if base in ("allgather", "broadcast") else direct_sends(cut)

    return Variant(f"{pieces} pieces", pieces, (pieces, 1), sends)


def _hierarchical(structure: Structure, base: str, most_parts: float) -> Iterator[Series]:
    if base == "alltoall":
        yield _in_pieces(partial(_rail_variant, structure, base, "", None))
        return
    yield _in_pieces(partial(_rail_variant, structure, base, "rings, ", structure.rings_of_nodes))
    if base == "allgather":
        yield _in_pieces(partial(_rail_variant, structure, base, "straight, ", None))


def _rail_variant(
    structure: Structure, base: str, title: str, rings: list[list[list[int]]] | None, pieces: int
) -> Variant:
    def sends(cut: Cut, is_reversed: bool) -> list[Send]:
        turned = rings if rings is None or not is_reversed else [[ring[::-1] for ring in node] for node in rings]
        if base == "allgather":
            return rail_allgather(cut, structure.nodes, turned)
        if base == "alltoall":
            return rail_alltoall(cut, structure.nodes)
        assert turned is not None
        assert structure.root is not None
        return rail_broadcast(cut, structure.nodes, turned, structure.root)

    count = 1 if rings is None else len(rings[0])
    pace = (1, 1) if base == "broadcast" else (pieces, 1)
    return Variant(f"{title}{pieces} pieces", count * pieces, pace, sends)


_SERIES: dict[str, Callable[[Structure, str, float], Iterator[Series]]] = {
    "ring": _ring,
    "tree": _tree,
    "doubling": _doubling,
    "direct": _direct,
    "hierarchical": _hierarchical,
}
