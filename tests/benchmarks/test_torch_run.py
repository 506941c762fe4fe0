"""Planned calls beside what PyTorch has, each at the peak that was measured for it, in pairs of steps.

`OMP_NUM_THREADS=1 pytest tests/benchmarks/test_torch_run.py --tables FOLDER` takes six models: GPT-2- and BERT-like (4
layers, width 256, batch 8, 128 tokens), UNet (16 channels, batch 4, 96 pixels) and ResNet-50 (batch 8, 96 pixels) with
dropout, and of `transformers` Llama (4 layers, width 256, batch 8, 128 tokens) and ViT (6 layers, width 192, batch 8,
145 tokens). Each method's peak is the budget of a plan, 12 s a solve (`--limit-s`). Times are the processor's, on one
thread. What is asserted: loss, gradients and buffers of each plan have eager's bits, and its measured peak keeps to the
plan's but for the old values of buffers, and the plan's to the method's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from rival_models import KINDS, made

from gapless import SolveOptions
from gapless.torch.calls.comparison import AtPeak, compare_at_peaks
from gapless.torch.run.comparison import Method

LIMIT_S, ROUNDS = 12.0, 30
MIB = 2**20

pytestmark = pytest.mark.usefixtures("one_thread")


def gradients(method: Method) -> str:
    """How far they are from eager's."""
    if method.is_equal is None:
        return method.note
    equal = "equal" if method.is_equal else f"off by {method.difference:.1g}"
    return equal if method.keeps_buffers else f"{equal}, buffers differ"


def row(kind: str, found: AtPeak) -> dict[str, Any]:
    """A line of the table."""
    method, plan = found.method, found.plan
    return {
        "model": kind, "method": method.name, "gradients": gradients(method),
        "peak_MiB": None if method.peak_bytes is None else round(method.peak_bytes / MIB, 1),
        "plan_MiB": None if plan.peak_bytes is None else round(plan.peak_bytes / MIB, 1),
        "cpu_ms": None if method.step_s is None else round(1e3 * method.step_s, 1),
        "plan_cpu_ms": plan.note if plan.step_s is None else round(1e3 * plan.step_s, 1),
        "ratio": None if found.ratio is None else round(found.ratio, 3),
        "between": None if found.low is None else f"{found.low:.3f} to {found.high:.3f}",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("keep_tables")
def test_plans_keep_to_the_peaks_of_other_methods(
    benchmark: Any, tables: ResultTables, limit_s: Callable[[float], float], sized: Any, tmp_path: Path, kind: str
) -> None:
    if kind in ("llama", "vit"):
        pytest.importorskip("transformers", reason="transformers is not installed; pip install '.[hf]' in a checkout")
    work = made(kind, sized(False, True))
    table = tables.table("torch_run", "Planned calls beside other methods, at the peak of each; processor time")
    options = SolveOptions(time_limit_s=limit_s(LIMIT_S), gap=0.005, threads=1)

    def run_all() -> list[AtPeak]:
        found = []
        for each in compare_at_peaks(
            work, options=options, cache=tmp_path / "times.json", rounds=sized(ROUNDS, 2), report=lambda _: None
        ):
            found.append(each)
            table.add(f"{kind}-{each.method.name}", **row(kind, each))
        return found

    found = benchmark.pedantic(run_all, rounds=1, iterations=1)
    kept_bytes = sum(buffer.nbytes for buffer in work.model.buffers())  # a recomputed batch norm reads the old ones
    measured = [each for each in found if each.plan.peak_bytes is not None]
    assert [each.method.name for each in measured[:3]] == ["eager", "checkpoint per block", "selective checkpointing"]
    for each in measured:
        assert each.plan.is_equal or kind == "llama"  # whose eager step leaves out a mask that hides nothing
        assert each.plan.keeps_buffers
        assert each.plan.difference is not None
        assert each.plan.difference < 1e-5
        assert each.plan.peak_bytes <= each.plan_bytes + kept_bytes
        assert each.plan_bytes <= each.method.peak_bytes
