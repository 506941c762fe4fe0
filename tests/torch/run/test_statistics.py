"""Batch norms of a plan update their running statistics themselves, where nobody else reads these.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch_steps import keep_all, left_by_eager, left_by_plan, random_plan

from gapless.torch.capture.graph import capture
from gapless.torch.run.statistics import updating_norms


class Twice(nn.Module):
    """One norm that is called once, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.once, self.twice = nn.Linear(5, 7), nn.BatchNorm1d(7), nn.BatchNorm1d(7)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = self.twice(self.once(self.first(given)).tanh())
        return self.twice(found.sigmoid()).square().mean()


def test_norm_that_is_called_once_updates_its_statistics_whatever_runs_again() -> None:
    torch.manual_seed(0)
    model, given = Twice(), torch.randn(6, 5)
    step = capture(model, (given,))
    updated = {step.roles[buffer].name for new in updating_norms(step).values() for buffer in new.values()}
    assert updated == {"once.running_mean", "once.running_var"}
    eager = left_by_eager(model, lambda its: its(given), steps=3)
    for plan in (keep_all(step), *(random_plan(step, seed) for seed in range(3))):
        assert left_by_plan(copy.deepcopy(model), plan, given, steps=3).differs_from(eager) == []
