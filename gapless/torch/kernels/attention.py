"""Attention in pieces: products, softmax and dropout of a few heads or queries at a time, forward and backward.

    scores = steps(query @ key);   probability = softmax(scores);   found = dropout(probability) @ value

for `query` of shape (n, t, d), `key` (n, d, s), `value` (n, s, e); `shape` is that of the scores, (batch, heads, t, s)
or (n, t, s). `steps` are pairs of what is done to the scores before the softmax: ("mul", number), ("div", number) or
("add", mask), the mask in a shape that broadcasts to `shape`. A piece does what the whole does, operator by operator:
only sums over pieces of one head may round otherwise. Dropout's mask, a byte a probability, is drawn as a whole, since
a part of it can't be drawn alone.

Without dropout, PyTorch's flash kernel for CPUs may stand in. It keeps the output and the logarithm of each row's sum
of exponentials, from which its gradient computes the probabilities again, block by block: equal up to rounding. All run
without autograd. Needs the extra `torch`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gapless.torch.library import torch

__all__ = [
    "attention",
    "attention_backward",
    "attention_backward_from_probabilities",
    "attention_keeping",
    "can_flash",
    "dropped_attention",
    "dropped_attention_backward",
    "dropped_attention_backward_from_probabilities",
    "dropped_attention_keeping",
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_keeping",
    "log_sums",
]


safe_softmax = torch.ops.aten._safe_softmax  # noqa: SLF001
softmax_backward = torch.ops.aten._softmax_backward_data  # noqa: SLF001
_PIECES = 16
_LEAST_BYTES = 2**18
"""Scores are cut into at most so many pieces, none of them smaller than this unless all are."""

Steps = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class _Piece:
    """Heads `first` to `end` of all, and queries of theirs; all of them unless it is a single head."""

    first: int
    end: int
    queries: slice


def attention(query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool) -> tuple[Any]:
    """Attention without dropout."""
    return _forward(query, key, value, steps, shape, is_safe, None, 1.0, None)


def attention_keeping(query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool) -> Any:
    """The same, and the probabilities."""
    probability = query.new_empty(shape)
    (found,) = _forward(query, key, value, steps, shape, is_safe, None, 1.0, probability)
    return found, probability


def attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value from these alone: the scores are computed again."""
    return _backward(gradient, query, key, value, steps, shape, is_safe, None, 1.0, None)


def attention_backward_from_probabilities(
    gradient: Any, query: Any, key: Any, value: Any, probability: Any, steps: Steps, shape: list[int]
) -> tuple[Any, Any, Any]:
    """The same from the probabilities, which must have been kept."""
    return _backward(gradient, query, key, value, steps, shape, False, None, 1.0, probability)


def dropped_attention(
    query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool, share: float, factor: float
) -> tuple[Any]:
    """Attention with a `share` of the probabilities dropped, the rest scaled up by `factor`."""
    mask = _draw(query, shape, share)
    return _forward(query, key, value, steps, shape, is_safe, mask, factor, None)


def dropped_attention_keeping(
    query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool, share: float, factor: float
) -> Any:
    """The same, with the probabilities before dropout, and its mask."""
    mask, probability = _draw(query, shape, share), query.new_empty(shape)
    (found,) = _forward(query, key, value, steps, shape, is_safe, mask, factor, probability)
    return found, probability, mask


def dropped_attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool, share: float,
    factor: float,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients of query, key and value from these alone: to be called under the state that dropout drew with."""
    mask = _draw(query, shape, share)
    return _backward(gradient, query, key, value, steps, shape, is_safe, mask, factor, None)


def dropped_attention_backward_from_probabilities(
    gradient: Any, query: Any, key: Any, value: Any, probability: Any, mask: Any, steps: Steps, shape: list[int],
    factor: float,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The same from the probabilities and dropout's mask, which must have been kept."""
    return _backward(gradient, query, key, value, steps, shape, False, mask, factor, probability)


