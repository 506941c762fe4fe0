"""Exchanges in two levels: plain inside a node, in a method between nodes.

A reduce-scatter in the node leaves every rank with the mean of its share, an L-th of the entries. That is exchanged
among the ranks of all nodes that hold it, and an all-gather in the node brings the shares together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.profiles.compressors.method import Bucket, Exchange, Message, Method

if TYPE_CHECKING:
    import torch

__all__ = ["check_shares", "exchange_in_two_levels"]

_MATRIX = (4096, 4096)


def check_shares(mode: str, method: Method) -> None:
    """Raise `InputError` for a method of matrices, since a share of a flat bucket isn't one."""
    if method.is_factored(_MATRIX):
        raise InputError(f"mode: {mode!r} needs whole matrices, of which nodes make shares; take another, or one level")


def exchange_in_two_levels(method: Method, bucket: Bucket, ranks_per_node: int) -> Exchange:
    """As `method.exchange`, in nodes of so many consecutive ranks.

    What isn't sent belongs to a rank's share. It stays in the bucket's gradient with zeros around it, `ranks_per_node`
    times as large, so that the next mean over the node has it once.
    """
    from gapless.torch.library import torch

    count = bucket.gradient.numel()
    length = -(-count // ranks_per_node)
    missing = ranks_per_node * length - count
    first = min(bucket.rank % ranks_per_node * length, count)
    own = slice(first, min(first + length, count))
    padded = torch.nn.functional.pad(bucket.gradient, (0, missing))
    total = yield Message("reduce_scatter", padded, is_last=False, level="node")
    mean = total[: own.stop - own.start].div_(ranks_per_node)
    if len(mean):
        mean = yield from _between(method, bucket, mean, own, ranks_per_node)
    rows = yield Message("all_gather", torch.nn.functional.pad(mean, (0, length - len(mean))), level="node")
    return rows.reshape(-1)[:count]


def _between(method: Method, bucket: Bucket, mean: torch.Tensor, own: slice, ranks_per_node: int) -> Exchange:
    """The mean of a share over all nodes; keeps in the bucket what the method leaves of it."""
    share = replace(
        bucket,
        gradient=mean,
        shapes=_shapes(bucket.shapes, own),
        rank=bucket.rank // ranks_per_node,
        ranks=bucket.ranks // ranks_per_node,
        carried=None if bucket.carried is None else bucket.carried[own] / ranks_per_node,
        entries={name: entries[own].clone() for name, entries in bucket.entries.items()},
    )
    exchange = method.exchange(share)
    message = next(exchange)
    while not message.is_last:
        message = exchange.send((yield replace(message, level="across")))
    arrived = yield replace(message, level="across", is_last=False)
    bucket.gradient.zero_()[own] = ranks_per_node * share.gradient
    for name, entries in share.entries.items():
        bucket.entries[name] = entries.new_zeros(bucket.gradient.shape)
        bucket.entries[name][own] = entries
    try:
        exchange.send(arrived)
    except StopIteration as end:
        found: torch.Tensor = end.value
        return found
    raise InputError("mode: must end after its last message")


def _shapes(shapes: Sequence[tuple[int, ...]], own: slice) -> list[tuple[int, ...]]:
    """Of the parts of tensors that a share holds, flat."""
    found, begin = list[tuple[int, ...]](), 0
    for shape in shapes:
        end = begin + prod(shape)
        held = min(end, own.stop) - max(begin, own.start)
        found += [(held,)] if held > 0 else []
        begin = end
    return found
