"""Models that change from step to step: a planned call has eager's bits, or one line refuses it.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
import random
import types
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch import planned
from gapless.torch.calls import kept

Forward = Callable[["Changing", torch.Tensor], torch.Tensor]
GLOBALS = {"temp": 1.0}


class Changing(nn.Module):
    """Two layers, and all that a schedule may change."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.first, self.last, self.drop, self.how = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(0.1), forward
        self.temp, self.calls, self.share, self.draws = 1.0, 0, 0.5, random.Random(0)
        self.config = types.SimpleNamespace(temp=1.0)
        self.register_buffer("heat", torch.ones(()))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.how(self, given)


def drop_path(model: Changing, given: torch.Tensor) -> torch.Tensor:
    kept_share = 1 - model.share
    return given + model.first(given) * given.new_empty((8, 1)).bernoulli_(kept_share).div_(kept_share)


def counting(model: Changing, given: torch.Tensor) -> torch.Tensor:
    model.calls += 1
    return model.first(given) / (1 + model.calls)


def warming(model: Changing, given: torch.Tensor) -> torch.Tensor:
    model.calls += 1
    return model.first(given) if model.calls > 1000 else model.last(given)


def annealing(model: Changing, given: torch.Tensor) -> torch.Tensor:
    model.temp *= 0.9
    return model.first(given) / model.temp


RIGHT: dict[str, tuple[Forward, Callable[[Changing, int], object], int]] = {
    "temperature": (lambda its, x: its.first(x) / its.temp, lambda its, k: setattr(its, "temp", 1.0 + k), 3),
    "temperature in a buffer": (lambda its, x: its.first(x) / its.heat, lambda its, k: its.heat.fill_(1.0 + k), 1),
    "temperature in a config": (
        lambda its, x: its.first(x) / its.config.temp,
        lambda its, k: setattr(its.config, "temp", 1.0 + k),
        3,
    ),
    "a global": (lambda its, x: its.first(x) / GLOBALS["temp"], lambda _, k: GLOBALS.update(temp=1.0 + k), 3),
    "dropout": (lambda its, x: its.drop(its.first(x)), lambda its, k: setattr(its.drop, "p", 0.1 + 0.2 * k), 3),
    "drop path": (drop_path, lambda its, k: setattr(its, "share", 0.1 + 0.2 * k), 3),
}
REFUSED: dict[str, tuple[Forward, str]] = {
    "Python's random": (lambda its, x: its.first(x) if random.random() < 0.5 else its.last(x), "Python's random"),
    "random of its own": (lambda its, x: its.first(x) * its.draws.random(), "draws of the model"),
    "NumPy's random": (lambda its, x: its.first(x) * np.random.rand(), "NumPy's random"),  # noqa: NPY002
    "a branch on torch.rand": (lambda its, x: its.first(x) if torch.rand(()) < 0.5 else its.last(x), "into its data"),
    "a generator": (lambda its, x: its.first(x) * torch.rand(6, generator=GENERATOR), "torch.Generator of its own"),
    "a counter": (counting, "changes calls of the model and goes by it"),
    "a counter far away": (warming, "changes calls of the model and goes by it"),
    "a temperature in forward": (annealing, "changes temp of the model and goes by it"),
}
GENERATOR = torch.Generator()


@pytest.mark.thorough(but=("dropout", "config", "buffer"))
@pytest.mark.parametrize("name", RIGHT)
def test_schedule_has_eagers_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, change, kinds = RIGHT[name]
    eager = Changing(forward)
    model = planned(copy.deepcopy(eager), "1.0x", report=lambda _: None)
    solved, solve = [], kept.solve
    monkeypatch.setattr(kept, "solve", lambda *asked: solved.append(1) or solve(*asked))
    for step in range(3):
        found = []
        for its in (eager, model):
            change(its, step)
            torch.manual_seed(step)
            its.zero_grad()
            output = its(torch.ones(8, 6))
            output.pow(2).sum().backward()
            found.append([output.detach(), its.first.weight.grad])
        assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    assert len(model.forward.plans) == kinds
    assert len(solved) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_later_is_refused(name: str) -> None:
    forward, said = REFUSED[name]
    model = planned(Changing(forward), "1.0x", report=lambda _: None)
    with pytest.raises(InputError, match=f"^capture: .*{said}.*; ") as refused:
        model(torch.ones(8, 6))
    assert "\n" not in str(refused.value)


def test_kinds_that_keep_coming_are_said_and_the_oldest_goes() -> None:
    lines: list[str] = []
    model = planned(Changing(RIGHT["temperature"][0]), "1.0x", most_kinds=2, report=lines.append)
    for step in range(8):
        model.temp = 1.0 + step
        model(torch.ones(8, 6))
    assert len(model.forward.plans) == 2
    (said,) = [line for line in lines if "kinds of calls" in line]
    assert said.startswith("8 kinds of calls have come; the last two differ in temp of the model; what changes")
    model.temp = 7.0  # which is held still
    model(torch.ones(8, 6))
    assert len(lines) == 9
    with pytest.raises(InputError, match="most_kinds must be >= 1, got 0"):
        planned(Changing(drop_path), "1.0x", most_kinds=0)