def log_sums(query: Any, key: Any, steps: Steps, shape: list[int]) -> Any:
    """The logarithm of the sum of exponentials of each row of scores, in their shape without the last dimension."""
    found = query.new_empty(shape[:-1])
    for piece in _pieces(shape, query.element_size()):
        whole = found.view(-1, shape[-2])[piece.first : piece.end, piece.queries]
        torch.logsumexp(_scores(query, key, steps, shape, piece), -1, out=whole)
    return found


def _draw(query: Any, shape: list[int], share: float) -> Any:
    return torch.empty(shape, dtype=torch.bool, device=query.device).bernoulli_(1 - share)


def _forward(
    query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool, mask: Any, factor: float, keep: Any
) -> tuple[Any]:
    found = query.new_empty((query.shape[0], query.shape[1], value.shape[2]))
    for piece in _pieces(shape, query.element_size()):
        probability = _probabilities(query, key, steps, shape, is_safe, piece)
        if keep is not None:
            _cut(keep, piece).copy_(probability)
        _drop(probability, mask, factor, piece)
        heads = slice(piece.first, piece.end)
        torch.bmm(probability, value[heads], out=found[heads, piece.queries])
    return (found,)


def _backward(
    gradient: Any, query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool, mask: Any,
    factor: float, kept: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    of_query, of_key, of_value = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value)
    )
    for piece in _pieces(shape, query.element_size()):
        heads, queries = slice(piece.first, piece.end), piece.queries
        probability = _probabilities(query, key, steps, shape, is_safe, piece) if kept is None else _cut(kept, piece)
        dropped = probability if mask is None else _drop(probability.clone(), mask, factor, piece)
        given = gradient[heads, queries]
        _sum(of_value[heads], dropped.transpose(1, 2), given, piece)
        del dropped
        change = _drop(torch.bmm(given, value[heads].transpose(1, 2)), mask, factor, piece)
        softmax_backward.out(change, probability, -1, change.dtype, grad_input=change)
        del probability
        for name, number in reversed(steps):
            if name != "add":
                getattr(change, name + "_")(number)
        torch.bmm(change, key[heads].transpose(1, 2), out=of_query[heads, queries])
        _sum(of_key[heads], query[heads, queries].transpose(1, 2), change, piece)
    return of_query, of_key, of_value


def _sum(total: Any, left: Any, right: Any, piece: _Piece) -> None:
    """Add a product to a sum over the pieces of a head, the first of which finds no sum yet."""
    if piece.queries.start:
        total.baddbmm_(left, right)
    else:
        torch.bmm(left, right, out=total)


def _probabilities(query: Any, key: Any, steps: Steps, shape: list[int], is_safe: bool, piece: _Piece) -> Any:
    return (safe_softmax if is_safe else torch.softmax)(_scores(query, key, steps, shape, piece), -1)


def _scores(query: Any, key: Any, steps: Steps, shape: list[int], piece: _Piece) -> Any:
    heads = slice(piece.first, piece.end)
    scores = torch.bmm(query[heads, piece.queries], key[heads])
    for name, operand in steps:
        if name == "add":
            _add(scores, operand.expand(shape), piece)
        else:
            getattr(scores, name + "_")(operand)
    return scores


