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
from typing import TypeAlias

from gapless.torch.library import Argument, Tensor, torch

__all__ = [
    "Steps",
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
]


safe_softmax = torch.ops.aten._safe_softmax  # noqa: SLF001
softmax_backward = torch.ops.aten._softmax_backward_data  # noqa: SLF001
_PIECES = 16
_LEAST_BYTES = 2**18
"""Scores are cut into at most so many pieces, none of them smaller than this unless all are."""

Steps: TypeAlias = tuple[tuple[str, Argument], ...]
Shape: TypeAlias = list[int]
Three: TypeAlias = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class _Piece:
    """Heads `first` to `end` of all, and queries of theirs; all of them unless it is a single head."""

    first: int
    end: int
    queries: slice


@dataclass(frozen=True)
class _Scores:
    """What the scores are computed from, piece by piece."""

    query: Tensor
    key: Tensor
    steps: Steps
    shape: Shape
    is_safe: bool = False

    def pieces(self) -> Iterator[_Piece]:
        """All of them."""
        return _pieces(self.shape, self.query.element_size())

    def of(self, piece: _Piece) -> Tensor:
        """A piece of the scores."""
        heads = slice(piece.first, piece.end)
        scores = torch.bmm(self.query[heads, piece.queries], self.key[heads])
        for name, operand in self.steps:
            if name == "add":
                _add(scores, operand.expand(self.shape), piece)
            else:
                getattr(scores, name + "_")(operand)
        return scores

    def probabilities(self, piece: _Piece) -> Tensor:
        """A piece of the softmax."""
        return (safe_softmax if self.is_safe else torch.softmax)(self.of(piece), -1)

    def mask(self, share: float) -> Tensor:
        """Of dropout, drawn."""
        return torch.empty(self.shape, dtype=torch.bool, device=self.query.device).bernoulli_(1 - share)


@dataclass(frozen=True)
class _Dropout:
    """The mask, None where nothing is dropped, and what the rest is scaled up by."""

    mask: Tensor | None = None
    factor: float = 1.0

    def on(self, tensor: Tensor, piece: _Piece) -> Tensor:
        """A piece, dropped in place."""
        return tensor if self.mask is None else tensor.mul_(_cut(self.mask, piece)).mul_(self.factor)


def attention(query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool) -> tuple[Tensor]:
    """Attention without dropout."""
    return (_forward(_Scores(query, key, steps, shape, is_safe), value),)


def attention_keeping(
    query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool
) -> tuple[Tensor, Tensor]:
    """The same, and the probabilities."""
    probability = query.new_empty(shape)
    return _forward(_Scores(query, key, steps, shape, is_safe), value, keep=probability), probability


def attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool
) -> Three:
    """The gradients of query, key and value from these alone: the scores are computed again."""
    return _backward(gradient, _Scores(query, key, steps, shape, is_safe), value)


def attention_backward_from_probabilities(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, probability: Tensor, steps: Steps, shape: Shape
) -> Three:
    """The same from the probabilities, which must have been kept."""
    return _backward(gradient, _Scores(query, key, steps, shape), value, kept=probability)


def dropped_attention(
    query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool, share: float, factor: float
) -> tuple[Tensor]:
    """Attention with a `share` of the probabilities dropped, the rest scaled up by `factor`."""
    scores = _Scores(query, key, steps, shape, is_safe)
    return (_forward(scores, value, _Dropout(scores.mask(share), factor)),)


def dropped_attention_keeping(
    query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool, share: float, factor: float
) -> Three:
    """The same, with the probabilities before dropout, and its mask."""
    scores = _Scores(query, key, steps, shape, is_safe)
    mask, probability = scores.mask(share), query.new_empty(shape)
    return _forward(scores, value, _Dropout(mask, factor), probability), probability, mask


def dropped_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool,
    share: float, factor: float,
) -> Three:  # fmt: skip
    """The gradients of query, key and value from these alone: to be called under the state that dropout drew with."""
    scores = _Scores(query, key, steps, shape, is_safe)
    return _backward(gradient, scores, value, _Dropout(scores.mask(share), factor))


def dropped_attention_backward_from_probabilities(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, probability: Tensor, mask: Tensor, steps: Steps,
    shape: Shape, factor: float,
) -> Three:  # fmt: skip
    """The same from the probabilities and dropout's mask, which must have been kept."""
    return _backward(gradient, _Scores(query, key, steps, shape), value, _Dropout(mask, factor), probability)


def log_sums(query: Tensor, key: Tensor, steps: Steps, shape: Shape) -> Tensor:
    """The logarithm of the sum of exponentials of each row of scores, in their shape without the last dimension."""
    sums, scores = query.new_empty(shape[:-1]), _Scores(query, key, steps, shape)
    for piece in scores.pieces():
        rows = sums.view(-1, shape[-2])[piece.first : piece.end, piece.queries]
        torch.logsumexp(scores.of(piece), -1, out=rows)
    return sums


