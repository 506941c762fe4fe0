"""Blocks of a model within one budget for all, beside eager and checkpointing per block, also under FSDP2.

`pytest tests/benchmarks/test_torch_blocks.py --tables FOLDER` plans the blocks of GPT-2 (width 256, batch 8, 128 words,
six of them) for shares of what they take where nothing is recomputed. Peaks are those of the blocks' calls alone, their
gradients included; under FSDP2, on one process over gloo, those of a whole step with its gathered parameters.

What is asserted: bits, that no measured peak of the blocks is above the plan's by more than one block's output, and
that less memory takes longer.
"""

from __future__ import annotations

import copy
import functools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from torch_models import Gpt

from gapless import SolveOptions
from gapless.checker import check
from gapless.torch import planned_blocks
from gapless.torch.calls import PlannedBlocks
from gapless.torch.devices import measure_peak

MIB = 2**20
LIMIT_S = 10.0
SHARES = (1.0, 0.8, 0.6, 0.45, 0.344)
Limit = Callable[[float], float]
Sized = Callable[..., Any]


class Blocks(nn.Module):
    """The blocks of GPT-2 alone."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = Gpt(width=width, layers=layers).layers

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            given = layer(given)
        return given


def step(model: nn.Module, given: torch.Tensor) -> None:
    """Nobody holds the last block's output or its gradient for longer than the block itself."""
    torch.manual_seed(1)
    model.zero_grad()
    model(given).sum().backward()


def peak_mib(model: nn.Module, given: torch.Tensor) -> float:
    for _ in range(2):
        step(model, given)
    model.zero_grad()
    return measure_peak(lambda: step(model, given), torch.device("cpu"))[0] / MIB


def cpu_ratio(model: nn.Module, eager: nn.Module, given: torch.Tensor, repeats: int) -> float:
    """CPU time of a step beside eager's: the median of ratios of steps that take turns."""

    def taken_s(each: nn.Module) -> float:
        begin_s = time.process_time()
        step(each, given)
        return time.process_time() - begin_s

    return statistics.median(taken_s(model) / taken_s(eager) for _ in range(repeats))


def sharded(model: Blocks) -> Blocks:
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def checkpointed(model: Blocks) -> Blocks:
    for layer in model.layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    return model


@pytest.mark.usefixtures("keep_tables", "one_rank", "one_thread")
def test_blocks_within_one_budget(tables: ResultTables, limit_s: Limit, sized: Sized, tmp_path: Path) -> None:
    width, layers, words = sized((256, 6, 128), (32, 2, 32))
    base, given = Blocks(width, layers), torch.randn(8, words, width, requires_grad=True)
    table = tables.table("torch_blocks", "Blocks of GPT-2 within one budget for all (peaks in MiB)")
    eager = copy.deepcopy(base)
    step(eager, given)
    rows: list[tuple[str, Callable[[Blocks], Blocks]]] = [("eager", lambda model: model), ("per block", checkpointed)]
    options = SolveOptions(gap=0.05, time_limit_s=limit_s(LIMIT_S), threads=1)

    def planned(model: Blocks, share: float) -> Blocks:
        blocks = list(model.layers)
        planned_blocks(model, blocks, f"{share:g}x", cache=tmp_path, options=options, report=lambda _: None)
        return model

    rows += [(f"{share:g}x", functools.partial(planned, share=share)) for share in sized(SHARES, SHARES[:2])]
    slower = []
    for name, change in rows:
        model, under = change(copy.deepcopy(base)), sharded(change(copy.deepcopy(base)))
        measured, fsdp = peak_mib(model, given), peak_mib(under, given)
        pairs = zip(model.parameters(), eager.parameters(), strict=True)
        assert all(torch.equal(one.grad, two.grad) for one, two in pairs)
        cells = {"measured": round(measured, 1), "fsdp": round(fsdp, 1)}
        cells["cpu"] = round(cpu_ratio(model, eager, given, sized(9, 1)), 2)
        if isinstance(model.forward, PlannedBlocks):
            (share,) = model.forward.shares
            planned_mib = check(share.schedule).peak_bytes[0] / MIB
            assert measured <= planned_mib + given.nbytes / MIB
            slower.append(share.slower)
            kept = [each.kept_bytes / MIB for each in share.plans]
            cells |= {"plan": round(planned_mib, 1), "predicted": round(1 + share.slower, 2)}
            cells |= {"least_kept": round(min(kept), 1), "most_kept": round(max(kept), 1)}
        table.add(name, budget=name, **cells)
    assert slower == sorted(slower)
