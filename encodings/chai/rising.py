"""Rises of a model's loss for the best heads of each layer and count, by output distance. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.head_map import nearest
from gapless.encodings.chai.medians import guessed, proven
from gapless.encodings.chai.problem import Problem
from gapless.options import Deadline, SolveOptions
from gapless.profiles.heads.profile import HeadProfile
from gapless.profiles.heads.rises import Rises, counts_to_measure

if TYPE_CHECKING:
    from gapless.torch.heads.models import LanguageModel

__all__ = ["rises_of"]


def rises_of(
    model: LanguageModel, profile: HeadProfile, sequences: Any, options: SolveOptions,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[float, Rises | None]:  # fmt: skip
    """The mean loss with all heads, and its rises on sequences of shape (count, length).

    None for the rises where it is over before one head in each layer is measured.
    """
    from gapless.torch.heads.rising import measured_rises

    deadline = Deadline(options)
    say("the best heads of each layer for every count ...")
    kept = _best_heads(profile, deadline)

    def map_of(layer: int, count: int) -> tuple[list[int], NDArray[np.int64]]:
        heads = np.flatnonzero(kept[layer, count - 1]).tolist()
        return heads, nearest(profile.output[layer], heads, profile.group)

    counts = counts_to_measure(profile.key_heads)
    loss, rise = measured_rises(model, map_of, counts, sequences, lambda: deadline.over, say)
    return loss, None if np.isnan(rise[:, 0]).any() else Rises(rise, kept)


def _best_heads(profile: HeadProfile, deadline: Deadline) -> NDArray[np.bool_]:
    """As `Rises.kept`: of each layer and count, those of the exact p-median on the output distance."""
    kept = np.zeros((profile.layers, profile.key_heads, profile.key_heads), dtype=np.bool_)
    for layer, cost in enumerate(Problem(profile, 0.0, "output").cost):
        for place, heads in enumerate(proven(cost, guessed(cost), deadline).kept):
            # Fewer than asked for are as good where heads are alike: others fill up.
            more = [head for head in range(profile.key_heads) if head not in heads]
            kept[layer, place, [*heads, *more][: place + 1]] = True
    return kept
