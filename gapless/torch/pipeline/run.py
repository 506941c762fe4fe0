"""A plan's step in one process a rank, beside the same step in one process. Needs the extra `torch`."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.errors import InputError
from gapless.io.torch_pipeline import ActionOrder, write_torch_pipeline
from gapless.torch.compression import HopCompressor
from gapless.torch.library import torch
from gapless.torch.pipeline.layers import LayeredModel, one_process, squared_error
from gapless.torch.pipeline.rank import Task, prepared
from gapless.torch.ranks import run_ranks as in_processes

__all__ = ["RanksRun", "compared", "run_ranks"]


@dataclass(frozen=True)
class RanksRun:
    """What a step on ranks came to.

    `gradients`: of how many parameters there is one; `equal`: how many have the bits that one process finds, `losses`:
    how many micro-batches' losses have. `error`: the squared distance of all gradients from those, relative to them.
    `in_flight[r]`: the most micro-batches, counted once a stage, that rank r kept at once. `sent_bytes[r]`: by rank r.
    """

    gradients: int
    equal: int
    losses: int
    error: float
    in_flight: tuple[int, ...]
    sent_bytes: tuple[int, ...]


def run_ranks(order: ActionOrder, task: Task, stop: threading.Event | None = None) -> RanksRun:
    """Run a step in as many processes as there are ranks, and in this one.

    Raises `InputError` for what can't run, `RunError` where a process fails.
    """
    for mode in sorted({mode for *_, mode in task.hop_modes}):
        HopCompressor(mode)  # refused here, not in each rank
    model = task.load()
    model.split(task.micro_batches)
    devices = {str(parameter.device) for _, layer in model.layers for parameter in layer.parameters()} - {"cpu"}
    if devices:
        raise InputError(f"model: ranks run on the CPU, over gloo, got parameters on {devices.pop()}")

    def leave(folder: Path) -> None:
        write_torch_pipeline(folder / "schedule.csv", order, task.form)

    found = in_processes(prepared, task, order.ranks, task.wait_s, stop, leave=leave)
    return compared(model, task.micro_batches, found)


def compared(model: LayeredModel, micro_batches: int, found: list[dict[str, Any]]) -> RanksRun:
    """What ranks found (see `run_rank`), beside a step of the same micro-batches in this process."""
    expected, losses = one_process(model, micro_batches)
    gradients = {name: gradient for rank in found for name, gradient in rank["gradients"].items()}
    seen = next(rank["losses"] for rank in found if rank["losses"])
    return RanksRun(
        gradients=len(expected),
        equal=sum(_are_equal(gradients.get(name), gradient) for name, gradient in expected.items()),
        losses=sum(map(float.__eq__, seen, losses)),
        error=squared_error(gradients, expected),
        in_flight=tuple(rank["in_flight"] for rank in found),
        sent_bytes=tuple(rank["sent_bytes"] for rank in found),
    )


def _are_equal(found: Any, expected: Any) -> bool:
    return (found is None) == (expected is None) and (expected is None or bool(torch.equal(found, expected)))
