"""Stages that run their forward again: the gradients of those that don't, random numbers too, and nothing saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from gapless.torch.pipeline import planned
from gapless.torch.pipeline.planned import PlannedStage

MICRO_BATCHES = 3
ROWS = {
    "apart": ",".join(f"{stage}F{m}" for m in range(3) for stage in (0, 1)) + ","
    + ",".join(f"{stage}{kind}{m}" for m in range(3) for stage in (1, 0) for kind in "IW"),
    "at once": ",".join(f"0F{m},1F{m},1B{m},0B{m}" for m in range(3)),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """This process as the only rank."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def gradients(path: Path, row: str, recomputes: tuple[bool, bool]) -> tuple[list[Any], list[float], int]:
    """Of two stages with dropout on one rank, losses, and how many tensors the forwards of a step save."""
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Tanh()) for _ in range(2)]
    stages = [
        PlannedStage(layer, number, 2, torch.device("cpu"), recomputes=recomputes[number])
        for number, layer in enumerate(layers)
    ]
    path.write_text(f"{row}\n")
    runtime = _PipelineScheduleRuntime(stages, MICRO_BATCHES, loss_fn=torch.nn.functional.mse_loss)
    runtime._load_csv(str(path), format="compute_only")  # noqa: SLF001
    saved, losses = [], list[Any]()
    hooks = [layer.register_forward_hook(lambda *_: saved.append(torch.is_grad_enabled())) for layer in layers]
    runtime.step(torch.randn(12, 8), target=torch.randn(12, 8), losses=losses, return_outputs=False)
    for hook in hooks:
        hook.remove()
    found = [parameter.grad for layer in layers for parameter in layer.parameters()]
    return found, [float(loss.detach()) for loss in losses], saved.count(False)


def test_the_first_stage_has_two_parts_of_a_backward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, split = [], planned.stage_backward_input
    monkeypatch.setattr(planned, "stage_backward_input", lambda *given: seen.append(1) or split(*given))
    gradients(tmp_path / "s.csv", ROWS["apart"], (True, False))
    assert len(seen) == MICRO_BATCHES, "the second stage's are PyTorch's own"
    gradients(tmp_path / "s.csv", ROWS["at once"], (True, False))
    assert len(seen) == MICRO_BATCHES


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("recomputes", [(True, False), (False, True), (True, True)])
def test_a_forward_that_runs_again_draws_the_same_numbers(
    tmp_path: Path, row: str, recomputes: tuple[bool, bool]
) -> None:
    expected, losses, _ = gradients(tmp_path / "s.csv", ROWS[row], (False, False))
    found, again, without_graph = gradients(tmp_path / "s.csv", ROWS[row], recomputes)
    assert again == losses
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert without_graph == sum(recomputes) * MICRO_BATCHES
