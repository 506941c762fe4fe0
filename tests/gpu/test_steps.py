"""Planned steps on a GPU, beside eager ones there.

Skipped without torch, and where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch_closeness import distance
from torch_models import Case, cases
from torch_steps import keep_all, left_by_eager, left_by_plan, offloading_plan, random_plan

from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.joint_graph import CLOSE

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU; torch.cuda.is_available() says that there is none"
)
KINDS = ("resnet", "unet", "gpt", "bert")
MOST = 1e-4
"""That a gradient of a whole model may be off, relative to its norm."""


@pytest.fixture(scope="module")
def models() -> dict[str, Case]:
    device = torch.device("cuda:0")
    return {
        kind: (model.to(device), tuple(tensor.to(device) for tensor in tensors))
        for kind, (model, tensors) in cases().items()
    }


@pytest.fixture(autouse=True)
def same_bits_every_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Eager's own steps differ on a GPU where it may add in any order."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kind", KINDS)
def test_plans_equal_eager_and_keep_to_their_peak(models: dict[str, Case], kind: str) -> None:
    model, arguments = models[kind]
    step = profile(capture(model, arguments, name=kind), repeats=1)
    left_by_eager(model, lambda its: its(*arguments))  # libraries allocate what they keep
    expected = left_by_eager(model, lambda its: its(*arguments))
    for planned in (keep_all(step), *(random_plan(step, seed) for seed in range(4))):
        found = left_by_plan(model, planned, *arguments)
        assert found.differs_from(expected) == []
        assert found.peak_bytes <= planned.peak_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_plans_that_offload_copy_by_streams_and_equal_eager(models: dict[str, Case], kind: str) -> None:
    model, arguments = models[kind]
    step = profile(capture(model, arguments, name=kind), repeats=1)
    left_by_eager(model, lambda its: its(*arguments))
    expected = left_by_eager(model, lambda its: its(*arguments), steps=3)
    for seed in range(4):
        planned = offloading_plan(step, seed)
        found = left_by_plan(model, planned, *arguments, steps=3)
        assert found.differs_from(expected) == []
        assert found.peak_bytes <= planned.peak_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_close_plans_are_close(models: dict[str, Case], kind: str) -> None:
    model, arguments = models[kind]
    step = profile(capture(model, arguments, name=kind, close=CLOSE), repeats=1)
    expected = left_by_eager(model, lambda its: its(*arguments))
    for planned in (keep_all(step), *(random_plan(step, seed) for seed in range(4))):
        found = left_by_plan(model, planned, *arguments)
        for name, gradient in expected.gradients.items():
            mine = found.gradients[name]
            if gradient is not None and mine is not None and gradient.norm() > 1e-5:
                assert distance(mine, gradient) < MOST
