"""Trainer: a small model, trained batch after batch with the rows that a carrier has for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.training.carrier import Carrier
from gapless.torch.embeddings.task import MOMENTS, Task, flat, inputs_of, loss_of
from gapless.torch.library import Tensor, torch

__all__ = ["Trainer"]


class Trainer:
    """One process's model, with the loss of each batch so far. `cluster`: which says what passes take, emulated."""

    def __init__(self, task: Task, cluster: Cluster, rank: int) -> None:
        self._task, self._cluster, self._rank = task, cluster, rank
        self.model, _ = task.started()
        self.losses: list[float] = []
        self._descent = torch.optim.SGD(self.model.parameters(), lr=task.step_size)
        self._loss = torch.nn.Parameter(torch.zeros(1))  # its gradient is a loss, added up as gradients are

    def train(self, carrier: Carrier, at: Callable[[str], None] = lambda moment: None) -> None:
        """The carrier's next batch. `at`: called at each of `MOMENTS`."""
        moves = carrier.stream.of(carrier.batch)
        embeddings = carrier.lookup()
        own = np.flatnonzero(moves.trainer == self._rank)
        numbers, labels = self._task.data(moves)
        self._descent.zero_grad()
        inputs = inputs_of(self._task, moves, own, numbers, embeddings.pooled())
        loss = loss_of(self.model(inputs), labels[own], embeddings.batch_examples)
        loss.backward()
        carrier.spend(sum(self._cluster.pass_s(float(len(own)))))
        at(MOMENTS[0])
        self._loss.grad = loss.detach()[None]
        carrier.update([*self.model.parameters(), self._loss])
        at(MOMENTS[1])
        self._descent.step()
        self.losses.append(float(self._loss.grad))

    def state(self) -> Tensor:
        """Dense parameters, and the losses so far."""
        return torch.cat([flat(self.model), torch.tensor(self.losses)])

    def state_after(self, batches: int) -> Tensor:
        """Room for the state after so many batches."""
        return torch.empty(len(flat(self.model)) + batches)

    def take_over(self, state: Tensor) -> None:
        """Go on from a state."""
        parameters = list(self.model.parameters())
        sizes = [each.numel() for each in parameters]
        *values, losses = state.split([*sizes, len(state) - sum(sizes)])
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value.reshape(parameter.shape))
        self.losses = losses.tolist()
