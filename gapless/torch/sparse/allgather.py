"""TopkA: each rank gets all entries of all others, and adds them itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.entries import WORDS_PER_ENTRY, Entries, added, gathered_rows

__all__ = ["TopkAllgather"]


class TopkAllgather:
    """An exchange for `SparseState` among the ranks of a group. `received_words`: by this rank, in all calls."""

    def __init__(self, group: Any = None) -> None:
        self.group, self.received_words = group, 0

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The sums of all ranks' entries of a gradient of `length` entries."""
        ranks = rank_count(self.group)
        counts = gathered_rows(torch.tensor([len(given)]), self.group).flatten().tolist()
        most = WORDS_PER_ENTRY * max(counts)  # gloo gathers what is equally long
        padded = torch.nn.functional.pad(given.packed(), (0, most - WORDS_PER_ENTRY * len(given)))
        rows = gathered_rows(padded, self.group)
        self.received_words += (ranks - 1) * most
        parts = [row[: WORDS_PER_ENTRY * count] for row, count in zip(rows, counts, strict=True)]
        return added([Entries.unpacked(part) for part in parts], 0, length)

    def state_dict(self) -> dict[str, Any]:
        """What was received."""
        return {"received_words": self.received_words}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self.received_words = int(data["received_words"])
