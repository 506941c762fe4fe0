"""Direct: every rank sends to every other what that one wants, the nearest in number first."""

from __future__ import annotations

from gapless.encodings.taccl.baselines.cut import Cut
from gapless.encodings.taccl.baselines.transfers import Send

__all__ = ["direct_sends", "spread_directly"]


def direct_sends(cut: Cut) -> list[Send]:
    """All that a collective that doesn't reduce has to move, a message for each pair of ranks and part."""
    collective = cut.collective
    pairs: dict[tuple[int, int], list[int]] = {}
    for chunk, (owner, ranks) in enumerate(zip(collective.owners, collective.destinations, strict=True)):
        for rank in ranks:
            pairs.setdefault((owner, rank), []).append(chunk)
    return _rounds(cut, {pair: tuple(chunks) for pair, chunks in pairs.items()}, collective.rank_count)


def spread_directly(cut: Cut, roots: list[int], count: int) -> list[Send]:
    """Block b from rank `roots[b]` to all others."""
    pairs = {(root, rank): cut.blocks[b] for b, root in enumerate(roots) for rank in range(count) if rank != root}
    return _rounds(cut, pairs, count)


def _rounds(cut: Cut, pairs: dict[tuple[int, int], tuple[int, ...]], count: int) -> list[Send]:
    """In round d each rank sends to the d-th after it: nobody receives twice in a round."""
    order = sorted(pairs, key=lambda pair: ((pair[1] - pair[0]) % count, pair))
    sends = []
    for source, target in order:
        for part in range(cut.parts):
            chunks = cut.part(pairs[source, target], part)
            if chunks:
                sends.append(Send(part, (target - source) % count - 1, source, target, chunks))
    return sends
