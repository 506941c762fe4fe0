"""Row map: in which row of the cache each id lies; a hash table on arrays that takes whole batches of ids.

Open addressing with triangular probing in a table of a power of two, at most half full. Each round of probing is a few
array operations on the ids that are still without an answer; on average an id takes two rounds. Removed entries leave a
mark that a later id may take; when marks fill the table it is built anew, which costs constant time an id added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.loops import ids_loops

__all__ = ["RowMap", "hashed_slots"]

_EMPTY, _REMOVED = -1, -2
_NO_ID = -1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbouring ids land far apart

Ids = NDArray[np.int64]
Rows = NDArray[np.int32]


def hashed_slots(ids: Ids, bits: int) -> NDArray[np.int64]:
    """A number in 0..2^bits - 1 for each id, evenly spread for ids that lie close together or at equal distances."""
    mixed = ids ^ (ids >> 22)
    hashed = mixed.view(np.uint64) * _MULTIPLIER
    hashed >>= np.uint64(64 - bits)
    return hashed.view(np.int64)


class RowMap:
    """Ids >= 0 in rows 0, 1, 2, ...; a freed row is the next to be given out, so that rows stay below the peak.

    `ids[row]`: what lies in a row. `last_use[row]`: the last batch known to use it.
    `mark[row]`: one more than the batch that left when the row was among the following ones.
    Memory grows with the most ids held at a time: 16 to 32 bytes a row for the table, 24 to 48 for the columns.
    """

    def __init__(self) -> None:
        self.count = 0
        # Two more entries at the end stand for the marks of empty and removed slots, which are indices -1 and -2.
        self.ids: Ids = np.full(2, _NO_ID, dtype=np.int64)
        self.last_use: Rows = np.empty(0, dtype=np.int32)
        self.mark: Rows = np.empty(0, dtype=np.int32)
        self._free: Rows = np.empty(0, dtype=np.int32)
        self._slot_of_row: Rows = np.empty(0, dtype=np.int32)
        self._row_in_slot: NDArray[np.int32] = np.full(16, _EMPTY, dtype=np.int32)
        self._taken = 0

    def find(self, ids: Ids) -> Rows:
        """The row of each id, -1 where it isn't in the map."""
        if (compiled := ids_loops(len(ids))) is not None:
            rows: Rows = compiled.found_rows(ids, self._row_in_slot, self.ids)
            return rows
        slots = self._first_slots(ids)
        rows = self._row_in_slot.take(slots)
        is_there = self.ids.take(rows) == ids
        open_ids = np.flatnonzero(~is_there & (rows != _EMPTY))
        rows[~is_there] = _EMPTY
        probe = 0
        slots, sought = slots[open_ids], ids[open_ids]
        while len(open_ids):
            probe += 1
            slots = self._next_slots(slots, probe)
            here = self._row_in_slot.take(slots)
            is_there = self.ids.take(here) == sought
            rows[open_ids[is_there]] = here[is_there]
            more = np.flatnonzero(~is_there & (here != _EMPTY))
            open_ids, slots, sought = open_ids[more], slots[more], sought[more]
        return rows

    def add(self, ids: Ids, last_use: int = 0) -> Rows:
        """Give each id a row, last used then; they must differ and not be in the map."""
        self._make_room(len(ids))
        rows = self._free[self.count : self.count + len(ids)].copy()
        self.count += len(ids)
        self.ids[rows] = ids
        self.last_use[rows] = last_use
        self._place(ids, rows)
        return rows

    def remove(self, rows: Rows) -> None:
        """Free rows that hold ids."""
        self._row_in_slot[self._slot_of_row[rows]] = _REMOVED
        self.ids[rows] = _NO_ID
        self.count -= len(rows)
        self._free[self.count : self.count + len(rows)] = rows

    def leave(self, rows: Rows, number: int, following: Rows) -> tuple[Ids, Rows, NDArray[np.bool_]]:
        """The ids in these rows, their last uses, and whether each is among the following rows.

        Those last used in batch `number` are removed then.
        """
        if (compiled := ids_loops(len(rows))) is not None:
            ids, last_use, in_next, self.count = compiled.left(
                rows, number, following, self.ids, self.last_use, self.mark, self._row_in_slot, self._slot_of_row,
                self._free, self.count,
            )  # fmt: skip
            return ids, last_use, in_next
        ids, last_use = self.ids.take(rows), self.last_use.take(rows)
        self.mark[following] = number + 1
        in_next = np.equal(self.mark.take(rows), number + 1)
        self.remove(rows[last_use == number])
        return ids, last_use, in_next

    def _first_slots(self, ids: Ids) -> NDArray[np.int64]:
        return hashed_slots(ids, len(self._row_in_slot).bit_length() - 1)

    def _next_slots(self, slots: NDArray[np.int64], probe: int) -> NDArray[np.int64]:
        return (slots + probe) & (len(self._row_in_slot) - 1)

    def _place(self, ids: Ids, rows: Rows) -> None:
        """Enter rows into the table; of those that meet in a slot the last stays, the others try on."""
        if (compiled := ids_loops(len(ids))) is not None:
            self._taken += compiled.entered(ids, rows, self._row_in_slot, self._slot_of_row)
            return
        probe, slots = 0, self._first_slots(ids)
        while len(rows):
            before = self._row_in_slot.take(slots)
            free = np.flatnonzero(before < 0)
            self._row_in_slot[slots[free]] = rows[free]
            entered = self._row_in_slot.take(slots) == rows
            self._taken += int(np.count_nonzero(entered & (before == _EMPTY)))
            self._slot_of_row[rows[entered]] = slots[entered]
            probe += 1
            more = np.flatnonzero(~entered)
            rows, slots = rows[more], self._next_slots(slots[more], probe)

    def _make_room(self, more: int) -> None:
        """Rows and slots for so many more ids."""
        needed, rows = self.count + more, len(self._free)
        if needed > rows:
            grown = max(needed, 2 * rows, 16)
            self.ids = np.concatenate([self.ids[:rows], np.full(grown - rows + 2, _NO_ID, dtype=np.int64)])
            zeros = np.zeros(grown - rows, dtype=np.int32)
            self.last_use = np.concatenate([self.last_use, zeros])
            self.mark = np.concatenate([self.mark, zeros])
            self._slot_of_row = np.concatenate([self._slot_of_row, zeros])
            self._free = np.concatenate([self._free, np.arange(rows, grown, dtype=np.int32)])
        if 2 * (self._taken + more) > len(self._row_in_slot):
            self._rebuild(needed)

    def _rebuild(self, needed: int) -> None:
        slots = len(self._row_in_slot)
        while slots < 4 * needed:
            slots *= 2
        self._row_in_slot = np.full(slots, _EMPTY, dtype=np.int32)
        self._taken = 0
        held = np.flatnonzero(self.ids[:-2] != _NO_ID)
        self._place(self.ids[held], held.astype(np.int32))
