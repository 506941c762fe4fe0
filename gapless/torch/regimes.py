"""Critical phases of a training as Accordion's paper looks at them: norms of gradients, beside the Hessian's top
eigenvalue; and how far the largest entries of one gradient are those of the next.

One process trains. Needs the extra `torch`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gapless.errors import RunError
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.training import Recipe, examples_of
from gapless.torch.library import Tensor, torch
from gapless.torch.run.workload import Workload

__all__ = ["Regimes", "observed_regimes", "overlap", "top_eigenvalue"]

_TOLERANCE = 1e-3
"""Share by which an eigenvalue may still change when its iteration ends."""


@dataclass
class Regimes:
    """By epoch. `norms`: of each layer's mean gradient; `eigenvalues`: the Hessian's largest in magnitude, of the loss
    of a fixed part of the data, after the epoch; `overlaps`: the share of a gradient's largest entries that are also
    the next one's, `mean_overlaps`: that are also the epoch's mean gradient's, means over steps; `losses`: of what is
    held out. `products`: of the Hessian with a vector, in all. `norm_s`, `eigenvalue_s`: processor time that norms and
    eigenvalues took.
    """

    layers: tuple[str, ...]
    norms: list[list[float]] = field(default_factory=list)
    eigenvalues: list[float] = field(default_factory=list)
    overlaps: list[float] = field(default_factory=list)
    mean_overlaps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    products: int = 0
    norm_s: float = 0.0
    eigenvalue_s: float = 0.0


def observed_regimes(
    recipe: Recipe, share: float, iterations: int, examples: int, stop: threading.Event | None = None
) -> Regimes:
    """Train by SGD. `share`: of the entries of a gradient, the largest, that are compared. `iterations`: at most, for
    an eigenvalue of the loss of so many `examples`. Raises `InputError` for a model or data that can't be, `RunError`
    where `stop` is set.
    """
    data = examples_of(recipe)
    model, held_out, fixed = data.work.model, data.held_out(), data.batch(slice(0, min(examples, data.trained)))
    parameters = trainable(model)
    torch.manual_seed(recipe.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate[0], momentum=recipe.momentum)
    found, vector = Regimes(tuple(parameters)), [torch.randn_like(each) for each in parameters.values()]
    for epoch, rate in enumerate(recipe.learning_rate):
        for group in optimizer.param_groups:
            group["lr"] = rate
        total, chosen = [torch.zeros_like(each) for each in parameters.values()], list[Tensor]()
        for work in data.batches(recipe, epoch, 0):
            if stop is not None and stop.is_set():
                raise RunError("the training was stopped")
            optimizer.zero_grad()
            work.loss_of(model).backward()
            begin_s = time.thread_time()
            gradients = [each.grad.detach() for each in parameters.values()]
            torch._foreach_add_(total, gradients)
            found.norm_s += time.thread_time() - begin_s
            chosen.append(_largest(gradients, share))
            optimizer.step()
        found.norms.append([float(each.norm()) / len(chosen) for each in total])
        found.overlaps.append(_mean([overlap(*pair) for pair in pairwise(chosen)]))
        of_mean = _largest(total, share)
        found.mean_overlaps.append(_mean([overlap(each, of_mean) for each in chosen]))
        model.eval()
        begin_s = time.thread_time()
        eigenvalue, vector, products = top_eigenvalue(fixed, list(parameters.values()), vector, iterations)
        found.eigenvalue_s += time.thread_time() - begin_s
        found.eigenvalues.append(eigenvalue)
        found.products += products
        with torch.no_grad():
            found.losses.append(float(held_out.loss_of(model)))
        model.train()
    return found


def top_eigenvalue(
    work: Workload, parameters: Sequence[Tensor], start: Sequence[Tensor], iterations: int
) -> tuple[float, list[Tensor], int]:
    """The largest eigenvalue in magnitude of the Hessian of a loss in the parameters, by power iteration from `start`,
    whose products come from a second backward pass; its vector, and how many products it took.
    """
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # others have no second backward pass
        gradients = torch.autograd.grad(work.loss_of(work.model), parameters, create_graph=True)
    vector, value = _unit(start), 0.0
    for number in range(iterations):
        product = torch.autograd.grad(gradients, parameters, vector, retain_graph=True, materialize_grads=True)
        before, value = value, sum(float((x * y).sum()) for x, y in zip(vector, product, strict=True))
        if not any(bool(each.any()) for each in product):
            return 0.0, vector, number + 1
        vector = _unit(product)
        if abs(value - before) <= _TOLERANCE * abs(value):
            return value, vector, number + 1
    return value, vector, iterations


def overlap(chosen: Tensor, other: Tensor) -> float:
    """The share of entries that are chosen in both of two equally large choices, bool, shape (entries,)."""
    return float((chosen & other).sum()) / max(int(chosen.sum()), 1)


def _largest(gradients: Sequence[Tensor], share: float) -> Tensor:
    """Of all entries of gradients as one flat vector, whether each is among the largest in magnitude."""
    flat = torch.cat([each.flatten() for each in gradients]).abs()
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[flat.topk(max(1, round(share * len(flat))), sorted=False).indices] = True
    return chosen


def _unit(vector: Sequence[Tensor]) -> list[Tensor]:
    norm = torch.stack([each.norm() for each in vector]).norm()
    return [each.detach() / norm for each in vector]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
