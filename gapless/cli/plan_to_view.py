"""What `plot` and `report` look at: a plan with its events, and its replay, where that was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.errors import InputError

if TYPE_CHECKING:
    from gapless.checker.inspection import Inspection
    from gapless.io.plan import SavedPlan

__all__ = ["Looked", "keep_seen", "look"]


@dataclass(frozen=True)
class Looked:
    """A plan with its events, or without where those are too many. `name`: what is kept of it goes by.

    `is_kept`: whether it comes from there; `seen`: what its replay had to show, None where that wasn't kept.
    """

    path: str
    plan: SavedPlan
    name: str
    is_kept: bool = False
    seen: Inspection | None = None


def look(path: str, parts: str | None = None, is_replayed: bool = True, is_whole: bool = False) -> Looked:
    """Look at a plan file, or at `parts` of it.

    `is_replayed`: whether what is kept will do only with its replay. Raises `InputError`; not for too many events, if
    `is_whole`.
    """
    from gapless.io.kept import find_kept, name_of
    from gapless.io.plan import excerpt_of
    from gapless.result import read_saved

    name = name_of(path) if parts is None else ""
    if (found := find_kept(name)) and (found.seen is not None or not is_replayed):
        return Looked(path, found.plan, name, True, found.seen)
    plan = read_saved(path)
    try:
        return Looked(path, excerpt_of(plan, parts), name)
    except InputError:
        if not is_whole:
            raise
        return Looked(path, plan, name)


def keep_seen(looked: Looked, seen: Inspection | None) -> None:
    """Keep what was seen, where that is more than what is kept already."""
    from gapless.io.kept import keep

    if not looked.is_kept:
        keep(looked.name, looked.path, looked.plan, seen)
