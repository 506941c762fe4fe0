"""The rules by which Optimus-CC compresses (Song et al., 2023), by the letters of its tables: `1f1b+cb+fe+sc75`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

__all__ = ["PUBLISHED", "RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """A schedule of the field, and what of it is compressed.

    `hops`: none, the epilogue's (section 5.2), or all. `fuses_embedding`: section 6. `share`: of the ranks whose sums
    among replicas are compressed, from the first one on (section 7).
    """

    schedule: str = "1f1b"
    hops: str = "none"
    fuses_embedding: bool = False
    share: float = 0.0

    @property
    def compresses(self) -> bool:
        """Whether anything goes in a mode of a table."""
        return self.hops != "none" or self.share > 0

    @property
    def embedding(self) -> str:
        """How a shared embedding's gradients are summed."""
        return "fused" if self.fuses_embedding else "separate"


_HOPS = {"": "none", "+cb": "epilogue", "+naive-cb": "all"}
_EMBEDDING = {"": False, "+fe": True}
_SHARE = {"": 0.0, "+sc25": 0.25, "+sc50": 0.5, "+sc75": 0.75, "+dp": 1.0}
_ADDED = {
    hops + embedding + share: (_HOPS[hops], _EMBEDDING[embedding], _SHARE[share])
    for hops, embedding, share in product(_HOPS, _EMBEDDING, _SHARE)
}

RECIPES: dict[str, Recipe] = {
    schedule + added: Recipe(schedule, *values)
    for schedule in ("1f1b", "interleaved-1f1b")
    for added, values in _ADDED.items()
    if added
}
"""CB: compressed backpropagation, of the epilogue or naively of all; FE: fused embedding; SC: selective stages, so many
percent of the ranks; DP: the sums of all.
"""

PUBLISHED = ("", "+cb", "+naive-cb", "+cb+fe", "+cb+fe+sc75", "+cb+fe+dp")
"""What the paper adds to a schedule."""
