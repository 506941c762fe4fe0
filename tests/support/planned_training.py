"""A small embedding model, trained from batch plans in p processes and without them in one. Imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from changed_plans import CHANGES, Plans
from torch import nn

from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.parameters import Bound, Parameters, Search
from gapless.encodings.bagpipe.problem import Planning
from gapless.errors import InputError
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import Trace
from gapless.torch.embeddings.cache import LrppCache, add_gradients
from gapless.torch.embeddings.plans import PlannedBatchSampler, Sharding, shared_plans

TABLE_ROWS, DIMENSION, STEP_SIZE = (60, 9, 150), 4, 0.5
PARAMETERS = Parameters(Search(rounds=8), Bound(rounds=0))


@dataclass(frozen=True)
class Setting:
    """What to train on and how it is planned. `shared`: rank 0 plans for all. `stop`: flush after so many batches."""

    lookahead: int | None = 3
    cache_rows: int | None = None
    objective: str = "paper"
    ownership: str = "first-touch"
    batch_size: int = 13
    examples: int = 13 * 12 + 5
    shared: bool = False
    stop: int | None = None
    shares: tuple[float, ...] | None = None
    change: str = "nothing"

    def trace(self) -> Trace:
        return zipf_trace(TABLE_ROWS, 1.1, self.examples, seed=5)

    def planning(self, trainers: int) -> Planning:
        return Planning(
            trainers, self.batch_size, self.lookahead, self.cache_rows, self.objective, ownership=self.ownership,
            shares=self.shares,
        )  # fmt: skip

    def plans(self, trainers: int) -> Iterator[BatchPlan]:
        """Before they are changed."""
        return batch_plans(self.trace(), self.planning(trainers), PARAMETERS)


class Examples(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Dense inputs and labels; `__getitems__` loads a batch at once, an empty one too."""

    def __init__(self, examples: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(examples, 2, generator=generator)
        self.labels = torch.randint(2, (examples,), generator=generator).float()

    def __getitems__(self, numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[numbers], self.labels[numbers]


class Model(nn.Module):
    """The dense part: two layers on an example's inputs and its embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2 + DIMENSION * len(TABLE_ROWS), 6)
        self.last = nn.Linear(6, 1)

    def forward(self, inputs: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(torch.cat([inputs, embeddings.flatten(start_dim=1)], dim=1)))
        return self.last(hidden)[:, 0]


def fresh() -> tuple[Model, torch.Tensor]:
    """The same model and the same rows of all tables in every process.

    Rows are no larger than their gradients: larger ones would swallow most differences in how gradients are rounded.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Model(), 0.02 * torch.randn(sum(TABLE_ROWS), DIMENSION)


def backward(
    model: Model, rows: torch.Tensor, index: torch.Tensor, data: tuple[torch.Tensor, torch.Tensor], examples: int
) -> None:
    """The gradients of a part of a batch with so many examples in all."""
    inputs, labels = data
    scores = model(inputs, nn.functional.embedding(index, rows))
    loss = nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / examples
    loss.backward()


# -- from plans --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """`rows` of this server, dense `parameters`, and the numbers of the examples of each batch.

    `moved_bytes`: what reached this process, by kind.
    """

    rows: torch.Tensor
    parameters: list[torch.Tensor]
    numbers: list[list[int]] = field(default_factory=list)
    moved_bytes: dict[str, int] = field(default_factory=dict)


def train(setting: Setting, rank: int, ranks: int) -> Trained:
    """One rank of training from plans, as a user would write it."""
    plans: Plans | None = None if setting.shared and rank else CHANGES[setting.change](setting.plans(ranks))
    if setting.shared:
        plans = shared_plans(plans)
    assert plans is not None
    for_loader, for_numbers, for_cache = itertools.tee(plans, 3)
    model, table = fresh()
    sharding = Sharding(TABLE_ROWS, ranks)
    weights = table[sharding.rows_of(rank)]
    dataset = Examples(setting.examples)
    loader = torch.utils.data.DataLoader(
        dataset, batch_sampler=PlannedBatchSampler(for_loader, rank), collate_fn=lambda data: data
    )
    cache = LrppCache(for_cache, sharding, weights, step_size=STEP_SIZE, timeout_s=120.0)
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)
    for data in itertools.islice(loader, setting.stop):
        found = cache.lookup()
        optimiser.zero_grad()
        backward(model, found.rows, found.index, data, found.batch_examples)
        cache.update()
        add_gradients(model.parameters())
        optimiser.step()
    cache.flush()
    cache.close()
    numbers = list(itertools.islice(PlannedBatchSampler(for_numbers, rank), setting.stop))
    return Trained(weights, [parameter.detach() for parameter in model.parameters()], numbers, cache.moved_bytes)


# -- without plans -----------------------------------------------------------------------------------------------------


def train_uncached(setting: Setting, parts: list[list[list[int]]]) -> Trained:
    """Synchronous training without a cache: `parts[b]` has the examples of each rank in batch b.

    The ranks of a batch compute their gradients one after another from the same table, and the sums in the order of
    ranks are applied.
    """
    model, table = fresh()
    dataset = Examples(setting.examples)
    table_of = np.cumsum(TABLE_ROWS) - TABLE_ROWS
    rows = torch.from_numpy(np.concatenate(list(setting.trace().blocks())) + table_of)
    for of_ranks in parts:
        examples = sum(len(numbers) for numbers in of_ranks)
        table_sum = torch.zeros_like(table)
        sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for numbers in of_ranks:
            leaf = table.clone().requires_grad_()
            model.zero_grad()
            backward(model, leaf, rows[numbers], dataset.__getitems__(numbers), examples)
            assert leaf.grad is not None
            table_sum += leaf.grad
            for total, parameter in zip(sums, model.parameters(), strict=True):
                total += parameter.grad
        table -= STEP_SIZE * table_sum
        with torch.no_grad():
            for total, parameter in zip(sums, model.parameters(), strict=True):
                parameter.sub_(total, alpha=STEP_SIZE)
    return Trained(table, [parameter.detach() for parameter in model.parameters()])


# -- programs of one rank ----------------------------------------------------------------------------------------------

SETTINGS = {
    "lookahead-1": Setting(lookahead=1),
    "lookahead-3": Setting(shared=True),
    "lookahead-10": Setting(lookahead=10, ownership="hash"),
    "beyond-the-end": Setting(lookahead=200),
    "small-cache": Setting(lookahead=None, cache_rows=56),
    "smaller-cache": Setting(lookahead=8, cache_rows=40, shared=True),
    "smallest-cache": Setting(lookahead=8, cache_rows=28),
    "fetches": Setting(objective="fetches"),
    "fetches-hash": Setting(objective="fetches", ownership="hash", lookahead=10, shared=True),
    "max-load": Setting(objective="max-load", lookahead=5),
    "last-batch-of-one": Setting(examples=13 * 6 + 1),
    "stopped": Setting(lookahead=10, stop=7, shared=True),
    "uneven-shares": Setting(shares=(3.0, 1.0, 1.0)),
}
BROKEN = ("now-unsynchronised", "later-unsynchronised", "one-early", "two-early")
REFUSED = ("evicted-early", "not-prefetched", "left-to-background", "place-taken", "too-late")


def settings_of(ranks: int) -> dict[str, Setting]:
    """What so many ranks train."""
    settings = {name: setting for name, setting in SETTINGS.items() if len(setting.shares or range(ranks)) == ranks}
    return settings | {change: Setting(change=change) for change in BROKEN}


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """All settings, and what is said of a plan that can't be made."""
    ranks = torch.distributed.get_world_size()
    found: dict[str, Any] = {name: train(setting, rank, ranks) for name, setting in settings_of(ranks).items()}
    too_small = Setting(lookahead=None, cache_rows=5).plans(ranks)
    found["no plan"] = refusal(lambda: next(shared_plans(None if rank else too_small)))
    return found


def be_refused(rank: int, folder: Path) -> dict[str, str]:
    """Plans that can't be followed and calls that make no sense, on one rank, where nobody waits for another."""
    said = {}
    for change in REFUSED:
        setting = Setting(change=change)
        said[change] = refusal(lambda setting=setting: train(setting, rank, 1))
    said |= {name: refusal(lambda misuse=misuse: misuse()) for name, misuse in MISUSES.items()}
    return said


def refusal(action: Callable[[], Any]) -> str:
    """The message with which an action is refused; empty if it isn't."""
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


def cache_of(rows: int = sum(TABLE_ROWS), servers: int = 1, trainers: int = 1, examples: int = 13) -> LrppCache:
    """A cache of one rank."""
    plans = Setting(examples=examples).plans(trainers)
    return LrppCache(plans, Sharding(TABLE_ROWS, servers), torch.zeros(rows, DIMENSION), step_size=STEP_SIZE)


def _looked_up_twice() -> None:
    cache = cache_of()
    cache.lookup()
    cache.lookup()


def _flushed_between() -> None:
    cache = cache_of()
    cache.lookup()
    cache.flush()


def _without_backward() -> None:
    cache = cache_of()
    cache.lookup()
    cache.update()


def _past_the_end() -> None:
    cache = cache_of()
    cache.lookup().rows.sum().backward()
    cache.update()
    cache.lookup()


MISUSES: dict[str, Callable[[], Any]] = {
    "looked up twice": _looked_up_twice,
    "flushed between": _flushed_between,
    "no lookup": lambda: cache_of().update(),
    "no backward": _without_backward,
    "past the end": _past_the_end,
    "weights": lambda: cache_of(rows=7),
    "servers": lambda: cache_of(servers=2),
    "trainers": lambda: cache_of(trainers=2),
    "rank": lambda: next(iter(PlannedBatchSampler(Setting().plans(2), 2))),
    "plans": lambda: shared_plans(None),
    "ahead": lambda: shared_plans(iter(()), ahead=0),
}
