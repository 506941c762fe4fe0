"""Training steps within a budget, executed by PyTorch, beside what there is without a plan.

`pytest tests/benchmarks/test_torch_run.py --tables FOLDER` plans ResNet-50 (batch 8, 96 pixels), UNet (16 channels,
batch 4, 96 pixels), FCN on ResNet-50 (batch 2, 128 pixels, 0.9 of eager's peak only), and GPT-2- and BERT-like models
(4 layers, width 256, batch 8, 128 tokens) with dropout, on one thread, with 25 s (`--limit-s`) for each of five
budgets: 0.9 of eager's peak, one between, the peak of checkpointing per block, one below, and about the smallest for
which a plan was found. What is asserted: loss, gradients and buffers have eager's bits, the measured peak keeps to the
plan's and the plan's to the budget, and at the peak of checkpointing per block less time is recomputed than it
recomputes: all forward operators of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch_models import Bert, Case, Fcn, Gpt, ResNet, UNet

from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.torch.capture.graph import capture
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.timing import profile
from gapless.torch.run import plan, run
from gapless.torch.run.comparison import compare, eager_peak_bytes, measure
from gapless.torch.run.workload import Workload

LIMIT_S = 25.0
MIB = 2**20
WORDS = 5000
BUDGETS_MIB = {
    "gpt": (141.8, 110.0, 65.6, 50.0, 43.4),
    "bert": (141.8, 110.0, 65.6, 50.0, 43.4),
    "unet": (45.6, 36.0, 32.1, 28.0, 22.4),
    "resnet": (171.0, 160.0, 146.9, 135.0, 126.3),
    "fcn": (148.1,),
}
BLOCKS = {
    "gpt": ("native_layer_norm", "native_layer_norm_8"),
    "bert": ("addmm", "mm"),
    "unet": ("convolution", "_log_softmax"),
    "resnet": ("convolution_1", "mean"),
    "fcn": ("convolution_1", "convolution_53"),
}
"""The first forward operator of the blocks, and the first after them."""
PER_BLOCK = 2
"""Which of the budgets is the peak of checkpointing per block."""


def made(kind: str) -> Case:
    torch.manual_seed(0)
    if kind == "resnet":
        return ResNet(), (torch.randn(8, 3, 96, 96), torch.randint(1000, (8,)))
    if kind == "fcn":
        return Fcn(), (torch.randn(2, 3, 128, 128), torch.randint(21, (2, 128, 128)))
    if kind == "unet":
        return UNet(), (torch.randn(4, 3, 96, 96), torch.randint(4, (4, 96, 96)))
    model = (Gpt if kind == "gpt" else Bert)(256, 4, 4, WORDS, 128)
    return model, (torch.randint(WORDS, (8, 128)), torch.randint(WORDS, (8, 128)))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def blocks_s(step: CapturedStep, kind: str) -> float:
    """The time of all forward operators of the blocks."""
    names = [node.name for node in step.graph.forward]
    first, after = (names.index(name) for name in BLOCKS[kind])
    return sum(node.implementations[0].duration_s for node in step.graph.forward[first:after])


@pytest.mark.parametrize("kind", list(BUDGETS_MIB))
@pytest.mark.usefixtures("keep_tables")
def test_plans_run_within_their_budgets(
    benchmark: Any, tables: ResultTables, limit_s: Callable[[float], float], sized: Any, kind: str
) -> None:
    model, arguments = made(kind)
    work = Workload(model, arguments)
    step = profile(capture(model, arguments, name=kind))
    eager_bytes = eager_peak_bytes(work)
    block_s = blocks_s(step, kind)
    table = tables.table("torch", "Training steps executed by PyTorch, peaks above parameters and inputs")

    def run_all() -> None:
        for number, budget_mib in enumerate(sized(BUDGETS_MIB[kind], BUDGETS_MIB[kind][:1])):
            budget_bytes = int(budget_mib * MIB)
            planned = plan(
                step,
                Problem(step.graph, budget_bytes),
                SolveOptions(time_limit_s=limit_s(LIMIT_S), gap=0.02, threads=2),
            )
            train = run(planned, model, tolerance=None)
            if not number:
                for method in compare(work, train, steps=3):
                    if method.name != "gapless":
                        peak = None if method.peak_bytes is None else round(method.peak_bytes / MIB, 2)
                        gradients = method.note or ("equal" if method.is_equal else f"off by {method.difference:.1g}")
                        step_ms = None if method.step_s is None else round(1e3 * method.step_s)
                        table.add(f"{kind}-{method.name}", model=kind, method=method.name, measured_MiB=peak,
                                  step_ms=step_ms, gradients=gradients)  # fmt: skip
            ours = measure(work, train, steps=3)
            assert planned.result is not None
            details = planned.result.details
            recompute_s = float(str(details["recompute_s"]))
            table.add(
                f"{kind}-{budget_mib}", model=kind, method=f"gapless, {budget_mib / eager_bytes * MIB:.2f}x",
                measured_MiB=round((ours.peak_bytes or 0) / MIB, 2), step_ms=round(1e3 * (ours.step_s or 0)),
                gradients="equal" if ours.is_equal else "differ", plan_MiB=round(planned.peak_bytes / MIB, 2),
                recomputed_of_blocks=round(recompute_s / block_s, 3),
                overhead=round(float(str(details["overhead"])), 4),
                at_least=round(float(str(details["overhead_bound"])), 4),
            )  # fmt: skip
            assert ours.is_equal
            assert ours.keeps_buffers
            assert ours.peak_bytes is not None
            assert ours.peak_bytes <= planned.peak_bytes <= budget_bytes
            assert number != PER_BLOCK or recompute_s < block_s

    benchmark.pedantic(run_all, rounds=1, iterations=1)
