"""Generation with and without shared heads: logits, cache and speed side by side. Needs the extra `hf`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gapless.torch.heads.attention import Rows, edited
from gapless.torch.heads.models import Cache, LanguageModel, cached_logits, check_length, mean_loss
from gapless.torch.heads.sharing import cache_bytes, kept_cache, sharing
from gapless.torch.library import Module, Tensor, torch

__all__ = ["Comparison", "Generated", "compare", "generated"]


@dataclass(frozen=True)
class Generated:
    """Greedy tokens after a prompt, (new tokens,), or after some at once, (batch, new tokens), with their logits,
    (..., new tokens, vocabulary); the cache's bytes in the end, and seconds of each token but the first.
    """

    tokens: Tensor
    logits: Tensor
    cache_bytes: int
    token_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Of a token."""
        return statistics.median(self.token_s)


@dataclass(frozen=True)
class Comparison:
    """A model as it is, sharing heads, and the plain model with copied rows of queries and keys that does the same.

    `logit_difference`: the largest between the last two, on the same tokens; `largest_logit`: of them. `losses`: mean
    cross entropy in nats of the first two.
    """

    full: Generated
    shared: Generated
    edited: Generated
    losses: tuple[float, float]

    @property
    def logit_difference(self) -> float:
        """The largest between the model that shares heads and the edited one; inf where their tokens differ."""
        return float((self.shared.logits - self.edited.logits).abs().max())

    @property
    def largest_logit(self) -> float:
        """The largest in size."""
        return float(self.edited.logits.abs().max())


def generated(model: Module, cache: Cache, prompt: Tensor, count: int, given: Tensor | None = None) -> Generated:
    """Generate `count` tokens one by one after a prompt of shape (tokens,), the most likely ones.

    `given`: take these instead, so that logits can be compared. The cache ends with the prompt and all but the last.
    """
    logits, chosen, times = [], [], []
    tokens = prompt[None]
    with torch.no_grad():
        for number in range(count):
            begin_s = time.perf_counter()
            last = cached_logits(model, tokens, cache)[0, -1]
            following = last.argmax() if given is None else given[number]
            times.append(time.perf_counter() - begin_s)
            logits.append(last)
            chosen.append(following)
            tokens = following.view(1, 1)
    return Generated(torch.stack(chosen), torch.stack(logits), cache_bytes(cache), tuple(times[1:]))


def compare(
    found: LanguageModel, kept: Sequence[Sequence[int]], representative: Rows, prompt: Tensor, count: int,
    sequences: Tensor,
    report: Callable[[str], None] = lambda line: None,
) -> Comparison:  # fmt: skip
    """Generate in turns, and measure the losses on sequences. Raises `InputError` where the context gets too long."""
    check_length(found, len(prompt), count)
    everything = [range(layer.key_heads) for layer in found.layers]
    report("generating with the full cache ...")
    full = generated(found.model, kept_cache(everything), prompt, count)
    report("generating with shared heads ...")
    with sharing(found, kept, representative):
        shared = generated(found.model, kept_cache(kept), prompt, count)
        loss = mean_loss(found.model, sequences)
    report("generating with copied rows of queries and keys ...")
    model = edited(found, representative)
    heads = [range(layer.heads) for layer in found.layers]
    copied = generated(model, kept_cache(heads), prompt, count, shared.tokens)
    return Comparison(full, shared, copied, (mean_loss(found.model, sequences), loss))
