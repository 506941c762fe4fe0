"""Homes: the rank from which each chunk is spread, and at which it is summed up first where it is reduced."""

from __future__ import annotations

from gapless.collective import Collective

__all__ = ["homes"]


def homes(collective: Collective) -> tuple[int, ...]:
    """`homes[c]`: the rank that owns chunk c; where the collective reduces, one of those that want its sum.

    Of several that want it, chunks that are wanted by the same ranks are dealt to these in equal runs, so that the
    chunks of an ALLREDUCE have the homes that REDUCESCATTER gives them. A sum that nobody wants is at home where it
    starts.
    """
    if not collective.reduces:
        return collective.owners
    classes: dict[tuple[int, ...], list[int]] = {}
    for chunk, ranks in enumerate(collective.destinations):
        classes.setdefault(ranks or collective.contributors[chunk][:1], []).append(chunk)
    home = [0] * collective.chunk_count
    for ranks, chunks in classes.items():
        for number, chunk in enumerate(chunks):
            home[chunk] = ranks[number * len(ranks) // len(chunks)]
    return tuple(home)
