"""Heads that use the attention of others, with a cache of the keys that are kept. Needs the extra `hf`.

Scores are computed once for each head that is used. Queries of a long prompt go in blocks, so that scores stay in the
processor's cache; in a block all heads that use one head's scores are one product with their values side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from gapless.errors import InputError
from gapless.torch.heads.attention import AttentionFunction, Rows, attending, probabilities, repeated
from gapless.torch.heads.models import Attention, Cache, DynamicLayer, LanguageModel
from gapless.torch.library import Tensor, torch

__all__ = ["BLOCK", "Chosen", "Membership", "cache_bytes", "kept_cache", "of_requests", "sharing", "sharing_functions"]

BLOCK = 128
"""Queries of a block."""

Chosen: TypeAlias = tuple[Sequence[Sequence[int]], Rows]
"""The kept key heads by layer, and by layer the head whose attention each head uses."""


@dataclass(frozen=True)
class Membership:
    """By layer: the kept key heads of each request, int64, (requests, count), and the head whose attention each head
    uses, (requests, heads). With one row it is that of all requests.
    """

    kept: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]

    @classmethod
    def of(cls, chosen: Sequence[Chosen], device: object) -> Membership:
        """Of what was chosen for each request. Raises `InputError` where they keep different numbers in a layer."""
        kept, rows = [], []
        for layer in range(len(chosen[0][0])):
            heads = [list(each[layer]) for each, _ in chosen]
            if len(counts := sorted(set(map(len, heads)))) > 1:
                raise InputError(f"kept: requests at once must keep as many heads in layer {layer}, got {counts}")
            kept.append(torch.tensor(heads, device=device))
            rows.append(torch.tensor([[int(head) for head in row[layer]] for _, row in chosen], device=device))
        return cls(tuple(kept), tuple(rows))


def of_requests(states: Tensor, heads: Tensor) -> Tensor:
    """The states, (requests, heads, ...), of these heads of each request, (requests, count), or of all, (1, count)."""
    if len(heads) == 1:
        return states[:, heads[0]]
    return states[torch.arange(len(heads), device=heads.device)[:, None], heads]


class HeadLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of a cache that holds the keys of kept heads, of all until `shrink`; and values alike, or all."""

    def __init__(self, kept: Tensor | None = None) -> None:
        super().__init__()
        self.kept, self.has_all_values = kept, True
        self.keys: Tensor | None
        self.values: Tensor | None

    def update(
        self, key_states: Tensor, value_states: Tensor, *rest: object, **others: object
    ) -> tuple[Tensor, Tensor]:
        """Add the tokens' keys and values of the heads that are held."""
        if self.kept is not None:
            kept = self.kept.to(key_states.device)
            key_states = of_requests(key_states, kept)
            value_states = value_states if self.has_all_values else of_requests(value_states, kept)
        return super().update(key_states, value_states, *rest, **others)  # type: ignore[no-any-return]

    def shrink(self, kept: Tensor, *, with_values: bool = False) -> None:
        """Drop all keys but these, (requests, count), from now on; and the values of the same heads."""
        self.kept, self.has_all_values = kept, not with_values
        if self.keys is not None:
            self.keys = of_requests(self.keys, kept)
        if with_values and self.values is not None:
            self.values = of_requests(self.values, kept)


def kept_cache(kept: Sequence[Sequence[int] | None]) -> Cache:
    """An empty cache that will hold the keys of these key heads of each layer alone; None for those of all."""
    return Cache(layers=[HeadLayer(None if heads is None else torch.tensor([list(heads)])) for heads in kept])


def cache_bytes(cache: Cache) -> int:
    """What a cache's keys and values hold."""
    return sum(int(part.nbytes) for layer in cache.layers for part in (layer.keys, layer.values))


@contextmanager
def sharing(found: LanguageModel, kept: Sequence[Sequence[int]], representative: Rows) -> Iterator[None]:
    """Within the block, head h of layer l uses the attention of `representative[l][h]`, whose key head is kept.

    For calls without a cache, and with `kept_cache`.
    """
    with attending(found, sharing_functions(found, Membership.of([(kept, representative)], found.device))):
        yield


