"""Templates: the sends of each library algorithm, from rank to rank and step by step, on any topology.

*Ring*: every rank sends on to the next what it has from the one before. *Double binary tree*: two trees in which the
inner ranks of one are leaves of the other, each with half of the data. In both, position p hangs below the position
that has p's lowest set bit moved up by one. The second tree is the mirror image of the first (an even number of
positions), or the first shifted by one (an odd one). Where there are several nodes the positions are nodes, and inside
a node the data go along a chain, as in NCCL.

*Recursive doubling*: what a rank has doubles in every step; backwards it is recursive halving. *Direct*: every rank
sends to every other what that one wants, the nearest in number first. *Hierarchical*: between nodes along rails (rank i
of a node to rank i of the others), and inside the nodes. Backwards and forwards together it is the usual ALLREDUCE of
clusters: reduce inside the node, then rail by rail between the nodes, then spread inside the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gapless.encodings.taccl.baselines.cut import Cut
from gapless.encodings.taccl.baselines.transfers import Send

__all__ = [
    "Tree",
    "chain_broadcast",
    "direct_sends",
    "double_tree",
    "doubling_allgather",
    "rail_allgather",
    "rail_alltoall",
    "rail_broadcast",
    "ring_allgather",
    "spread_directly",
    "tree_broadcast",
    "tree_over_nodes",
]


def ring_allgather(cut: Cut, rings: list[list[int]]) -> list[Send]:
    """Ring k carries every k-th part; part q is piece q // rings. Block b starts on rank b."""
    sends = []
    for part in range(cut.parts):
        ring = rings[part % len(rings)]
        for step in range(len(ring) - 1):
            for place, source in enumerate(ring):
                chunks = cut.part(cut.blocks[ring[place - step]], part)
                sends.append(Send(part // len(rings), step, source, ring[(place + 1) % len(ring)], chunks))
    return sends


def chain_broadcast(cut: Cut, rings: list[list[int]], root: int) -> list[Send]:
    """The root's parts go round each ring from the root on, without the last hop back."""
    sends = []
    for part in range(cut.parts):
        ring = rings[part % len(rings)]
        for step, (source, target) in enumerate(pairwise(_chain(ring, 0, root))):
            sends.append(Send(part // len(rings), step, source, target, cut.part(cut.blocks[0], part)))
    return sends


@dataclass(frozen=True)
class Tree:
    """`children[r]`: the ranks that rank r sends to, in order."""

    root: int
    children: dict[int, list[int]]


def double_tree(ranks: list[int], root: int | None) -> list[Tree]:
    """Two trees over the ranks, each with its own root; with a `root`, both hang below it."""
    if root is None:
        return [_placed(ranks, second) for second in (False, True)]
    others = [rank for rank in ranks if rank != root]
    trees = [_placed(others, second) for second in (False, True)]
    return [Tree(root, {root: [tree.root], **tree.children}) for tree in trees]


def tree_over_nodes(rings: list[list[list[int]]], root: int | None) -> list[Tree]:
    """Two trees over the nodes, whose data enter a node at one rank, tree by tree another, and run down its chain.

    `rings[m]`: rings through the ranks of node m. Below the `root`, its node comes first.
    """
    trees = []
    root_node = None if root is None else next(node for node, some in enumerate(rings) if root in some[0])
    for number, upper in enumerate(double_tree(list(range(len(rings))), root_node)):
        chains = [
            _chain(rings_of_node[0], number, root if node == root_node else None)
            for node, rings_of_node in enumerate(rings)
        ]
        children: dict[int, list[int]] = {}
        for node, chain in enumerate(chains):
            children[chain[0]] = [chains[child][0] for child in upper.children.get(node, [])]
            for source, target in pairwise(chain):
                children.setdefault(source, []).append(target)
        trees.append(Tree(chains[upper.root][0], children))
    return trees


def tree_broadcast(cut: Cut, trees: list[Tree]) -> list[Send]:
    """All blocks, part by part and tree by tree in turn, from the trees' roots to everybody."""
    whole = tuple(chunk for block in cut.blocks for chunk in block)
    sends = []
    for part in range(cut.parts):
        tree, chunks = trees[part % len(trees)], cut.part(whole, part)
        reached = [(tree.root, 0)]
        for rank, step in reached:
            for turn, child in enumerate(tree.children.get(rank, [])):
                sends.append(Send(part // len(trees), step + turn, rank, child, chunks))
                reached.append((child, step + turn + 1))
    return sends


def _chain(ring: list[int], start: int, root: int | None) -> list[int]:
    """A ring from the root on, or else from its place `start`."""
    first = start % len(ring) if root is None else ring.index(root)
    return [*ring[first:], *ring[:first]]


def _placed(ranks: list[int], second: bool) -> Tree:
    count = len(ranks)
    if not second:
        at = ranks
    elif count % 2:
        at = [*ranks[1:], *ranks[:1]]
    else:
        at = ranks[::-1]
    children: dict[int, list[int]] = {rank: [] for rank in at}
    for place in range(1, count):
        children[at[_parent(place, count)]].append(at[place])
    return Tree(at[0], children)


def _parent(place: int, count: int) -> int:
    bit = place & -place
    up = (place ^ bit) | (bit << 1)
    return up if up < count else place ^ bit


def doubling_allgather(cut: Cut, far_first: bool) -> list[Send]:
    """ALLGATHER over any number n of ranks.

    n a power of two: ranks that differ in one bit exchange all they have, the lowest bit first, or with `far_first` the
    highest, so that few data go far. Else Bruck's algorithm, which needs ceil(log2 n) steps as well: in step s rank r
    sends to r - 2^s what it has, and in the last one what is still missing there.
    """
    count = len(cut.blocks)
    bits = (count - 1).bit_length()
    if count & (count - 1):
        return _bruck(cut, count, bits)
    sends = []
    has = [[rank] for rank in range(count)]
    for step, bit in enumerate(reversed(range(bits)) if far_first else range(bits)):
        for rank in range(count):
            sends += _parts(cut, step, rank, rank ^ (1 << bit), has[rank])
        has = [sorted(has[rank] + has[rank ^ (1 << bit)]) for rank in range(count)]
    return sends


def _bruck(cut: Cut, count: int, bits: int) -> list[Send]:
    sends = []
    for step in range(bits):
        length = min(1 << step, count - (1 << step))
        for rank in range(count):
            blocks = [(rank + k) % count for k in range(length)]
            sends += _parts(cut, step, rank, (rank - (1 << step)) % count, blocks)
    return sends


def _parts(cut: Cut, step: int, source: int, target: int, blocks: list[int]) -> list[Send]:
    return [
        Send(
            part, step, source, target, tuple(chunk for block in blocks for chunk in cut.part(cut.blocks[block], part))
        )
        for part in range(cut.parts)
    ]


def direct_sends(cut: Cut) -> list[Send]:
    """All that a collective that doesn't reduce has to move, a message for each pair of ranks and part."""
    collective = cut.collective
    pairs: dict[tuple[int, int], list[int]] = {}
    for chunk, (owner, ranks) in enumerate(zip(collective.owners, collective.destinations, strict=True)):
        for rank in ranks:
            pairs.setdefault((owner, rank), []).append(chunk)
    return _rounds(cut, pairs, collective.rank_count)


def spread_directly(cut: Cut, roots: list[int], count: int) -> list[Send]:
    """Block b from rank `roots[b]` to all others."""
    pairs = {(root, rank): cut.blocks[b] for b, root in enumerate(roots) for rank in range(count) if rank != root}
    return _rounds(cut, pairs, count)


def _rounds(
    cut: Cut, pairs: Mapping[tuple[int, int], Sequence[int]], count: int, step: int | None = None
) -> list[Send]:  # fmt: skip
    """In round d each rank sends to the d-th after it: nobody receives twice in a round. `step`: that of all rounds."""
    order = sorted(pairs, key=lambda pair: ((pair[1] - pair[0]) % count, pair))
    sends = []
    for source, target in order:
        for part in range(cut.parts):
            chunks = cut.part(tuple(pairs[source, target]), part)
            if chunks:
                at = (target - source) % count - 1 if step is None else step
                sends.append(Send(part, at, source, target, chunks))
    return sends


Rings = list[list[list[int]]]
"""For each node, rings through its ranks."""


def rail_allgather(cut: Cut, nodes: list[list[int]], rings: Rings | None) -> list[Send]:
    """Each block goes to its rail on every node, and from there round the node's rings, or straight to its ranks.

    `nodes[m]`: the ranks of node m. Each ring takes its share of the parts.
    """
    sends = []
    for part in range(cut.parts):
        for distance in range(len(nodes)):
            for owner_node, ranks in enumerate(nodes):
                node = (owner_node + distance) % len(nodes)
                for local, owner in enumerate(ranks):
                    chunks, entry = cut.part(cut.blocks[owner], part), nodes[node][local]
                    if distance:
                        sends.append(Send(part, distance - 1, owner, entry, chunks))
                    for turn, (source, target) in enumerate(_spread(nodes[node], rings, node, part, entry)):
                        sends.append(Send(part, distance + turn, source, target, chunks))
    return sends


def rail_alltoall(cut: Cut, nodes: list[list[int]]) -> list[Send]:
    """What is for rail i goes to rank i of its own node first, and then in one message to each other node."""
    rail = {rank: local for ranks in nodes for local, rank in enumerate(ranks)}
    node_of = {rank: node for node, ranks in enumerate(nodes) for rank in ranks}
    first: dict[tuple[int, int], list[int]] = {}
    second: dict[tuple[int, int], list[int]] = {}
    collective = cut.collective
    for chunk, (owner, targets) in enumerate(zip(collective.owners, collective.destinations, strict=True)):
        for target in targets:
            relay = nodes[node_of[owner]][rail[target]]
            if relay != owner:
                first.setdefault((owner, relay), []).append(chunk)
            if relay != target:
                second.setdefault((relay, target), []).append(chunk)
    return _rounds(cut, first, len(rail), 0) + _rounds(cut, second, len(rail), 1)


def rail_broadcast(cut: Cut, nodes: list[list[int]], rings: Rings, root: int) -> list[Send]:
    """From node to node along the root's rail, and at once round the rings of each."""
    root_node = next(node for node, ranks in enumerate(nodes) if root in ranks)
    local = nodes[root_node].index(root)
    sends = []
    for part in range(cut.parts):
        chunks = cut.part(cut.blocks[0], part)
        for distance in range(len(nodes)):
            node = (root_node + distance) % len(nodes)
            entry = nodes[node][local]
            if distance:
                sends.append(Send(part, distance - 1, nodes[node - 1][local], entry, chunks))
            for turn, (source, target) in enumerate(_spread(nodes[node], rings, node, part, entry)):
                sends.append(Send(part, distance + turn, source, target, chunks))
    return sends


def _spread(ranks: list[int], rings: Rings | None, node: int, part: int, entry: int) -> list[tuple[int, int]]:
    """The hops that bring a part from its entry to all ranks of the node, in order."""
    if rings is None:
        place = ranks.index(entry)
        return [(entry, rank) for rank in (*ranks[place + 1 :], *ranks[:place])]
    return list(pairwise(_chain(rings[node][part % len(rings[node])], 0, entry)))