def _add(scores: Any, mask: Any, piece: _Piece) -> None:
    """Add a mask of the whole shape, which isn't there in memory as a whole, to the scores of a piece."""
    if mask.dim() == 3:
        scores.add_(mask[piece.first : piece.end, piece.queries])
        return
    heads = mask.shape[1]
    batches = slice(piece.first // heads, -(-piece.end // heads))
    shown = mask[batches, :, piece.queries]
    if piece.end - piece.first < heads:  # of one example only
        within = piece.first % heads
        scores.add_(shown[0, within : within + piece.end - piece.first])
    else:
        scores.view(shown.shape).add_(shown)


def _drop(tensor: Any, mask: Any, factor: float, piece: _Piece) -> Any:
    return tensor if mask is None else tensor.mul_(_cut(mask, piece)).mul_(factor)


def _cut(whole: Any, piece: _Piece) -> Any:
    """The part of a contiguous tensor in the shape of the scores that belongs to a piece."""
    return whole.view(-1, *whole.shape[-2:])[piece.first : piece.end, piece.queries]


def _pieces(shape: list[int], element_bytes: int) -> Iterator[_Piece]:
    """Whole examples if they are small enough, else heads of one, else queries of one head."""
    heads, (queries, keys) = math.prod(shape[:-2]), shape[-2:]
    head_bytes = queries * keys * element_bytes
    limit_bytes = max(heads * head_bytes // _PIECES, _LEAST_BYTES)
    of_example = shape[1] if len(shape) == 4 else 1
    if head_bytes > limit_bytes:
        rows = max(limit_bytes // (keys * element_bytes), 1)
        for head in range(heads):
            for first in range(0, queries, rows):
                yield _Piece(head, head + 1, slice(first, min(first + rows, queries)))
        return
    most = limit_bytes // head_bytes
    size = most // of_example * of_example or most
    example = heads if size >= of_example else of_example  # a piece of heads ends where its example does
    for begin in range(0, heads, example):
        for first in range(begin, begin + example, size):
            yield _Piece(first, min(first + size, begin + example), slice(0, queries))


_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001


def can_flash(query: Any, value: Any, steps: Steps, shape: list[int]) -> bool:
    """Whether the kernel can stand in: heads of one width in four dimensions, and factors before masks."""
    names = [name for name, _ in steps]
    masks = names.index("add") if "add" in names else len(names)
    is_known = query.device.type == "cpu" and query.dtype in (torch.float32, torch.float64)
    return is_known and len(shape) == 4 and query.shape[2] == value.shape[2] and set(names[masks:]) <= {"add"}


def flash_attention(query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool) -> tuple[Any, Any]:
    """Attention, and the logarithm of the sum of exponentials of each row of scores."""
    parts = _parts(shape, query, key.transpose(1, 2), value)
    found, sums = _flash(*parts, 0.0, False, attn_mask=_mask(steps, shape), scale=_scale(steps))
    return found.reshape(query.shape), sums


def flash_attention_keeping(query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool) -> Any:
    """The same by products and softmax, with the probabilities."""
    found, probability = attention_keeping(query, key, value, steps, shape, is_safe)
    return found, log_sums(query, key, steps, shape), probability


def flash_attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, found: Any, sums: Any, steps: Steps, shape: list[int]
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value."""
    turned = key.transpose(1, 2)
    parts = _parts(shape, gradient, query, turned, value, found)
    of_query, of_key, of_value = _flash_backward(
        *parts, sums, 0.0, False, attn_mask=_mask(steps, shape), scale=_scale(steps)
    )
    of_key = of_key.reshape(turned.shape).transpose(1, 2).contiguous()
    return of_query.reshape(query.shape).contiguous(), of_key, of_value.reshape(value.shape).contiguous()


def _parts(shape: list[int], *tensors: Any) -> list[Any]:
    """Batch and heads apart; the kernel reads the last dimension as if it were contiguous."""
    return [tensor.contiguous().view(*shape[:2], *tensor.shape[1:]) for tensor in tensors]


def _scale(steps: Steps) -> float:
    scale = 1.0
    for name, operand in steps:
        if name != "add":
            scale = scale * operand if name == "mul" else scale / operand
    return scale


def _mask(steps: Steps, shape: list[int]) -> Any:
    """All masks in one, in two or four dimensions."""
    masks = [operand for name, operand in steps if name == "add"]
    if not masks:
        return None
    whole = sum(masks[1:], masks[0])
    return whole if whole.dim() in (2, 4) else whole.expand([1] * (4 - whole.dim()) + list(whole.shape))
