"""The compiled loops: each is what a function over arrays does, in one pass, with the same results.

Imported where numba is installed and there is work for it (`fast.loops`).
"""

from gapless.encodings.bagpipe.compiled_ids import distinct_ids, entered, found_rows, left, places
from gapless.encodings.bagpipe.compiled_sharing import between_trainers, settled, used_by_trainer
from gapless.encodings.bagpipe.compiled_transport import assigned, costs

__all__ = [
    "assigned",
    "between_trainers",
    "costs",
    "distinct_ids",
    "entered",
    "found_rows",
    "left",
    "places",
    "settled",
    "used_by_trainer",
]
