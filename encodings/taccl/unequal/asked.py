"""What a question says of unlike shares: a matrix or a vector of bytes, or measured loads of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.encodings.taccl.question import Question
from gapless.encodings.taccl.unequal.experts import ExpertLoads
from gapless.errors import InputError
from gapless.io.formats.amounts_file import Rows, read_rows, rows_of_array
from gapless.ir.amounts import ALLTOALLV, VECTORS, Amounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["amounts_asked", "experts_asked", "is_unequal"]

_OF_EXPERTS = ("expert_token_bytes", "expert_placement", "expert_direction")
_LEFT_OUT = {
    "size": "the matrix says it", "root": "it has none", "target": "it has none",
    "sketch": "chunks of a sketch are of one size", "sketch_file": "chunks of a sketch are of one size",
    "collective_file": "the matrix says it all", "ranks": "give 0 bytes to ranks outside of a group",
    "group": "give 0 bytes to ranks outside of a group", "groups_file": "give 0 bytes to ranks outside of a group",
    "path_slack": "it is for plans in chunks of one size", "chunks": "chunks are of unlike sizes",
}  # fmt: skip
"""Fields that don't go with unlike shares, and why."""


def is_unequal(asked: Question) -> bool:
    """Whether the shares of the collective are unlike. Raises `InputError` for fields that don't go with that, or need
    it.
    """
    is_vector = isinstance(asked.collective, str) and asked.collective in VECTORS
    given = [name for name in ("matrix", "expert_loads") if getattr(asked, name) is not None]
    if len(given) > 1:
        raise InputError("give `matrix` or `expert_loads`, not both")
    if "expert_loads" not in given:
        for name in _OF_EXPERTS:
            if getattr(asked, name) != getattr(Question, name):
                raise InputError(f"{name}: is for `expert_loads`, got {getattr(asked, name)!r} without them")
    if not is_vector:
        if given:
            rule = f"must be one of {', '.join(sorted(VECTORS))} with `{given[0]}`"
            raise InputError(f"collective: {rule}, got {asked.collective or 'none'}")
        return False
    if not given:
        what = "`matrix` or `expert_loads`" if asked.collective == ALLTOALLV else "`matrix`, bytes by rank"
        raise InputError(f"collective: {asked.collective} needs {what}")
    _check_others(asked)
    return True


def _check_others(asked: Question) -> None:
    for name, why in _LEFT_OUT.items():
        if getattr(asked, name) is not None:
            raise InputError(f"{name}: must be left out with {asked.collective}: {why}")
    if asked.method != Question.method:
        raise InputError(f"method: must be auto with {asked.collective}, got {asked.method!r}")
    if asked.expert_loads is not None and asked.collective != ALLTOALLV:
        raise InputError(f"expert_loads: are for {ALLTOALLV}, got {asked.collective}")


def amounts_asked(asked: Question) -> Amounts:
    """The bytes of all shares. Raises `InputError` naming file or field."""
    collective = str(asked.collective)
    if asked.matrix is not None:
        rows, where = _rows(asked.matrix, "matrix")
        try:
            return Amounts(collective, rows)
        except InputError as error:
            raise error if where == "matrix" else InputError(f"{where}: {error}") from None
    experts = experts_asked(asked)
    assert experts is not None
    return experts.amounts


def experts_asked(asked: Question) -> ExpertLoads | None:
    """The loads of experts that are given."""
    if asked.expert_loads is None:
        return None
    if asked.expert_token_bytes is None:
        raise InputError("expert_token_bytes: must be given with `expert_loads`, such as 8KB for 4,096 numbers of bf16")
    rows, _ = _rows(asked.expert_loads, "expert_loads", has_units=False)
    placement = None if asked.expert_placement is None else tuple(asked.expert_placement)
    return ExpertLoads(rows, asked.expert_token_bytes, placement, asked.expert_direction)


def _rows(given: str | NDArray[Any], field: str, has_units: bool = True) -> tuple[Rows, str]:
    """The rows of a file or an array, and what messages call it."""
    if isinstance(given, np.ndarray):
        return rows_of_array(given, field), field
    return read_rows(given, has_units), str(given)
