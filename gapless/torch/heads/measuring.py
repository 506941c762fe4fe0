"""How far a model's heads are from each other on a text. Needs the extra `hf`.

With A the attention of a head, V its values and O its rows of the output matrix, head h that takes over the attention
of head j changes the layer's output by (A_j - A_h) V_h O_h; squared and summed, over tokens, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gapless.profiles.heads.profile import HeadProfile
from gapless.torch.heads.attending import attending, probabilities, repeated
from gapless.torch.heads.models import Attention, LanguageModel
from gapless.torch.library import torch

__all__ = ["measure_heads"]


def measure_heads(
    found: LanguageModel, sequences: Any, source: str, report: Callable[[str], None] = lambda line: None
) -> HeadProfile:
    """The profile of a model's heads, means over all tokens of sequences of shape (count, length)."""
    layers, heads = len(found.layers), found.layers[0].heads
    sums = torch.zeros(2, layers, heads, heads, dtype=torch.float64)
    functions = [partial(_measure, layer, sums[:, number]) for number, layer in enumerate(found.layers)]
    with torch.no_grad(), attending(found, functions):
        for number, sequence in enumerate(sequences):
            report(f"sequence {number + 1} of {len(sequences)} ...")
            found.model(sequence[None], use_cache=False)
    scores, output = (sums / sequences.numel()).numpy()
    first = found.layers[0]
    parameters = sum(each.numel() for each in found.model.parameters())
    return HeadProfile(
        found.name, scores, output, first.key_heads, first.dimension, parameters, sequences.numel(), source
    )


def _measure(layer: Attention, sums: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float) -> Any:
    """Attend as `eager` does, and add to the two sums of a layer, (heads, heads) each."""
    times = layer.heads // layer.key_heads
    value = repeated(value, times)
    attention = probabilities(query, repeated(key, times), mask, scaling)
    attention64, value64, output64 = attention.double(), value.double(), layer.output.double()
    for head in range(layer.heads):
        apart = attention64 - attention64[:, head : head + 1]
        sums[0, head] += apart.square().sum(dim=(0, 2, 3))
        moved = torch.matmul(apart, value64[:, head : head + 1])
        spread = output64[head] @ output64[head].T
        sums[1, head] += (torch.matmul(moved, spread) * moved).sum(dim=(0, 2, 3)).clamp(min=0.0)
    return torch.matmul(attention, value).transpose(1, 2).contiguous(), None
