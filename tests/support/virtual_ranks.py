"""Ranks of one process that train together in a mode: every rank's gradient, exchanged as its messages say. Imports
torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from gapless.encodings.cupcake.commands.steps_to_loss import MOST
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Bucket, Method
from gapless.torch.pipeline.layers import load_layers

__all__ = ["losses", "steps_beside_plain"]

_MODEL = "train:gpt,layers=1,hidden=32,sequence=16,vocabulary=64"
_RANKS, _BATCHES, _RATE, _PLAIN_STEPS = 4, 4, 0.3, 100


def losses(
    model: str, mode: str, ranks: int, steps: int, rate: float, batches: int, until: float = 0.0
) -> list[float]:  # fmt: skip
    """Of each step of SGD the mean loss over the last `batches` steps of all ranks; ends with the first below `until`.

    Each rank has as many batches of its own, in turns.
    """
    layered = load_layers(model, 1, 0).untied()
    net = layered.stage(0, len(layered.layers))
    parameters = list(net.parameters())
    data = [[load_layers(model, 1, 1 + rank * batches + k) for k in range(batches)] for rank in range(ranks)]
    training = _Training(mode, [tuple(each.shape) for each in parameters], ranks)
    found, latest = list[float](), list[float]()
    for step in range(steps):
        gradients = []
        for rank in range(ranks):
            batch = data[rank][step % batches]
            net.zero_grad(set_to_none=True)
            loss = batch.loss(net(batch.inputs), batch.targets)
            loss.backward()
            latest.append(float(loss.detach()))
            gradients.append(torch.cat([each.grad.reshape(-1) for each in parameters]))
        latest = latest[-ranks * batches :]
        found.append(sum(latest) / len(latest))
        if step >= batches and found[-1] <= until:
            break
        mean = training.mean(gradients)
        with torch.no_grad():
            for each, part in zip(parameters, mean.split([each.numel() for each in parameters]), strict=True):
                each.sub_(rate * part.view(each.shape))
    return found


def steps_beside_plain(mode: str) -> float:
    """Steps that a mode takes to the loss of `_PLAIN_STEPS` plain ones, over these; inf for more than `MOST` times."""
    target = losses(_MODEL, "plain", _RANKS, _PLAIN_STEPS + 1, _RATE, _BATCHES)[-1]
    found = losses(_MODEL, mode, _RANKS, round(MOST * _PLAIN_STEPS) + 1, _RATE, _BATCHES, target)
    return (len(found) - 1) / _PLAIN_STEPS if found[-1] <= target else math.inf


class _Training:
    """What all ranks keep from step to step."""

    def __init__(self, mode: str, shapes: Sequence[tuple[int, ...]], ranks: int) -> None:
        self.method: Method = method_of(mode)
        self.shapes, self.ranks, self.step = shapes, ranks, 0
        self.errors: list[torch.Tensor | None] = [None] * ranks
        self.memories: list[dict[str, Any]] = [{} for _ in range(ranks)]
        self.entries: list[dict[str, torch.Tensor]] = [{} for _ in range(ranks)]

    def mean(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """What the mode makes of the mean."""
        buckets = []
        for rank, gradient in enumerate(gradients):
            error = self.errors[rank]
            given = gradient.clone() if error is None else gradient + error
            buckets.append(
                Bucket(given, self.shapes, rank, self.ranks, 0, self.step, self.memories[rank], error,
                       self.entries[rank])
            )  # fmt: skip
        mean = _exchanged(self.method, buckets)
        if self.method.feeds_back:
            self.errors = [bucket.gradient for bucket in buckets]
        self.step += 1
        return mean


def _exchanged(method: Method, buckets: Sequence[Bucket]) -> torch.Tensor:
    exchanges = [method.exchange(bucket) for bucket in buckets]
    messages = [next(exchange) for exchange in exchanges]
    while True:
        kind, payloads = messages[0].collective, torch.stack([message.payload for message in messages])
        if kind == "all_to_all":
            arrived = list(payloads.view(len(buckets), len(buckets), -1).transpose(0, 1))
        else:
            arrived = [payloads if kind == "all_gather" else payloads.sum(0)] * len(buckets)
        answers: list[Any] = []
        for exchange, each in zip(exchanges, arrived, strict=True):
            try:
                answers.append(exchange.send(each.clone()))
            except StopIteration as end:
                answers.append(end.value)
        if messages[0].is_last:
            mean: torch.Tensor = answers[0]
            return mean
        messages = answers
