"""Training steps with implementations that are close to eager's, beside the same without them.

`pytest tests/benchmarks/test_torch_close.py --tables FOLDER` plans GPT-2-like models with dropout (4 layers, width 256,
batch 8, 128 and 512 tokens), a model without dropout that writes attention out, ResNet-50, and convolutions with batch
norm and leaky ReLUs, on one thread with 15 s (`--limit-s`) a solve, at shares of eager's peak: first those that plans
with eager's bits reach, then some that only close implementations reach. What is asserted: gradients are close, the
measured peak keeps to the plan's and the plan's to the budget, and the latter budgets are reached with them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch_models import Case, Gpt, ResNet

from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.errors import InputError
from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile
from gapless.torch.run import plan, run
from gapless.torch.run.comparison import eager_peak_bytes, measure
from gapless.torch.run.workload import Workload

LIMIT_S = 15.0
MIB = 2**20
MOST = 1e-4
"""That a gradient may be off, relative to its norm."""
WORDS = 5000


class Leaky(nn.Module):
    """Convolutions with batch norm and leaky ReLUs in place, as detectors have them."""

    def __init__(self, width: int = 32, depth: int = 12) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number in range(depth):
            layers += [nn.Conv2d(width if number else 3, width, 3, 1, 1, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.LeakyReLU(0.1, inplace=True)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 100)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(self.layers(image).mean((2, 3))), label)


class Written(nn.Module):
    """Blocks of attention as many models write it out, without dropout."""

    def __init__(self, width: int = 256, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.inner = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.outer = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        batch, length, width = given.shape
        for inner, outer in zip(self.inner, self.outer, strict=True):
            parts = inner(given).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            query, key, value = parts.unbind(0)
            weights = (query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1)
            given = given + outer((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return nn.functional.mse_loss(given, target)


def gpt(length: int) -> Case:
    return Gpt(256, 4, 4, WORDS, length), (torch.randint(WORDS, (8, length)), torch.randint(WORDS, (8, length)))


@dataclass(frozen=True)
class Setting:
    """A model, the kinds that are asked for, and budgets as shares of eager's peak: for both, and with them alone."""

    made: Callable[[], Case]
    close: tuple[str, ...]
    budgets: tuple[float, ...]
    less: tuple[float, ...] = ()


def images(size: int, batch: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))


SETTINGS = {
    "gpt-128": Setting(lambda: gpt(128), ("attention", "loss"), (0.8, 0.416, 0.276), (0.19,)),
    "gpt-512": Setting(lambda: gpt(512), ("attention", "loss"), (0.5, 0.25), (0.1,)),
    "written-out": Setting(
        lambda: (Written(), (torch.randn(8, 512, 256), torch.randn(8, 512, 256))), ("attention",), (0.6, 0.4), (0.24,)
    ),
    "resnet": Setting(lambda: (ResNet(), images(96, 8, 1000)), ("norm",), (0.9, 0.773, 0.665)),
    "leaky": Setting(lambda: (Leaky(), images(48, 16, 100)), ("norm",), (0.75, 0.55, 0.4)),
}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", list(SETTINGS))
@pytest.mark.usefixtures("keep_tables")
def test_close_implementations_take_less(
    benchmark: Any, tables: ResultTables, limit_s: Callable[[float], float], sized: Any, tmp_path: Path, kind: str
) -> None:
    setting = SETTINGS[kind]
    torch.manual_seed(0)
    model, arguments = setting.made()
    work = Workload(model, arguments)
    eager_mib = eager_peak_bytes(work) / MIB
    table = tables.table("torch-close", "Training steps without and with close implementations, peaks in MiB")
    steps = {
        close: profile(capture(model, arguments, name=kind, close=close), tmp_path / "ops.json", repeats=9)
        for close in ((), setting.close)
    }  # operators that both have are measured once
    options = SolveOptions(time_limit_s=limit_s(LIMIT_S), gap=0.02, threads=2)

    def run_all() -> None:
        for close, step in steps.items():
            for share in sized((*setting.budgets, *setting.less), setting.budgets[:1]):
                budget_mib = share * eager_mib
                row = f"{kind}-{'+'.join(close)}-{share}"
                names: dict[str, Any] = {"model": kind, "close": ", ".join(close) or "-", "of_eager": share}
                names["budget_MiB"] = round(budget_mib, 1)
                try:
                    planned = plan(step, Problem(step.graph, int(budget_mib * MIB)), options)
                except InputError as error:
                    assert not close
                    assert share in setting.less
                    table.add(row, **names, outcome=str(error).split(": ")[1].split(";")[0])
                    continue
                assert close or share not in setting.less
                train = run(planned, model, tolerance=None)
                ours = measure(work, train, steps=3)
                assert planned.result is not None
                assert planned.result.report is not None
                table.add(
                    row, **names, outcome="equal" if ours.is_equal else f"off by {ours.difference:.0e}",
                    measured_MiB=round((ours.peak_bytes or 0) / MIB, 2),
                    planned_ms=round(1e3 * planned.result.report.makespan_s), step_ms=round(1e3 * (ours.step_s or 0)),
                    overhead=round(float(str(planned.result.details["overhead"])), 4),
                    used=", ".join(f"{its} {count}" for its, count in train.close.items()) or "-",
                )  # fmt: skip
                assert bool(close) or ours.is_equal
                assert ours.difference is not None
                assert ours.difference < MOST
                assert ours.peak_bytes is not None
                assert ours.peak_bytes <= planned.peak_bytes <= budget_mib * MIB

    benchmark.pedantic(run_all, rounds=1, iterations=1)
