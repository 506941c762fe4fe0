"""Which rank runs which stage, as it is asked: by a name, a map, or a file of one; or which placements are searched."""

from __future__ import annotations

from pathlib import Path

from gapless.encodings.pipeline.placement.named import PLACEMENTS, Placement, rank_of_stages
from gapless.encodings.pipeline.question import Question
from gapless.errors import InputError
from gapless.io.text_file import load_text

__all__ = ["placed", "searched"]

_WAVE_CHUNKS = 4
"""Stages a rank of a wave: down, up, down and up again (Hanayo's two waves)."""
_SEARCHED_CHUNKS = (2, 4)
"""Stages a rank of loops and Vs that are tried where the placement is searched."""
_MOST_PLACEMENT_BYTES = 1 << 20
"""Of a file of ranks."""


def searched(chunks: int | None) -> list[tuple[str, int]]:
    """The placements that are tried, and the stages a rank of each; `chunks`: only with so many."""
    several = _SEARCHED_CHUNKS if chunks is None else (chunks,)
    tried = [("linear", 1), *((name, each) for each in several for name in ("looped", "v")), ("bidirectional", 2)]
    return [(name, each) for name, each in tried if chunks in (None, each)]


def placed(asked: Question) -> tuple[Placement, int]:
    """The placement, by its name if it has one, and the stages a rank. A wave is a V that goes on."""
    placement, chunks = asked.placement, asked.chunks
    if isinstance(placement, str) and placement not in (*PLACEMENTS, "wave"):
        placement = _read_placement(placement)
    if isinstance(placement, str):
        usual = {"linear": 1, "wave": _WAVE_CHUNKS}.get(placement, 2)
        return "v" if placement == "wave" else placement, usual if chunks is None else chunks
    most = max(placement.count(rank) for rank in placement)
    names = ("linear",) if most == 1 else ("looped", "v")
    known = {tuple(rank_of_stages(name, asked.ranks, most).tolist()): name for name in names}
    return known.get(placement, placement), most if chunks is None else chunks


def _read_placement(path: str) -> tuple[int, ...]:
    """The ranks of the stages in a file, with commas or blanks between them."""
    names = f"{', '.join(PLACEMENTS)}, wave, auto"
    rule = f"placement: must be {names}, the ranks of the stages or a file of them, got {path!r}"
    if not Path(path).is_file():
        raise InputError(rule)
    words = load_text(path, _MOST_PLACEMENT_BYTES).replace(",", " ").split()
    if not words or not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        raise InputError(f"{rule}, which has other words than ranks")
    return tuple(map(int, words))
