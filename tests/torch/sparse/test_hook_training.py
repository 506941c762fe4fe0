"""Training with sparse gradients in two pairs of processes: groups, overflows, resuming, steps without a gradient.

Without torch these tests are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from hook_training import PAIRS, refusal, reloaded
from torch import nn

from gapless.errors import InputError
from gapless.torch.sparse import attach
from gapless.torch.sparse.allreduce import TopkAllgather
from gapless.torch.sparse.hook import attach_exchange
from gapless.torch.sparse.plan import Regions, SparsePlan

LENGTH, DENSITY, STEPS, SAVED_AT = 8 * 16 + 16 + 16 * 4 + 4, 0.1, 6, 3
COUNT = round(DENSITY * LENGTH)
PLAN = SparsePlan(
    Regions((0, 40, LENGTH), (1, 0)), DENSITY, ((0, 1, 0, 1), (1, 0, 1, 0)), ((0, 1, 0), (1, 0, 1)), COUNT,
    "gapless.encodings.oktopk",
)  # fmt: skip
KINDS = ("plan", "all")


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(step * 4 + rank)
    given, wanted = torch.randn(5, 8, generator=drawn), torch.randn(5, 4, generator=drawn)
    return nn.functional.mse_loss(model(given), wanted)


class Training:
    """One rank's model in DDP over a group, with a hook of a kind."""

    def __init__(self, kind: str, group: Any, is_scaled: bool = False) -> None:
        self.ddp = nn.parallel.DistributedDataParallel(made(), process_group=group, bucket_cap_mb=1e-4)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, enabled=is_scaled)
        if kind == "plan":
            self.state = attach(self.ddp, PLAN, period=2, renewal=2, scaler=self.scaler)
        else:
            self.state = attach_exchange(self.ddp, DENSITY, TopkAllgather(group), 2, self.scaler)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), 0.1, momentum=0.9)
        self.rank = torch.distributed.get_rank()

    def step(self, number: int, factor: float = 1.0) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(loss_of(self.ddp, self.rank, number) * factor).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def train(self, steps: Sequence[int]) -> torch.Tensor:
        for number in steps:
            self.step(number)
        return torch.cat([each.detach().flatten() for each in self.ddp.parameters()])


def _resumed(kind: str, group: Any) -> torch.Tensor:
    first = Training(kind, group)
    first.train(range(SAVED_AT))
    data = reloaded([each.state_dict() for each in (first.ddp.module, first.optimizer, first.state)])
    second = Training(kind, group)
    for each, saved in zip((second.ddp.module, second.optimizer, second.state), data, strict=True):
        each.load_state_dict(saved)
    return second.train(range(SAVED_AT, STEPS))


def _overflowing(kind: str, group: Any) -> tuple[torch.Tensor, float]:
    training = Training(kind, group, is_scaled=True)
    for number in range(STEPS):
        if number == 3:
            before = training.state.error.clone()
            training.step(50, math.inf if training.rank in (1, 2) else 1.0)
            assert torch.equal(before, training.state.error)
        training.step(number)
    return training.train(()), training.scaler.get_scale()


def _without_gradient(kind: str, group: Any) -> torch.Tensor:
    training = Training(kind, group)
    training.step(0, 0.0)
    return training.train(())


def _program(rank: int, folder: Path) -> dict[str, Any]:
    group = [torch.distributed.new_group(list(pair)) for pair in PAIRS][rank // 2]
    found: dict[str, Any] = {}
    for kind in KINDS:
        found[kind] = {
            "first": Training(kind, group).train(range(1)),
            "trained": Training(kind, group).train(range(STEPS)),
            "resumed": _resumed(kind, group),
            "scaled": _overflowing(kind, group),
            "idle": _without_gradient(kind, group),
        }
    ddp = nn.parallel.DistributedDataParallel(made(), process_group=group)
    found["refused"] = refusal(lambda: attach_exchange(ddp, DENSITY, TopkAllgather()))
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(_program, 4, tmp_path_factory.mktemp("sparse"))


def expected(pair: Sequence[int], keeps_all: bool) -> torch.Tensor:
    """The parameters after a pair's first step, in one process."""
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    errors = {rank: torch.zeros(LENGTH) for rank in pair}
    total, sent = torch.zeros(LENGTH), {}
    for rank in pair:
        model.zero_grad()
        loss_of(model, rank, 0).backward()
        errors[rank] += torch.cat([each.grad.flatten() for each in model.parameters()])
        sent[rank] = errors[rank].abs().topk(COUNT).indices
        total[sent[rank]] += errors[rank][sent[rank]]
    chosen = total.nonzero().flatten() if keeps_all else total.abs().topk(COUNT).indices
    mean = torch.zeros(LENGTH)
    mean[chosen] = total[chosen] / len(pair)
    for each, part in zip(model.parameters(), mean.split([p.numel() for p in model.parameters()]), strict=True):
        each.grad = part.view_as(each)
    optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_of_ddps_process_group(found: list[dict[str, Any]], kind: str) -> None:
    for rank, its in enumerate(found):
        assert torch.equal(its[kind]["first"], expected(PAIRS[rank // 2], kind == "all"))


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_training_has_the_bits_of_one_at_one_go(found: list[dict[str, Any]], kind: str) -> None:
    assert all(torch.equal(rank[kind]["trained"], rank[kind]["resumed"]) for rank in found)
    assert torch.equal(found[0][kind]["trained"], found[1][kind]["trained"])
    assert not torch.equal(found[0][kind]["trained"], found[2][kind]["trained"])


@pytest.mark.parametrize("kind", KINDS)
def test_training_through_an_overflow_has_the_bits_of_one_without(found: list[dict[str, Any]], kind: str) -> None:
    for rank in found:
        parameters, scale = rank[kind]["scaled"]
        assert torch.equal(rank[kind]["trained"], parameters)
        assert scale not in (2.0**10, 2.0**13)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_whose_gradient_is_zero_changes_nothing(found: list[dict[str, Any]], kind: str) -> None:
    start = torch.cat([each.detach().flatten() for each in made().parameters()])
    assert all(torch.equal(rank[kind]["idle"], start) for rank in found)


def test_an_exchange_among_other_ranks_than_ddps_is_refused(found: list[dict[str, Any]]) -> None:
    assert "must average over the ranks that DDP does, [2, 3], got [0, 1, 2, 3]" in found[2]["refused"]


def test_states_of_another_model_or_plan_are_refused() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        state = Training("all", None).state
        data = reloaded(state.state_dict())
        for change, rule in (
            ({"lengths": {**data["lengths"], "2.bias": 5}}, r"state: parameter '2\.bias' must have 5 entries.*got 4"),
            ({"threshold": {**data["threshold"], "count": 3}}, r"state: count of the threshold must be 21, got 3"),
            ({"ranks": 2}, "state: ranks must be 1, got 2"),
            ({"kind": "layers"}, "state: kind must be 'sparse', got 'layers'"),
        ):
            with pytest.raises(InputError, match=rule):
                state.load_state_dict({**data, **change})
    finally:
        torch.distributed.destroy_process_group()
