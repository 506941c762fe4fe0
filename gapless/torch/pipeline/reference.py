"""A step in one process without a pipeline, and how far other gradients are from its own. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gapless.torch.library import torch
from gapless.torch.pipeline.layers import LayeredModel

__all__ = ["one_process", "squared_error"]


def one_process(model: LayeredModel, micro_batches: int) -> tuple[dict[str, Any], list[float]]:
    """Gradients by name and the loss of each micro-batch, one after the other on one thread; means over the batch."""
    whole, losses = model.stage(0, len(model.layers)), []
    with _one_thread():
        whole.zero_grad(set_to_none=True)
        for inputs, targets in model.split(micro_batches):
            loss = model.loss(whole(inputs), targets)
            loss.backward()
            losses.append(float(loss.detach()))
    gradients = {name: parameter.grad for name, parameter in whole.named_parameters()}
    for gradient in gradients.values():
        if gradient is not None:
            gradient.div_(micro_batches)
    return gradients, losses


@contextmanager
def _one_thread() -> Iterator[None]:
    """As the ranks have it: with more, sums come in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def squared_error(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The squared distance of gradients from those expected, relative to their squared norm."""
    apart = norm = 0.0
    for name, gradient in expected.items():
        if gradient is not None:
            gradient = gradient.double()
            apart += float((found[name].double() - gradient).square().sum())
            norm += float(gradient.square().sum())
    return apart / norm if norm else apart
