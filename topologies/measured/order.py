"""The order of devices in which a measured node is wired as a machine that is known, what is near its NIC first.

A machine's links leave a few such orders, its automorphisms: an NDv2 has four. Sketches and plans of the known machine
hold in any of them, and the first one leaves data near the NIC (section 5.3 of the chapter on communication sketches).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.topologies.measured.experiments import Pair
from gapless.topologies.measured.structure import classes_of
from gapless.topologies.node import NodeTemplate

__all__ = ["order_as"]

_SAME_BETA = 1.2
"""Links whose inverse bandwidths differ by less than this factor are of one kind."""


def order_as(known: NodeTemplate, beta: Mapping[Pair, float], near_first: Sequence[int]) -> tuple[int, ...] | None:
    """The ranks of a node in the order of `known`'s: of all orders with its kinds of links, the one nearest to the NIC.

    `beta`: inverse bandwidths of ordered pairs of ranks, s/byte. `near_first`: the ranks, those near the NIC first.
    Pairs that `known` does not join are the slowest ones, over PCIe say. None where the node is wired
    otherwise.
    """
    if len(near_first) != known.ranks_per_node:
        return None
    kinds = _kinds(_beta_of(known))
    most = int(kinds.max())
    ranks = sorted(near_first)
    place = {rank: number for number, rank in enumerate(ranks)}
    measured = np.full(kinds.shape, np.inf)
    for a in ranks:
        for b in ranks:
            if a != b:
                measured[place[a], place[b]] = beta[a, b]
    found = np.minimum(_kinds(measured), most)
    chosen = _extended([], [place[rank] for rank in near_first], kinds, found)
    return None if chosen is None else tuple(ranks[number] for number in chosen)


def _beta_of(known: NodeTemplate) -> NDArray[np.float64]:
    """Inverse bandwidths of all ordered pairs: inf where there is no link, and on the diagonal."""
    beta = np.full((known.ranks_per_node,) * 2, np.inf)
    for link in known.links:
        beta[link.source, link.target] = min(beta[link.source, link.target], link.beta_s_per_byte)
    for switch in known.switches:
        for a in switch.ranks:
            for b in switch.ranks:
                if a != b:
                    beta[a, b] = min(beta[a, b], switch.beta_s_per_byte)
    return beta


def _kinds(beta: NDArray[np.float64]) -> NDArray[np.int64]:
    """The kind of each ordered pair, 0 for the fastest; what is not joined is slower than all else."""
    slowest = float(np.max(beta[np.isfinite(beta)], initial=1.0))
    off_diagonal = ~np.eye(len(beta), dtype=np.bool_)
    kinds = np.full(beta.shape, -1, dtype=np.int64)
    kinds[off_diagonal] = classes_of(np.where(np.isfinite(beta), beta, 1e3 * slowest)[off_diagonal], _SAME_BETA)
    return kinds


def _extended(
    chosen: list[int], near_first: Sequence[int], kinds: NDArray[np.int64], found: NDArray[np.int64]
) -> list[int] | None:
    """The first order that begins so, by `near_first`, and has the same kinds of links; None if there is none."""
    number = len(chosen)
    if number == len(near_first):
        return chosen
    for rank in near_first:
        if rank in chosen:
            continue
        there, back = found[rank, chosen], found[chosen, rank]
        if (there == kinds[number, :number]).all() and (back == kinds[:number, number]).all():
            whole = _extended([*chosen, rank], near_first, kinds, found)
            if whole is not None:
                return whole
    return None
