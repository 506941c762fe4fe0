"""A linear layer with cross entropy in chunks of rows, so that all scores are never there at once.

    scores = given @ weight (+ bias);   loss = sum or mean of -log_softmax(scores)[row, label[row]]

for `given` of shape (n, d), `weight` (d, c), `bias` (c,) or None and `label` (n,), where rows whose label is `ignored`
don't count. The gradients are computed from the scores again, or while the loss is: then they are kept in the place of
`given`. Equal to PyTorch's up to the order of sums over rows. All run without autograd. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gapless.torch.library import Tensor, torch

__all__ = [
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
    "linear_cross_entropy_keeping",
    "linear_cross_entropy_scale",
]

log_softmax = torch.ops.aten._log_softmax  # noqa: SLF001
_PIECES = 16
_LEAST_BYTES = 2**18
"""Rows are cut into about so many chunks, none of them with fewer bytes of scores than this unless all have."""


def linear_cross_entropy(
    given: Tensor, weight: Tensor, bias: Tensor | None, label: Tensor, ignored: int, is_mean: bool, is_turned: bool
) -> tuple[Tensor]:
    """The loss alone."""
    return (_chunked(given, weight, bias, label, ignored, is_mean, None),)


def linear_cross_entropy_keeping(
    given: Tensor, weight: Tensor, bias: Tensor | None, label: Tensor, ignored: int, is_mean: bool, is_turned: bool
) -> tuple[Tensor, ...]:
    """The loss, and the gradients of given, weight and bias (if there is one) for a loss whose own is one.

    `is_turned`: the weight's has shape (c, d).
    """
    gradients = _empty(given, weight, bias, is_turned)
    return (_chunked(given, weight, bias, label, ignored, is_mean, gradients, is_turned), *gradients)


def linear_cross_entropy_backward(
    gradient: Tensor, given: Tensor, weight: Tensor, bias: Tensor | None, label: Tensor, ignored: int, is_mean: bool,
    is_turned: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of given, weight and bias: the scores are computed again."""
    gradients = _empty(given, weight, bias, is_turned)
    _chunked(given, weight, bias, label, ignored, is_mean, gradients, is_turned)
    return tuple(kept_gradient.mul_(gradient) for kept_gradient in gradients)


def linear_cross_entropy_scale(gradient: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
    """The same from the gradients that were kept."""
    return tuple(kept_gradient * gradient for kept_gradient in kept)


def _empty(given: Tensor, weight: Tensor, bias: Tensor | None, is_turned: bool) -> tuple[Tensor, ...]:
    of_weight = weight.new_empty(weight.shape[::-1] if is_turned else weight.shape)
    found = given.new_empty(given.shape), of_weight
    return found if bias is None else (*found, torch.empty_like(bias))


def _chunked(
    given: Tensor, weight: Tensor, bias: Tensor | None, label: Tensor, ignored: int, is_mean: bool,
    gradients: tuple[Tensor, ...] | None, is_turned: bool = False,
) -> Tensor:  # fmt: skip
    """The loss; its gradients are written to `gradients`, if any."""
    counts = label != ignored
    weighed = counts.to(given.dtype)
    if is_mean:
        weighed = weighed / weighed.sum()
    places = torch.where(counts, label, 0)[:, None]
    losses = given.new_empty(len(given))
    for rows in _chunks(len(given), weight.shape[1] * given.element_size()):
        chunk = given[rows]
        scores = torch.mm(chunk, weight) if bias is None else torch.addmm(bias, chunk, weight)
        log_softmax.out(scores, 1, False, out=scores)
        torch.mul(scores.gather(1, places[rows])[:, 0], weighed[rows], out=losses[rows])
        if gradients is not None:
            scores.exp_().mul_(weighed[rows, None]).scatter_add_(1, places[rows], -weighed[rows, None])
            _add(gradients, chunk, weight, scores, rows, is_turned)
    return losses.sum().neg_()


def _add(
    gradients: tuple[Tensor, ...], given: Tensor, weight: Tensor, change: Tensor, rows: slice, is_turned: bool
) -> None:
    """The part of the gradients that a chunk makes, given that of its scores."""
    of_given, of_weight, *of_bias = gradients
    torch.mm(change, weight.t(), out=of_given[rows])
    left, right = (change.t(), given) if is_turned else (given.t(), change)
    if rows.start:
        of_weight.addmm_(left, right)
    else:
        torch.mm(left, right, out=of_weight)
    for total in of_bias:
        if rows.start:
            total.add_(change.sum(0))
        else:
            torch.sum(change, 0, out=total)


def _chunks(count: int, row_bytes: int) -> Iterator[slice]:
    size = max(-(-count // _PIECES), _LEAST_BYTES // max(row_bytes, 1), 1)
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))
