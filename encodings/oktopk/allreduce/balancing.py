"""Balancing (phase 2): the fewest moved words after which no rank holds more than its even share of the entries.

Whoever holds more than ceil(K / P) of K entries must send away the surplus, and nobody else need send anything; so the
sum of the surpluses is the least that is moved, and any transport of them to ranks with room moves just that. Ranks of
the same node are served first, which moves the least between nodes: what a node has too much of, no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["balancing_moves", "even_share"]


def even_share(entries: int, ranks: int) -> int:
    """ceil(K / P)."""
    return -(-entries // ranks)


def balancing_moves(held: Sequence[int], node_of: Sequence[int] | None = None) -> list[tuple[int, int, int]]:
    """(from, to, entries) such that every rank then holds at most ceil(K / P) entries, with the least sum of entries.

    `held`: entries of each rank. `node_of`: the node of each, one node for all if None. The same numbers give the same
    moves on every rank. A rank sends the last of its entries, in the order of its moves.

    >>> balancing_moves([7, 0, 1, 0])
    [(0, 1, 2), (0, 3, 2), (0, 2, 1)]
    """
    count = np.asarray(held, dtype=np.int64)
    share, moves = even_share(int(count.sum()), len(count)), list[tuple[int, int, int]]()
    surplus, room = np.maximum(count - share, 0), np.maximum(share - count, 0)
    node = np.zeros(len(count), dtype=np.int64) if node_of is None else np.asarray(node_of, dtype=np.int64)
    for nodes in [[number] for number in np.unique(node).tolist()] if node_of is not None else []:
        _match(surplus, room, np.isin(node, nodes), moves)
    _match(surplus, room, np.ones(len(count), dtype=np.bool_), moves)
    return moves


def _match(
    surplus: NDArray[np.int64], room: NDArray[np.int64], among: NDArray[np.bool_], moves: list[tuple[int, int, int]]
) -> None:
    """Move what some ranks have too much of, the largest surplus to the largest room; both arrays are used up."""
    givers = [rank for rank in np.argsort(-surplus, kind="stable").tolist() if among[rank] and surplus[rank]]
    takers = [rank for rank in np.argsort(-room, kind="stable").tolist() if among[rank] and room[rank]]
    while givers and takers:
        source, target = givers[0], takers[0]
        entries = int(min(surplus[source], room[target]))
        moves.append((source, target, entries))
        surplus[source] -= entries
        room[target] -= entries
        givers, takers = givers[0 if surplus[source] else 1 :], takers[0 if room[target] else 1 :]
