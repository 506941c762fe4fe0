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

from gapless.errors import InputError
from gapless.torch.heads.attention import AttentionFunction, Rows, attending, cache_bytes, probabilities, repeated
from gapless.torch.heads.models import Attention, Cache, DynamicLayer, LanguageModel, check_length
from gapless.torch.library import Tensor, torch

__all__ = ["Choose", "Membership", "Served", "distances_of", "replaced", "serve"]

Floats = NDArray[np.float64]
Choose: TypeAlias = Callable[[Floats], tuple[Sequence[Sequence[int]], Rows]]
"""From a request's squared distances of scores, (layers, heads, heads), to its kept key heads by layer, and by layer
the head whose attention each head uses."""


@dataclass(frozen=True)
class Membership:
    """By layer: the kept key heads of each request, int64, (requests, count), and the head whose attention each head
    uses, (requests, heads).
    """

    kept: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]

    @classmethod
    def of(cls, chosen: Sequence[tuple[Sequence[Sequence[int]], Rows]], device: object) -> Membership:
        """Of what was chosen for each request. Raises `InputError` where they keep different numbers in a layer."""
        kept, rows = [], []
        for layer in range(len(chosen[0][0])):
            heads = [list(each[layer]) for each, _ in chosen]
            if len(counts := sorted(set(map(len, heads)))) > 1:
                raise InputError(f"kept: requests at once must keep as many heads in layer {layer}, got {counts}")
            kept.append(torch.tensor(heads, device=device))
            rows.append(torch.tensor([[int(head) for head in row[layer]] for _, row in chosen], device=device))
        return cls(tuple(kept), tuple(rows))


@dataclass(frozen=True)
class Served:
    """`logits`: after each token but the last, (requests, tokens - 1, vocabulary). `tokens`: the prompts and what was
    generated, (requests, tokens). `cache_bytes`: with all but the last token in the cache.
    """

    logits: Tensor
    tokens: Tensor
    cache_bytes: int
    membership: Membership


class RequestLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of a cache that holds all keys, and from `shrink` on those of each request's kept heads."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None
        self.keys: Tensor | None

    def update(
        self, key_states: Tensor, value_states: Tensor, *rest: object, **others: object
    ) -> tuple[Tensor, Tensor]:
        """Add the tokens' keys of the heads that are held, and all their values."""
        keys = key_states if self.kept is None else _of_requests(key_states, self.kept)
        return super().update(keys, value_states, *rest, **others)  # type: ignore[no-any-return]

    def shrink(self, kept: Tensor) -> None:
        """Drop all keys but these, (requests, count), from now on."""
        self.kept = kept
        if self.keys is not None:
            self.keys = _of_requests(self.keys, kept)


def _of_requests(states: Tensor, heads: Tensor) -> Tensor:
    """The states, (requests, heads, ...), of these heads of each request, (requests, count)."""
    return states[torch.arange(len(heads), device=heads.device)[:, None], heads]


def _new_cache(found: LanguageModel) -> Cache:
    return Cache(layers=[RequestLayer() for _ in found.layers])


def serve(
    found: LanguageModel, prompts: Tensor, choose: Choose, first: int, new_tokens: int = 1, given: Tensor | None = None
) -> Served:
    """Answer prompts, (requests, tokens), with so many of the most likely tokens each.

    The first tokens are attended by all heads; with 0, distances are 0, and what is chosen holds from the start.
    `given`: (requests, new tokens), take these instead. Raises `InputError` where the context gets too long.
    """
    check_length(found, prompts.shape[1], new_tokens)
    cache, logits = _new_cache(found), []
    sums = _sums(found, len(prompts), prompts.device)
    with torch.no_grad():
        if first:
            with attending(found, [partial(_watch, layer, sums[:, at], 0) for at, layer in enumerate(found.layers)]):
                logits.append(found.model(prompts[:, :first], past_key_values=cache, use_cache=True).logits)
        membership = Membership.of([choose(each) for each in sums.cpu().numpy()], prompts.device)
        for layer, kept in zip(cache.layers, membership.kept, strict=True):
            layer.shrink(kept)
        with attending(found, _sharing(found, membership)):
            more, new = _go_on(found, cache, prompts[:, first:], new_tokens, given)
    return Served(torch.cat([*logits, *more], 1), torch.cat([prompts, new], 1), cache_bytes(cache), membership)