def _forward(
    scores: _Scores, value: Tensor, dropout: _Dropout = _Dropout(), keep: Tensor | None = None
) -> Tensor:  # fmt: skip
    query = scores.query
    output = query.new_empty((query.shape[0], query.shape[1], value.shape[2]))
    for piece in scores.pieces():
        probability = scores.probabilities(piece)
        if keep is not None:
            _cut(keep, piece).copy_(probability)
        dropout.on(probability, piece)
        heads = slice(piece.first, piece.end)
        torch.bmm(probability, value[heads], out=output[heads, piece.queries])
    return output


def _backward(
    gradient: Tensor, scores: _Scores, value: Tensor, dropout: _Dropout = _Dropout(), kept: Tensor | None = None
) -> Three:
    query, key = scores.query, scores.key
    of_query, of_key, of_value = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value)
    )
    for piece in scores.pieces():
        heads, queries = slice(piece.first, piece.end), piece.queries
        probability = scores.probabilities(piece) if kept is None else _cut(kept, piece)
        dropped = probability if dropout.mask is None else dropout.on(probability.clone(), piece)
        given = gradient[heads, queries]
        _sum(of_value[heads], dropped.transpose(1, 2), given, piece)
        del dropped
        change = dropout.on(torch.bmm(given, value[heads].transpose(1, 2)), piece)
        softmax_backward.out(change, probability, -1, change.dtype, grad_input=change)
        del probability
        for name, number in reversed(scores.steps):
            if name != "add":
                getattr(change, name + "_")(number)
        torch.bmm(change, key[heads].transpose(1, 2), out=of_query[heads, queries])
        _sum(of_key[heads], query[heads, queries].transpose(1, 2), change, piece)
    return of_query, of_key, of_value


def _sum(total: Tensor, left: Tensor, right: Tensor, piece: _Piece) -> None:
    """Add a product to a sum over the pieces of a head, the first of which finds no sum yet."""
    if piece.queries.start:
        total.baddbmm_(left, right)
    else:
        torch.bmm(left, right, out=total)


def _add(scores: Tensor, mask: Tensor, piece: _Piece) -> None:
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


def _cut(whole: Tensor, piece: _Piece) -> Tensor:
    """The part of a contiguous tensor in the shape of the scores that belongs to a piece."""
    return whole.view(-1, *whole.shape[-2:])[piece.first : piece.end, piece.queries]


def _pieces(shape: Shape, element_bytes: int) -> Iterator[_Piece]:
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


def can_flash(query: Tensor, value: Tensor, steps: Steps, shape: Shape) -> bool:
    """Whether the kernel can stand in: heads of one width in four dimensions, and factors before masks."""
    names = [name for name, _ in steps]
    masks = names.index("add") if "add" in names else len(names)
    is_known = query.device.type == "cpu" and query.dtype in (torch.float32, torch.float64)
    return is_known and len(shape) == 4 and query.shape[2] == value.shape[2] and set(names[masks:]) <= {"add"}


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool
) -> tuple[Tensor, Tensor]:
    """Attention, and the logarithm of the sum of exponentials of each row of scores."""
    parts = _parts(shape, query, key.transpose(1, 2), value)
    output, sums = _flash(*parts, 0.0, False, attn_mask=_mask(steps, shape), scale=_scale(steps))
    return output.reshape(query.shape), sums


def flash_attention_keeping(
    query: Tensor, key: Tensor, value: Tensor, steps: Steps, shape: Shape, is_safe: bool
) -> Three:
    """The same by products and softmax, with the probabilities."""
    output, probability = attention_keeping(query, key, value, steps, shape, is_safe)
    return output, log_sums(query, key, steps, shape), probability


def flash_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, sums: Tensor, steps: Steps,
    shape: Shape,
) -> Three:  # fmt: skip
    """The gradients of query, key and value."""
    turned = key.transpose(1, 2)
    parts = _parts(shape, gradient, query, turned, value, output)
    of_query, of_key, of_value = _flash_backward(
        *parts, sums, 0.0, False, attn_mask=_mask(steps, shape), scale=_scale(steps)
    )
    of_key = of_key.reshape(turned.shape).transpose(1, 2).contiguous()
    return of_query.reshape(query.shape).contiguous(), of_key, of_value.reshape(value.shape).contiguous()


def _parts(shape: Shape, *tensors: Tensor) -> list[Tensor]:
    """Batch and heads apart; the kernel reads the last dimension as if it were contiguous."""
    return [tensor.contiguous().view(*shape[:2], *tensor.shape[1:]) for tensor in tensors]


def _scale(steps: Steps) -> float:
    scale = 1.0
    for name, operand in steps:
        if name != "add":
            scale = scale * operand if name == "mul" else scale / operand
    return scale


def _mask(steps: Steps, shape: Shape) -> Tensor | None:
    """All masks in one, in two or four dimensions."""
    masks = [operand for name, operand in steps if name == "add"]
    if not masks:
        return None
    whole = sum(masks[1:], masks[0])
    return whole if whole.dim() in (2, 4) else whole.expand([1] * (4 - whole.dim()) + list(whole.shape))
