"""Ring: every rank sends on to the next what it has from the one before."""

from __future__ import annotations

from itertools import pairwise

from gapless.encodings.taccl.baselines.cut import Cut
from gapless.encodings.taccl.baselines.transfers import Send

__all__ = ["chain_broadcast", "ring_allgather"]


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
        start = ring.index(root)
        ranks = [*ring[start:], *ring[:start]]
        for step, (source, target) in enumerate(pairwise(ranks)):
            sends.append(Send(part // len(rings), step, source, target, cut.part(cut.blocks[0], part)))
    return sends
