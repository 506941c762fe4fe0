"""How much a model's loss on a text rises when one layer alone shares heads. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.torch.heads.models import LanguageModel, mean_loss
from gapless.torch.heads.sharing import sharing

__all__ = ["measured_rises"]

Floats = NDArray[np.float64]
MapOf = Callable[[int, int], tuple[Sequence[int], Any]]
"""The key heads that a layer keeps at a count, ascending, and the head whose attention each of its heads uses."""


def measured_rises(
    found: LanguageModel, map_of: MapOf, counts: Sequence[int], sequences: Any,
    is_over: Callable[[], bool] = lambda: False, report: Callable[[str], None] = lambda line: None,
) -> tuple[float, Floats]:  # fmt: skip
    """The mean loss with all heads, and by layer and count - 1 by how much it rises, float, (layers, key heads).

    Nats a token, 0 where the loss falls; nan for other counts, and for what isn't measured when it is over. Counts are
    measured in their order, each in all layers. `sequences`: int64, shape (sequences, length).
    """
    layers, first = len(found.layers), found.layers[0]
    kept = [list(range(first.key_heads))] * layers
    rows = [list(range(first.heads))] * layers
    with sharing(found, kept, rows):
        base = mean_loss(found.model, sequences)
    rises = np.full((layers, first.key_heads), np.nan)
    rises[:, -1] = 0.0
    for count in counts:
        report(f"loss with keys of {count} of {first.key_heads} heads, layer by layer ...")
        for layer in range(layers):
            if is_over():
                return base, rises
            heads, row = map_of(layer, count)
            one_kept, one_row = [*kept[:layer], heads, *kept[layer + 1 :]], [*rows[:layer], row, *rows[layer + 1 :]]
            with sharing(found, one_kept, one_row):
                rises[layer, count - 1] = max(mean_loss(found.model, sequences) - base, 0.0)
    return base, rises
