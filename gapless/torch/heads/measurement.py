"""How far a model's heads are from each other on a text, and what sharing in one layer costs. Needs the extra `hf`.

With A the attention of a head, V its values and O its rows of the output matrix, head h that takes over the attention
of head j changes the layer's output by (A_j - A_h) V_h O_h; squared and summed, over tokens, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.heads.profile import HeadProfile
from gapless.torch.heads.attention import attending, probabilities, repeated
from gapless.torch.heads.models import Attention, LanguageModel, mean_loss
from gapless.torch.heads.sharing import sharing
from gapless.torch.library import Tensor, torch

__all__ = ["measure_heads", "measured_rises"]


def measure_heads(
    found: LanguageModel, sequences: Tensor, source: str, report: Callable[[str], None] = lambda line: None
) -> HeadProfile:
    """The profile of a model's heads, means over all tokens of sequences of shape (count, length)."""
    layers, heads = len(found.layers), found.layers[0].heads
    sums = torch.zeros(2, layers, heads, heads, dtype=torch.float64, device=found.device)
    squares = torch.zeros(layers, heads, dtype=torch.float64, device=found.device)
    functions = [
        partial(_measure, layer, sums[:, number], squares[number]) for number, layer in enumerate(found.layers)
    ]
    with torch.no_grad(), attending(found, functions):
        for number, sequence in enumerate(sequences):
            report(f"sequence {number + 1} of {len(sequences)} ...")
            found.model(sequence[None], use_cache=False)
    scores, output = (sums / sequences.numel()).cpu().numpy()
    first = found.layers[0]
    parameters = sum(each.numel() for each in found.model.parameters())
    return HeadProfile(
        found.name,
        scores,
        output,
        first.key_heads,
        first.dimension,
        parameters,
        sequences.numel(),
        source,
        squares=(squares / sequences.numel()).cpu().numpy(),
    )


def _measure(
    layer: Attention, sums: Tensor, squares: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend as `eager` does, and add to the two sums of a layer, (heads, heads) each, and to its squares, (heads,)."""
    times = layer.heads // layer.key_heads
    value = repeated(value, times)
    attention = probabilities(query, repeated(key, times), mask, scaling)
    attention64, value64, output64 = attention.double(), value.double(), layer.output.double()
    squares += attention64.square().sum(dim=(0, 2, 3))
    for head in range(layer.heads):
        apart = attention64 - attention64[:, head : head + 1]
        sums[0, head] += apart.square().sum(dim=(0, 2, 3))
        moved = torch.matmul(apart, value64[:, head : head + 1])
        spread = output64[head] @ output64[head].T
        sums[1, head] += (torch.matmul(moved, spread) * moved).sum(dim=(0, 2, 3)).clamp(min=0.0)
    return torch.matmul(attention, value).transpose(1, 2).contiguous(), None


Floats = NDArray[np.float64]
MapOf = Callable[[int, int], tuple[Sequence[int], Sequence[int] | NDArray[np.int64]]]
"""The key heads that a layer keeps at a count, ascending, and the head whose attention each of its heads uses."""


def measured_rises(
    found: LanguageModel, map_of: MapOf, counts: Sequence[int], sequences: Tensor,
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
