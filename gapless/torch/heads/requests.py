"""Requests whose heads are clustered as they come, with a cache that shrinks then. Needs the extra `hf`.

A request's first tokens are attended by all heads. From their scores the heads are clustered; the cache then drops the
keys of heads that use another one's attention, and the rest is attended by the heads that are kept. Requests that are
served at once have memberships of their own, and as many kept heads in each layer: their cache stays one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.torch.heads.attention import AttentionFunction, attending, probabilities, repeated
from gapless.torch.heads.models import Attention, Cache, LanguageModel, cached_logits, check_length
from gapless.torch.heads.sharing import Chosen, Membership, cache_bytes, kept_cache, of_requests, sharing_functions
from gapless.torch.library import Tensor, torch

__all__ = [
    "Answered",
    "Choose",
    "Served",
    "answered",
    "distances_by_token",
    "distances_of",
    "replaced",
    "serve",
    "watching",
]

Floats = NDArray[np.float64]
Choose: TypeAlias = Callable[[Floats], Chosen]
"""From a request's squared distances of scores, (layers, heads, heads), to its kept key heads by layer, and by layer
the head whose attention each head uses."""


@dataclass(frozen=True)
class Answered:
    """`logits`: after each token but the last, (requests, tokens - 1, vocabulary). `tokens`: the prompts and what was
    generated, (requests, tokens). `cache_bytes`: with all but the last token in the cache.
    """

    logits: Tensor
    tokens: Tensor
    cache_bytes: int


@dataclass(frozen=True)
class Served(Answered):
    """By heads that share: whose."""

    membership: Membership


def answered(
    found: LanguageModel, prompts: Tensor, begin: Sequence[AttentionFunction],
    rest: Callable[[], Sequence[AttentionFunction]], first: int, new_tokens: int = 1, given: Tensor | None = None,
    cache: Cache | None = None,
) -> Answered:  # fmt: skip
    """Answer prompts, (requests, tokens), with so many of the most likely tokens each.

    The first tokens are attended by `begin`, what follows by what `rest` then gives, a function a layer. `given`:
    (requests, new tokens), take these instead. `cache`: an empty one. Raises `InputError` where the context gets too
    long.
    """
    check_length(found, prompts.shape[1], new_tokens)
    cache, logits = cache or kept_cache([None] * len(found.layers)), []
    with torch.no_grad():
        if first:
            with attending(found, begin):
                logits.append(cached_logits(found.model, prompts[:, :first], cache))
        with attending(found, rest()):
            more, new = _go_on(found, cache, prompts[:, first:], new_tokens, given)
    return Answered(torch.cat([*logits, *more], 1), torch.cat([prompts, new], 1), cache_bytes(cache))


def serve(
    found: LanguageModel, prompts: Tensor, choose: Choose, first: int, new_tokens: int = 1,
    given: Tensor | None = None, *, with_values: bool = False,
) -> Served:  # fmt: skip
    """Answer prompts as `answered` does, with heads that share once the first tokens are attended by all heads.

    With no first tokens, distances are 0, and what is chosen holds from the start. `with_values`: heads use the values
    of those whose attention they use, and the cache drops the others'.
    """
    begin, sums = watching(found, len(prompts))
    cache, memberships = kept_cache([None] * len(found.layers)), list[Membership]()

    def share() -> list[AttentionFunction]:
        memberships.append(Membership.of([choose(each) for each in sums.cpu().numpy()], prompts.device))
        for layer, kept in zip(cache.layers, memberships[0].kept, strict=True):
            layer.shrink(kept, with_values=with_values)
        return sharing_functions(found, memberships[0], with_values=with_values)

    made = answered(found, prompts, begin, share, first, new_tokens, given, cache)
    return Served(made.logits, made.tokens, made.cache_bytes, memberships[0])


def replaced(found: LanguageModel, served: Served, prompt: int, first: int, *, with_values: bool = False) -> Tensor:
    """The logits of what was served by a model that computes the attention of all heads with all keys, and puts that
    of the used heads in the place of the others'. In the same steps: `prompt` tokens at once, of which the first alone.
    """
    prompts, new = served.tokens[:, :prompt], served.tokens[:, prompt:]
    whole = [torch.arange(layer.heads, device=prompts.device).expand(len(prompts), -1) for layer in found.layers]
    begin, rest = ([partial(_replace, each, each if of_values else own) for each, own in zip(rows, whole, strict=True)]
                   for rows, of_values in ((whole, False), (served.membership.rows, with_values)))  # fmt: skip
    return answered(found, prompts, begin, lambda: rest, first, new.shape[1], new).logits


def distances_of(found: LanguageModel, prompts: Tensor, first: int) -> Floats:
    """Squared distances of the heads' scores in each request, (requests, layers, heads, heads), summed over its tokens
    after the first ones; without sharing.
    """
    functions, sums = watching(found, len(prompts), first)
    with torch.no_grad(), attending(found, functions):
        found.model(prompts, use_cache=False)
    return np.asarray(sums.cpu().numpy())


def distances_by_token(found: LanguageModel, prompts: Tensor) -> Floats:
    """As `distances_of`, of the first token, the first two, ...: (requests, tokens, layers, heads, heads)."""
    heads = found.layers[0].heads
    shape = (*prompts.shape, len(found.layers), heads, heads)
    sums = torch.zeros(shape, dtype=torch.float64, device=found.device)
    functions = [partial(_watch, layer, sums[:, :, at], None) for at, layer in enumerate(found.layers)]
    with torch.no_grad(), attending(found, functions):
        found.model(prompts, use_cache=False)
    return np.asarray(sums.cumsum(dim=1).cpu().numpy())


def watching(found: LanguageModel, requests: int, first: int = 0) -> tuple[list[AttentionFunction], Tensor]:
    """For each layer what attends by all heads, and adds squared distances of their scores, from the token `first` on,
    to the tensor, (requests, layers, heads, heads).
    """
    heads = found.layers[0].heads
    sums = torch.zeros(requests, len(found.layers), heads, heads, dtype=torch.float64, device=found.device)
    return [partial(_watch, layer, sums[:, at], first) for at, layer in enumerate(found.layers)], sums


def _go_on(
    found: LanguageModel, cache: Cache, rest: Tensor, new_tokens: int, given: Tensor | None
) -> tuple[list[Tensor], Tensor]:
    """Logits of the rest of the prompts, and of all new tokens but the last; the new tokens."""
    logits, new, tokens = [], [], rest
    for number in range(new_tokens):
        logits.append(cached_logits(found.model, tokens, cache))
        tokens = logits[-1][:, -1:].argmax(dim=-1) if given is None else given[:, number : number + 1]
        new.append(tokens)
    return logits, torch.cat(new, 1)


def _watch(
    layer: Attention, sums: Tensor, first: int | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend by all heads, and add to the sums, (requests, heads, heads), from the token `first` on.

    Without one, add to the sums of each token, (requests, tokens, heads, heads).
    """
    times = layer.heads // layer.key_heads
    attention = probabilities(query, repeated(key, times), mask, scaling)
    scores = attention[:, :, first:].double()
    for head in range(layer.heads):
        apart = (scores - scores[:, head : head + 1]).square().sum(dim=3)
        if first is None:
            sums[:, :, head] += apart.transpose(1, 2)
        else:
            sums[:, head] += apart.sum(dim=2)
    return torch.matmul(attention, repeated(value, times)).transpose(1, 2).contiguous(), None


def _replace(
    rows: Tensor, owners: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    """Attend by all heads with all keys, then put rows in the place of others; with the values of the `owners`."""
    times = query.shape[1] // key.shape[1]
    attention = of_requests(probabilities(query, repeated(key, times), mask, scaling), rows)
    return torch.matmul(attention, of_requests(repeated(value, times), owners)).transpose(1, 2).contiguous(), None
