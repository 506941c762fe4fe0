"""What modes of a cache spoil in a language model: measured layer by layer, on a text. Needs the extra `hf`.

A mode's divergence from the full cache is sum p log(p / q) over the next token's distributions, in the mean of tokens.
It is 0 for what changes nothing, never below, and far less noisy than the rise of the loss, whose mean it is where p
is the text's own distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.cache.layout import FORMATS, PARTS, Layout
from gapless.profiles.cache.modes import LayerModes
from gapless.torch.cache.rounding import rounded
from gapless.torch.cache.simulated import simulating
from gapless.torch.heads.attention import attending, probabilities, repeated
from gapless.torch.heads.models import Attention, LanguageModel
from gapless.torch.library import Tensor, torch

__all__ = ["FullModel", "Measured", "head_changes"]

Floats = NDArray[np.float64]
_BATCH = 8
_SHOWN = "int3"
"""The format in which heads are measured, or change outputs: plans by shares in it are as good as by shares in each."""


@dataclass(frozen=True)
class Measured:
    """Nats a token, means: the `divergence` from the full cache's distributions, >= 0, and the `loss`."""

    divergence: float
    loss: float


class FullModel:
    """A language model with the full cache, on sequences of shape (count, length); what plans change of it."""

    def __init__(self, found: LanguageModel, sequences: Tensor, layout: Layout) -> None:
        self.found, self.sequences, self.layout = found, sequences, layout
        first = found.layers[0]
        self.full = (LayerModes.full(first.heads, first.key_heads),) * len(found.layers)
        self._expected = self._log_shares(self.full)
        self.loss = _loss(self._expected, sequences)

    def _log_shares(self, layers: Sequence[LayerModes]) -> list[Tensor]:
        """Logarithms of the next token's distributions, a tensor for each batch."""
        with torch.no_grad(), simulating(self.found, layers, self.layout):
            parts = self.sequences.split(_BATCH)
            return [self.found.model(part, use_cache=False).logits.float().log_softmax(dim=-1) for part in parts]

    def measured(self, layers: Sequence[LayerModes]) -> Measured:
        """With these modes."""
        found, total = self._log_shares(layers), 0.0
        for expected, here in zip(self._expected, found, strict=True):
            total += float((expected.exp() * (expected - here)).sum(dim=-1).double().sum())
        return Measured(max(total, 0.0) / self.sequences.numel(), _loss(found, self.sequences))

    def alone(self, layer: int, modes: LayerModes) -> tuple[float, float]:
        """The divergence, and the rise of the loss, 0 where it falls, with these modes in one layer."""
        found = self.measured([*self.full[:layer], modes, *self.full[layer + 1 :]])
        return found.divergence, max(found.loss - self.loss, 0.0)

    def formats(self, report: Callable[[str], None], is_over: Callable[[], bool]) -> Floats | None:
        """As `CacheProfile.formats`; None where it is over before all is measured."""
        made = np.zeros((2, len(self.full), len(PARTS), len(FORMATS) - 1))
        for place, name in enumerate(FORMATS[1:]):
            report(f"keys and values in {name}, layer by layer ...")
            for layer, full in enumerate(self.full):
                for number, part in enumerate(PARTS):
                    if is_over():
                        return None
                    names = (name,) * len(full.keys)
                    modes = replace(full, keys=names) if part == "keys" else replace(full, values=names)
                    made[:, layer, number, place] = self.alone(layer, modes)
        return made

    def heads(self, is_over: Callable[[], bool]) -> Floats | None:
        """As `CacheProfile.shares`: what one head spoils in few bits; None where it is over."""
        first = self.found.layers[0]
        made = np.zeros((len(self.full), len(PARTS), first.key_heads))
        for layer, number, head in np.ndindex(*made.shape):
            if is_over():
                return None
            full, part = self.full[layer], PARTS[number]
            names = tuple(_SHOWN if each == head else name for each, name in enumerate(getattr(full, part)))
            modes = replace(full, keys=names) if part == "keys" else replace(full, values=names)
            made[layer, number, head] = self.alone(layer, modes)[0]
        return made

    def each(self, offered: Sequence[Sequence[LayerModes]], is_over: Callable[[], bool]) -> Floats | None:
        """Of each layer's offered modes, as many in all: float, shape (2, layers, modes); None where it is over."""
        made = np.zeros((2, len(self.full), len(offered[0])))
        for layer, row in enumerate(offered):
            for place, modes in enumerate(row):
                if is_over():
                    return None
                made[:, layer, place] = self.alone(layer, modes)
        return made


def _loss(log_shares: Sequence[Tensor], sequences: Tensor) -> float:
    total = sum(
        float(-part[:, :-1].gather(2, tokens[:, 1:, None]).double().sum())
        for part, tokens in zip(log_shares, sequences.split(_BATCH), strict=True)
    )
    return float(total / (len(sequences) * (sequences.shape[1] - 1)))


def head_changes(found: LanguageModel, sequences: Tensor, layout: Layout) -> Floats:
    """As `CacheProfile.shares`: the squared change of a layer's output by each head's keys, or values, in few bits."""
    first = found.layers[0]
    sums = torch.zeros(len(found.layers), len(PARTS), first.key_heads, dtype=torch.float64)
    functions = [partial(_changes, layer, sums[number], layout) for number, layer in enumerate(found.layers)]
    with torch.no_grad(), attending(found, functions):
        for part in sequences.split(_BATCH):
            found.model(part, use_cache=False)
    return np.asarray((sums / sequences.numel()).numpy())


def _changes(
    layer: Attention, sums: Tensor, layout: Layout, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend in full, and add what whole groups of tokens in few bits change, (parts, key heads)."""
    times, whole = layer.heads // layer.key_heads, key.shape[2] // layout.group * layout.group
    attention = probabilities(query, repeated(key, times), mask, scaling)
    values = repeated(value, times)
    spread = torch.matmul(layer.output, layer.output.transpose(1, 2))
    for number, (part, states) in enumerate(zip(PARTS, (key, value), strict=True)):
        made = torch.cat([rounded(states[:, :, :whole], part, _SHOWN, layout), states[:, :, whole:]], dim=2)
        if part == "keys":
            apart = probabilities(query, repeated(made, times), mask, scaling) - attention
            moved = torch.matmul(apart, values)
        else:
            moved = torch.matmul(attention, repeated(made - value, times))
        squares = (torch.matmul(moved, spread) * moved).double().sum(dim=(0, 2, 3)).clamp(min=0.0)
        sums[number] += squares.view(layer.key_heads, times).sum(dim=1).cpu()
    return torch.matmul(attention, values).transpose(1, 2).contiguous(), None
