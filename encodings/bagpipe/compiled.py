"""The compiled loops: each is what a function over arrays does, in one pass, with the same results.

Imported where numba is installed and there is work for it (`fast.loops`).
"""

from gapless.encodings.bagpipe.compiled_ids import distinct_ids, entered, found_rows, left, places
from gapless.encodings.bagpipe.compiled_sharing import (
    added_costs,
    between_trainers,
    count_uses,
    move_uses,
    one_user,
    settled,
    used_by_trainer,
)
from gapless.encodings.bagpipe.compiled_transport import assigned, costs

__all__ = [
    "added_costs",
    "assigned",
    "between_trainers",
    "costs",
    "count_uses",
    "distinct_ids",
    "entered",
    "found_rows",
    "left",
    "move_uses",
    "one_user",
    "places",
    "settled",
    "used_by_trainer",
]
