"""Loops of compiled models: with Inductor's kernels, under autocast, and in processes.

Without torch these tests are skipped.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from compiled_ranks import train
from gloo_ranks import run_ranks

from gapless.torch import Compiler
from gapless.torch.devices import measure_peak
from gapless.torch.pipeline.gpt import gpt

STEPS = 50
INDUCTORS_OWN = pytest.mark.filterwarnings("ignore:.*jit.*deprecated:DeprecationWarning")
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None, reason="Inductor makes its kernels for a CPU with g++, which isn't there"
)


def losses_of(compiler: Compiler | None) -> list[float]:
    """Of 50 steps, the last of every five with half a batch."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model, words, loss, targets = gpt(layers=2, micro_batch=8)
    call = model if compiler is None else torch.compile(model, backend=compiler)
    optimiser, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for number in range(STEPS):
        optimiser.zero_grad()
        rows = 4 if number % 5 == 4 else 8
        value = loss(call(words[:rows]), targets[:rows])
        value.backward()
        optimiser.step()
        losses.append(value.item())
    return losses


def compiler(budget: str = "0.6x", *, inductor: bool = True) -> Compiler:
    return Compiler(budget, inductor=inductor, report=lambda _: None)


@pytest.mark.thorough
def test_fifty_steps_with_eagers_kernels_have_eagers_bits() -> None:
    assert losses_of(compiler(inductor=False)) == losses_of(None)


@pytest.mark.thorough
@NEEDS_COMPILER
@INDUCTORS_OWN
def test_fifty_steps_with_inductors_kernels_are_within_rounding_of_eagers() -> None:
    torch.testing.assert_close(losses_of(compiler()), losses_of(None), rtol=1e-4, atol=0.0)


@pytest.mark.thorough
@NEEDS_COMPILER
@INDUCTORS_OWN
def test_inductors_peak_falls_with_the_budget_and_keeps_to_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # a graph from PyTorch's cache has no plan
    model, words, loss, targets = gpt(layers=4, micro_batch=8)
    peaks = []
    for budget in ("1.0x", "0.6x"):
        torch.compiler.reset()
        planner = compiler(budget)
        call = torch.compile(model, backend=planner)

        def step(call=call) -> None:  # type: ignore[no-untyped-def]
            model.zero_grad(set_to_none=True)
            loss(call(words), targets).backward()

        step()
        model.zero_grad(set_to_none=True)
        peaks.append(measure_peak(step, torch.device("cpu"))[0])
        outside_bytes = 2 * 4 * words.numel() * 128  # log-probabilities and their gradient
        assert peaks[-1] <= planner.plans[0].peak_bytes + outside_bytes
    assert peaks[1] < 0.8 * peaks[0]


@pytest.mark.thorough
def test_autocast_and_its_scaler_have_eagers_bits() -> None:
    found = []
    for planner in (None, compiler(inductor=False)):
        torch.compiler.reset()
        torch.manual_seed(0)
        model, words, loss, targets = gpt(layers=2, micro_batch=8)
        call = model if planner is None else torch.compile(model, backend=planner)
        scaler, optimiser = torch.amp.GradScaler("cpu", init_scale=256.0), torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                value = loss(call(words), targets)
            scaler.scale(value).backward()
            scaler.step(optimiser)
            scaler.update()
        found.append([value.item(), *(parameter.detach().clone() for parameter in model.parameters())])
    assert found[0][0] == found[1][0]
    assert all(torch.equal(*pair) for pair in zip(found[0][1:], found[1][1:], strict=True))


@pytest.mark.thorough
def test_under_data_parallel_and_in_shards_training_has_eagers_bits(tmp_path: Path) -> None:
    for found in run_ranks(train, 2, tmp_path):
        losses, weights = found.pop("eager")
        assert set(found) == {"inside", "outside", "eager shards", "compiled shards"}
        for others, gathered in found.values():
            assert others == losses
            assert all(torch.equal(gathered[name], weights[name]) for name in weights)
