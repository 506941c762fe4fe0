"""Training by a plan under DDP, beside the same training in one process. Without torch these tests are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks

from gapless.errors import InputError
from gapless.torch.sparse import attach
from gapless.torch.sparse.plan import Regions, SparsePlan

RANKS, STEPS, DENSITY = 2, 5, 0.1
LENGTH = 8 * 16 + 16 + 16 * 4 + 4
COUNT = round(DENSITY * LENGTH)
PLAN = SparsePlan(
    Regions((0, 40, LENGTH), (1, 0)), DENSITY, ((0, 1, 0, 1), (1, 0, 1, 0)), ((0, 1, 0), (1, 0, 1)), COUNT,
    "gapless.encodings.oktopk",
)  # fmt: skip


def made() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def loss_of(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(step * RANKS + rank)
    given, wanted = torch.randn(5, 8, generator=drawn), torch.randn(5, 4, generator=drawn)
    return torch.nn.functional.mse_loss(model(given), wanted)


def _program(rank: int, folder: Path) -> tuple[list[torch.Tensor], tuple[int, ...], tuple[int, ...], str]:
    # 1 MB: all in one bucket; 1 byte: in four, with the last parameters first
    found = []
    for cap_mb, renewal in ((1.0, None), (1e-6, 2)):
        ddp = torch.nn.parallel.DistributedDataParallel(made(), bucket_cap_mb=cap_mb)
        state = attach(ddp, PLAN, period=1, renewal=renewal)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(ddp, rank, step).backward()
            optimizer.step()
        found.append(torch.cat([each.detach().flatten() for each in ddp.parameters()]))
    with pytest.raises(InputError) as refused:
        attach(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3)), PLAN)
    return found, state.exchange.allreduce.regions.cuts, (len(state.sent), len(state.summed)), str(refused.value)


def expected() -> torch.Tensor:
    """Sparse SGD in one process: what isn't among the largest sums is kept by the rank that has it."""
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    errors = [torch.zeros(LENGTH) for _ in range(RANKS)]
    for step in range(STEPS):
        total, sent = torch.zeros(LENGTH), []
        for rank in range(RANKS):
            model.zero_grad()
            loss_of(model, rank, step).backward()
            errors[rank] += torch.cat([each.grad.flatten() for each in model.parameters()])
            sent.append(errors[rank].abs().topk(COUNT).indices)
            total[sent[rank]] += errors[rank][sent[rank]]
        chosen = total.abs().topk(COUNT).indices
        mean = torch.zeros(LENGTH)
        mean[chosen] = total[chosen] / RANKS
        for rank in range(RANKS):
            errors[rank][sent[rank][torch.isin(sent[rank], chosen)]] = 0
        for each, part in zip(model.parameters(), mean.split([p.numel() for p in model.parameters()]), strict=True):
            each.grad = part.view_as(each)
        optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


@pytest.mark.thorough
def test_training_has_the_bits_of_the_same_in_one_process_in_any_buckets_and_regions(tmp_path: Path) -> None:
    wanted = expected()
    found = run_ranks(_program, RANKS, tmp_path)
    for parameters, cuts, counts, refused in found:
        assert all(torch.equal(each, wanted) for each in parameters)
        assert cuts == found[0][1] != PLAN.regions.cuts
        assert counts == (COUNT, COUNT)
        assert refused == (
            "plan: is for a gradient of 212 entries, got a model of 12; record this model, and plan for it"
        )