def replaced(found: LanguageModel, served: Served, prompt: int, first: int) -> Tensor:
    """The logits of what was served by a model that computes the attention of all heads with all keys, and puts that
    of the used heads in the place of the others'. In the same steps: `prompt` tokens at once, of which the first alone.
    """
    cache, logits = _new_cache(found), []
    prompts, new = served.tokens[:, :prompt], served.tokens[:, prompt:]
    whole = [torch.arange(layer.heads, device=prompts.device).expand(len(prompts), -1) for layer in found.layers]
    with torch.no_grad():
        if first:
            with attending(found, list(map(partial(partial, _replace), whole))):
                logits.append(found.model(prompts[:, :first], past_key_values=cache, use_cache=True).logits)
        with attending(found, list(map(partial(partial, _replace), served.membership.rows))):
            more, _ = _go_on(found, cache, prompts[:, first:], new.shape[1], new)
    return torch.cat([*logits, *more], 1)


def distances_of(found: LanguageModel, prompts: Tensor, first: int) -> Floats:
    """Squared distances of the heads' scores in each request, (requests, layers, heads, heads), summed over its tokens
    after the first ones; without sharing.
    """
    sums = _sums(found, len(prompts), prompts.device)
    functions = [partial(_watch, layer, sums[:, at], first) for at, layer in enumerate(found.layers)]
    with torch.no_grad(), attending(found, functions):
        found.model(prompts, use_cache=False)
    return np.asarray(sums.cpu().numpy())


def _sums(found: LanguageModel, requests: int, device: object) -> Tensor:
    heads = found.layers[0].heads
    return torch.zeros(requests, len(found.layers), heads, heads, dtype=torch.float64, device=device)


def _go_on(
    found: LanguageModel, cache: Cache, rest: Tensor, new_tokens: int, given: Tensor | None
) -> tuple[list[Tensor], Tensor]:
    """Logits of the rest of the prompts, and of all new tokens but the last; the new tokens."""
    logits, new, tokens = [], [], rest
    for number in range(new_tokens):
        logits.append(found.model(tokens, past_key_values=cache, use_cache=True).logits)
        tokens = logits[-1][:, -1:].argmax(dim=-1) if given is None else given[:, number : number + 1]
        new.append(tokens)
    return logits, torch.cat(new, 1)


def _watch(
    layer: Attention, sums: Tensor, first: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend by all heads, and add to the sums, (requests, heads, heads), from the token `first` on."""
    times = layer.heads // layer.key_heads
    attention = probabilities(query, repeated(key, times), mask, scaling)
    scores = attention[:, :, first:].double()
    for head in range(layer.heads):
        sums[:, head] += (scores - scores[:, head : head + 1]).square().sum(dim=(2, 3))
    return torch.matmul(attention, repeated(value, times)).transpose(1, 2).contiguous(), None


def _sharing(found: LanguageModel, membership: Membership) -> list[AttentionFunction]:
    """For each layer what computes each used head's scores once."""
    functions: list[AttentionFunction] = []
    for layer, kept, rows in zip(found.layers, membership.kept, membership.rows, strict=True):
        used = [sorted(set(row)) for row in rows.tolist()]
        of_head = [[heads.index(head) for head in row] for heads, row in zip(used, rows.tolist(), strict=True)]
        most, group = max(map(len, used)), layer.heads // layer.key_heads
        # A request that uses fewer heads than another computes its first ones again: one shape for all.
        filled = [heads + [heads[0]] * (most - len(heads)) for heads in used]
        keys = [
            [held.index(head // group) for head in heads] for held, heads in zip(kept.tolist(), filled, strict=True)
        ]
        made = (torch.tensor(each, device=rows.device) for each in (filled, keys, of_head))
        functions.append(partial(_share, group, *made))
    return functions


def _share(
    group: int, used: Tensor, keys: Tensor, of_head: Tensor, query: Tensor, key: Tensor, value: Tensor,
    mask: Tensor | None, scaling: float,
) -> tuple[Tensor, None]:  # fmt: skip
    scores = probabilities(_of_requests(query, used), _of_requests(key, keys), mask, scaling)
    attended = torch.matmul(_of_requests(scores, of_head), repeated(value, group))
    return attended.transpose(1, 2).contiguous(), None


def _replace(
    rows: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    """Attend by all heads with all keys, then put rows in the place of others."""
    times = query.shape[1] // key.shape[1]
    attention = _of_requests(probabilities(query, repeated(key, times), mask, scaling), rows)
    return torch.matmul(attention, repeated(value, times)).transpose(1, 2).contiguous(), None
