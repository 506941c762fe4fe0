"""Double binary tree: two trees in which the inner ranks of one are leaves of the other, each with half of the data.

In both, position p hangs below the position that has p's lowest set bit moved up by one. The second tree is the mirror
image of the first (an even number of positions), or the first shifted by one (an odd one). Where there are several
nodes the positions are nodes, and inside a node the data go along a chain, as in NCCL.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from gapless.encodings.taccl.baselines.cut import Cut
from gapless.encodings.taccl.baselines.transfers import Send

__all__ = ["Tree", "double_tree", "tree_broadcast", "tree_over_nodes"]


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
