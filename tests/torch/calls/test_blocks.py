"""Models whose blocks follow plans: one budget for all, eager's bits, and FSDP2 around the blocks.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
import random
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from sharded_blocks import ANY, SETUPS, WIDTH, Block, Stack, of_whole_batch, train_all, trained
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from gapless.checker import check
from gapless.errors import InputError
from gapless.torch import planned, planned_blocks, unplanned
from gapless.torch.calls import kept
from gapless.torch.calls.choices import BlockPlan
from gapless.torch.calls.shares import BlockCall, least_peak, least_time, peak_of
from gapless.torch.devices import measure_peak


class Chain(nn.Module):
    """Blocks alone, so that all that a call takes is theirs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, given: torch.Tensor, last: bool = True) -> torch.Tensor:
        for layer in list(self.layers)[: None if last else 2]:
            given = layer(given)
        return given


def step(model: nn.Module, given: torch.Tensor, **named: bool) -> list[torch.Tensor]:
    model.zero_grad()
    output = model(given, **named)
    output.backward(torch.ones_like(output))
    return [output.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


def are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.usefixtures("one_thread")
def test_blocks_keep_to_one_budget_together_and_have_eagers_bits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    eager, given = Chain(), torch.randn(512, WIDTH, requires_grad=True)
    model = copy.deepcopy(eager)
    lines: list[str] = []
    planned_blocks(model, list(model.layers), "0.7x", cache=tmp_path, options=ANY, report=lines.append)
    for _ in range(2):
        assert are_equal(step(model, given), step(eager, given))
    schedule = model.forward.shares[0].schedule
    report = check(schedule)
    assert report.valid
    assert report.peak_bytes[0] <= schedule.topology.memory_bytes[0]
    assert len(lines) == 1
    model.zero_grad()
    measured, _ = measure_peak(lambda: step(model, given), torch.device("cpu"))
    assert measured <= report.peak_bytes[0] + 2 * given.nbytes  # the output and its gradient, which `step` holds
    for last in (False, True, False):  # another kind of calls, and the first again
        assert are_equal(step(model, given, last=last), step(eager, given, last=last))
    assert len(lines) == 3
    other = copy.deepcopy(model)  # has plans of its own
    assert other.forward.shares == []
    assert are_equal(step(other, given), step(eager, given))
    unplanned(model)
    assert "forward" not in {**vars(model), **vars(model.layers[0])}
    monkeypatch.setattr(kept, "solve", None)  # tomorrow nothing is solved again
    planned_blocks(model, list(model.layers), "0.7x", cache=tmp_path, options=ANY, report=lines.append)
    assert are_equal(step(model, given), step(eager, given))
    assert lines[-1] == lines[0]


def test_what_cannot_be_is_refused_in_a_line() -> None:
    model = Chain()
    for blocks, words in (([], "got none"), ([Block()], "that isn't"), ([model.layers, model.layers[0]], "inside of")):
        with pytest.raises(InputError, match=words):
            planned_blocks(model, blocks, "0.7x")
    planned_blocks(model, [model.layers[0]], 1000, options=ANY, report=lambda _: None)
    with pytest.raises(InputError, match=r"take at least .* by the plans that were found, got 1 KB"):
        model(torch.randn(8, WIDTH))
    with pytest.raises(InputError, match="follows plans already"):
        planned(model, "0.7x")


@pytest.mark.thorough
@pytest.mark.usefixtures("one_rank", "one_thread")
def test_blocks_under_fsdp_have_eagers_bits_and_a_whole_over_them_is_refused() -> None:
    expected, found = (trained(Stack(2), SETUPS["plain"], 0, 1, is_planned) for is_planned in (False, True))
    assert found.losses == expected.losses
    assert are_equal(list(found.weights.values()), list(expected.weights.values()))
    model, mesh = planned(Stack(2), "0.9x", report=lambda _: None), init_device_mesh("cpu", (1,))
    fully_shard(model.layers[0], mesh=mesh)
    for refused in (lambda: model(torch.zeros(2, 2, dtype=torch.int64)), lambda: planned(unplanned(model), "0.9x")):
        with pytest.raises(InputError, match=r"module 'layers.0' is gathered by itself.*planned_blocks"):
            refused()


@pytest.mark.usefixtures("one_thread")
def test_cast_model_has_plans_of_its_own() -> None:
    lines: list[str] = []
    model = planned(nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 8), nn.Softmax(-1)), "1x", report=lines.append)
    words = torch.arange(8)
    model(words).sum().backward()
    model.double()
    model.zero_grad()
    model(words).sum().backward()
    assert model[1].weight.grad.dtype == torch.float64
    assert len(lines) == 2


def drawn_calls(chance: random.Random) -> list[BlockCall]:
    def choice() -> BlockPlan:
        held = chance.randint(1, 9)
        peaks = held + chance.randint(0, 9), held + chance.randint(0, 9)
        return BlockPlan(None, peaks[0], held, peaks[1], 1, chance.randint(1, 9))  # type: ignore[arg-type]

    kinds = [[choice() for _ in range(3)] for _ in range(2)]
    return [
        BlockCall(f"{number}", chance.choice(kinds), chance.randint(0, 3), chance.random() < 0.5, chance.randint(0, 4))
        for number in range(4)
    ]


def test_plans_are_shared_out_as_brute_force_does() -> None:
    chance = random.Random(0)
    for _ in range(40):
        calls = drawn_calls(chance)
        every = list(product(range(3), repeat=len(calls)))
        least = min(peak_of(calls, numbers) for numbers in every)
        assert least_peak(calls) == least
        assert least_time(calls, least - 1) is None
        for budget in (least, least + 4):
            numbers = least_time(calls, budget)
            assert numbers is not None
            assert peak_of(calls, numbers) <= budget

            def cost(numbers, calls=calls):
                return sum(call.choices[number].duration_s for call, number in zip(calls, numbers, strict=True))

            assert cost(numbers) == min(cost(each) for each in every if peak_of(calls, each) <= budget)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 4])
def test_training_under_fsdp_in_processes_has_eagers_bits(count: int, tmp_path: Path) -> None:
    ranks = run_ranks(train_all, count, tmp_path)
    for found in ranks:
        for name, (expected, got) in found.items():
            assert got.losses == expected.losses, name
            assert are_equal(list(got.weights.values()), list(expected.weights.values())), name
    whole = of_whole_batch(count)
    for name, value in ranks[0]["plain"][1].weights.items():
        assert (value - whole[name]).norm() < 1e-5 * whole[name].norm()
