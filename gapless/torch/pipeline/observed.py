"""What compressed hops lose in a training, held against the analysis of lazy error propagation by Optimus-CC.

A hop compresses the gradient G[m] of micro-batch m (or G[m] - E[m - 1] with errors propagated), and by that
adds E[m]. Y[m] is the activation that it had sent up. The gradient of weights is off by the sum of E[m]^T Y[m], or
with errors propagated by that of E[m]^T (Y[m] - Y[m + 1]) and a term at the end of the step (equations 11 and 12,
section 5.1). Equations 13 and 14 name two cases in which the sum is small.
Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gapless.torch.library import Tensor, torch

__all__ = ["GradientErrors", "HopErrors", "HopObserver", "gradient_sums", "joined"]


@dataclass(frozen=True)
class HopErrors:
    """What a hop lost in one step, of the micro-batches that it compressed.

    `share[m]`: the squared norm of the error, relative to that of what was compressed. The next five are of neighbours
    m, m + 1: `error_mean`, `change_mean`: the means of E[m] and of Y[m] - Y[m + 1], over their root mean squares;
    `cosine`: of the two (equation 14); `errors_cosine`: of E[m] and E[m + 1] (equation 13), `activations_cosine`: of
    Y[m] and Y[m + 1]. The rest are norms of sums over micro-batches, relative to that of G[m]^T Y[m]: `off`: of what
    arrives less G[m], times Y[m]; `inner`: of E[m]^T (Y[m] - Y[m + 1]), `end`: the last E[m]^T Y[m] (equation 12).
    """

    step: int
    hop: int
    share: tuple[float, ...]
    error_mean: tuple[float, ...]
    change_mean: tuple[float, ...]
    cosine: tuple[float, ...]
    errors_cosine: tuple[float, ...]
    activations_cosine: tuple[float, ...]
    off: float
    inner: float
    end: float


@dataclass(frozen=True)
class GradientErrors:
    """Of the gradients of a replica in a step, beside those at the same weights without compression, before sums.

    `error`: their squared distance, relative; `cosine`: of the two.
    """

    step: int
    error: float
    cosine: float


@dataclass
class HopObserver:
    """Is shown what comes in and what is lost at one hop in a step."""

    _activations: dict[int, Tensor] = field(default_factory=dict)
    _sent: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)

    def come(self, micro_batch: int, activation: Tensor) -> None:
        """What the hop has sent up."""
        self._activations[micro_batch] = activation.detach().clone()

    def look(self, micro_batch: int, gradient: Tensor, given: Tensor, lost: Tensor) -> None:
        """What should go down, what is compressed, and what of that doesn't arrive."""
        self._sent[micro_batch] = gradient.detach().clone(), given.detach().clone(), -lost.detach()

    def seen(self, step: int, hop: int) -> HopErrors | None:
        """All of the step, None where nothing was compressed; forgotten then."""
        sent, activations = self._sent, self._activations
        self._sent, self._activations = {}, {}
        if not sent:
            return None
        numbers = sorted(sent)
        pairs = [m for m in numbers if m + 1 in sent]
        errors = {m: error for m, (_, _, error) in sent.items()}
        changes = {m: activations[m] - activations[m + 1] for m in pairs}
        rows = [
            (_mean(errors[m]), _mean(changes[m]), _cosine(errors[m], changes[m]), _cosine(errors[m], errors[m + 1]),
             _cosine(activations[m], activations[m + 1]))
            for m in pairs
        ]  # fmt: skip
        error_mean, change_mean, cosine, errors_cosine, alike = (tuple(row[k] for row in rows) for k in range(5))
        apart = {m: given + error - gradient for m, (gradient, given, error) in sent.items()}
        exact = {m: gradient for m, (gradient, _, _) in sent.items()}
        norm = max(_norm(exact, activations, numbers), _TINY)
        shares = tuple(_share(error, given) for _, (_, given, error) in sorted(sent.items()))
        return HopErrors(
            step, hop, shares, error_mean, change_mean, cosine, errors_cosine, alike,
            off=_norm(apart, activations, numbers) / norm,
            inner=_norm(errors, changes, pairs) / norm,
            end=_norm(errors, activations, numbers[-1:]) / norm,
        )  # fmt: skip


_TINY = 1e-30


def _mean(tensor: Tensor) -> float:
    return float(tensor.mean()) / max(float(tensor.square().mean().sqrt()), _TINY)


def _cosine(one: Tensor, other: Tensor) -> float:
    product = float((one * other).sum())
    return product / max(float(one.norm()) * float(other.norm()), _TINY)


def _share(error: Tensor, given: Tensor) -> float:
    return float(error.square().sum()) / max(float(given.square().sum()), _TINY)


def _norm(gradients: Mapping[int, Tensor], others: Mapping[int, Tensor], of: Iterable[int]) -> float:
    """Of the sum of gradients[m]^T others[m], over all rows of a micro-batch."""
    products = [gradients[m].flatten(0, -2).T @ others[m].flatten(0, -2) for m in of]
    return float(torch.stack(products).sum(0).norm()) if products else 0.0


def gradient_sums(found: Sequence[Tensor], expected: Sequence[Tensor]) -> tuple[float, float, float, float]:
    """Over some gradients: of the squared distance, of both squared norms, and of the products."""
    sums = torch.zeros(4, dtype=torch.float64)
    for one, other in zip(found, expected, strict=True):
        a, b = one.double(), other.double()
        sums += torch.stack([(a - b).square().sum(), a.square().sum(), b.square().sum(), (a * b).sum()])
    apart, norm, plain, product = sums.tolist()
    return apart, norm, plain, product


def joined(step: int, parts: Iterable[Sequence[float]]) -> GradientErrors:
    """Of all ranks' `gradient_sums`."""
    apart, norm, plain, product = (sum(column) for column in zip(*parts, strict=True))
    return GradientErrors(step, apart / max(plain, _TINY), product / max((norm * plain) ** 0.5, _TINY))