def sharing_functions(
    found: LanguageModel, membership: Membership, *, with_values: bool = False
) -> list[AttentionFunction]:
    """For each layer what computes each used head's scores once. `with_values`: a head uses the other one's values too,
    and the cache has those of the kept heads alone.
    """
    functions: list[AttentionFunction] = []
    for layer, kept, rows in zip(found.layers, membership.kept, membership.rows, strict=True):
        used = _Used.of(layer, kept, rows)
        functions.append(partial(_share_values if with_values else _share, used))
    return functions


@dataclass(frozen=True)
class _Used:
    """Of a layer and each request, or all: the kept key heads, (requests, count); the used heads, (requests, most
    used); whose key each uses, a place in `kept`, None for its own place; and by head the place of the one it uses.

    `group`: query heads of a key head. `owners`: `of_head` as lists, which need no look at the device.
    """

    group: int
    kept: Tensor
    heads: Tensor
    keys: Tensor | None
    of_head: Tensor
    owners: list[list[int]]

    @classmethod
    def of(cls, layer: Attention, kept: Tensor, rows: Tensor) -> _Used:
        """What a membership comes to in a layer."""
        used = [sorted(set(row)) for row in rows.tolist()]
        owners = [[heads.index(head) for head in row] for heads, row in zip(used, rows.tolist(), strict=True)]
        most, group = max(map(len, used)), layer.heads // layer.key_heads
        # A request that uses fewer heads than another computes its first ones again: one shape for all.
        filled = [heads + [heads[0]] * (most - len(heads)) for heads in used]
        keys = [
            [held.index(head // group) for head in heads] for held, heads in zip(kept.tolist(), filled, strict=True)
        ]
        own = list(range(kept.shape[1]))
        tensor = partial(torch.tensor, device=rows.device)
        places = None if all(each == own for each in keys) else tensor(keys)
        return cls(group, kept, tensor(filled), places, tensor(owners), owners)


def _share(
    used: _Used, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    held = key if key.shape[1] == used.kept.shape[1] else of_requests(key, used.kept)
    key = held if used.keys is None else of_requests(held, used.keys)
    query = of_requests(query, used.heads)
    if query.shape[2] > BLOCK:
        return _in_blocks(used, query, key, value, mask, scaling), None
    attention = of_requests(probabilities(query, key, mask, scaling), used.of_head)
    return torch.matmul(attention, repeated(value, used.group)).transpose(1, 2).contiguous(), None


def _share_values(
    used: _Used, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, None]:
    """As `_share`, where keys and values are those of the kept heads."""
    places = used.of_head if used.keys is None else used.keys.gather(1, used.of_head)
    return _share(replace(used, group=1), query, key, of_requests(value, places), mask, scaling)


def _in_blocks(
    used: _Used, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> Tensor:  # fmt: skip
    """Outputs, (requests, queries, heads, dimension), of used heads' queries and keys and of all values."""
    if len(used.owners) == 1:
        return _blocks_of_one(used.owners[0], used.group, query, key, value, mask, scaling)
    return torch.cat([
        _blocks_of_one(owner, used.group, query[each:each + 1], key[each:each + 1], value[each:each + 1],
                       mask if mask is None or len(mask) == 1 else mask[each:each + 1], scaling)
        for each, owner in enumerate(used.owners)
    ])  # fmt: skip


def _blocks_of_one(
    owner: list[int], group: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> Tensor:
    """As `_in_blocks`, of requests with the same membership; a block looks at no key of a later token."""
    order = np.argsort(owner, kind="stable")
    back = torch.from_numpy(np.argsort(order)).to(query.device)
    requests, cached, dimension = len(value), value.shape[2], value.shape[3]
    beside = value.transpose(1, 2)[:, :, torch.from_numpy(order // group).to(query.device)]
    widths = [count * dimension for count in np.bincount(owner).tolist()]
    values = beside.reshape(requests, cached, -1).split(widths, dim=2)
    outputs = []
    for first in range(0, query.shape[2], BLOCK):
        part = query[:, :, first : first + BLOCK]
        seen = cached - query.shape[2] + first + part.shape[2]
        shown = None if mask is None else mask[..., first : first + BLOCK, :seen]
        attention = probabilities(part, key[:, :, :seen], shown, scaling)
        made = [torch.matmul(attention[:, at], each[:, :seen]) for at, each in enumerate(values)]
        outputs.append(torch.cat(made, dim=2).view(requests, part.shape[2], -1, dimension)[:, :, back])
    return torch.cat(outputs, dim=1)
