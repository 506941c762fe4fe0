"""Roots: the rank from which each chunk is spread, and at which it is summed up first where it is reduced."""

from __future__ import annotations

from gapless.ir.collective import Collective

__all__ = ["roots_of"]


def roots_of(collective: Collective) -> tuple[int, ...]:
    """`roots[c]`: the rank that owns chunk c; where the collective reduces, one of those that want its sum.

    Of several that want it, it is one that has a part of it, if there is such a rank. Chunks for which the same ranks
    come into question are dealt to these in equal runs, so that the chunks of an ALLREDUCE have the roots that
    REDUCESCATTER gives them. A sum of one part, or that nobody wants, has its root where it starts.
    """
    if not collective.reduces:
        return collective.owners
    classes: dict[tuple[int, ...], list[int]] = {}
    for chunk, (parts, wants) in enumerate(zip(collective.contributors, collective.destinations, strict=True)):
        both = tuple(sorted({*parts} & {*wants}))
        ranks = parts[:1] if len(parts) == 1 or not wants else both or wants
        classes.setdefault(ranks, []).append(chunk)
    roots = [0] * collective.chunk_count
    for ranks, chunks in classes.items():
        for number, chunk in enumerate(chunks):
            roots[chunk] = ranks[number * len(ranks) // len(chunks)]
    return tuple(roots)
