"""Training by planned layouts in processes, beside one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gloo_ranks import run_ranks  # noqa: E402
from sharded_training import layouts_of, model, refusals, trained  # noqa: E402

import gapless  # noqa: E402


def _on_two(rank: int, folder: Path) -> dict[str, Any]:
    return trained(model(), folder / "plan.json")


def _on_mesh(rank: int, folder: Path) -> dict[str, dict[str, Any]]:
    return {
        name: trained(model(), layouts_of(model(), (2, 2), name)) for name in ("ddp", "fsdp", "hsdp", "0", "1", "2")
    }


def _is_equal(found: dict[str, Any]) -> bool:
    return all(value < 1e-5 if isinstance(value, float) else value for value in found.values())


def test_losses_gradients_weights_and_buffers_are_those_of_one_process(tmp_path: Path) -> None:
    plan = gapless.sharding.solve(model=model(), mesh="2", topology="dgx-h100", method="fsdp", time_limit=5.0)
    plan.save(tmp_path / "plan.json")
    found = run_ranks(_on_two, 2, tmp_path)
    assert all(map(_is_equal, found)), found


@pytest.mark.thorough
def test_wrong_uses_are_refused_in_one_line(tmp_path: Path) -> None:
    found = run_ranks(refusals, 2, tmp_path)
    for said in found:
        starts = (
            "step: the model draws random numbers, and ranks must draw the same",
            "plan: is for another model, other shapes or another PyTorch",
            "step: arguments must be as in the first call",
            "mesh: 2 x 2 takes 4 processes of torch.distributed, got 2",
            "plan: 'table.weight' must be a parameter or buffer of the model",
            "the values of this step are gone",
        )
        assert len(said) == len(starts), said
        for line, start in zip(said, starts, strict=True):
            assert line.startswith(start)
            assert "\n" not in line


@pytest.mark.thorough
def test_trainings_on_a_mesh_of_four(tmp_path: Path) -> None:
    found = run_ranks(_on_mesh, 4, tmp_path)
    assert all(_is_equal(each) for rank in found for each in rank.values()), found
