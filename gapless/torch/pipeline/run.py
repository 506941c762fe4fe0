"""A plan's step in one process a rank, beside the same step in one process. Needs the extra `torch`.

Ranks share a folder that holds `task.json` and the schedule, `schedule.csv`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import FORMS, ActionOrder, write_torch_pipeline
from gapless.torch.compression import HopCompressor
from gapless.torch.library import Tensor, torch
from gapless.torch.pipeline.layers import LayeredModel, load_layers, one_process, squared_error
from gapless.torch.pipeline.memory.kept import Tally
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks as in_processes

if TYPE_CHECKING:
    from gapless.torch.pipeline.memory.offload import Offload
    from gapless.torch.pipeline.stage import CompressedStage

__all__ = ["RanksRun", "Task", "compared", "prepared", "run_rank", "run_ranks", "spans_s", "timed"]


Span = tuple[float, float]
"""Begin and end, on the machine's clock."""


@dataclass(frozen=True)
class Task:
    """What all ranks are to do.

    `model`, `defaults`: as `load_layers` takes them. `cut`: the first layer of each stage but the first.
    `hop_modes`: rows of hop, micro-batch, mode. `form`: that of the schedule's file. `wait_s`: the longest that a rank
    waits for another. `recomputed`: the stages that run their forward again. `repeats`: steps that are timed besides.
    `policies[s]`: of a stage that runs some of its layers again, what each of them keeps. `copies`: of each rank's ops,
    where what micro-batches keep travels to hosts, over links of `offload_s_per_byte` each way.
    """

    model: str
    defaults: dict[str, int]
    seed: int
    cut: tuple[int, ...]
    rank_of_stage: tuple[int, ...]
    micro_batches: int
    hop_modes: tuple[tuple[int, int, str], ...]
    propagates: bool
    form: str
    wait_s: float
    recomputed: tuple[int, ...] = ()
    repeats: int = 0
    policies: tuple[str, ...] = ()
    copies: tuple[tuple[str, str, str], ...] = ()
    offload_s_per_byte: float = 0.0

    def load(self) -> LayeredModel:
        """The model, the same in every process."""
        return load_layers(self.model, self.micro_batches, self.seed, self.defaults)


def run_rank(rank: int, task: Task, folder: Path) -> dict[str, object]:
    """Run this rank's part of one step. Gradients by name, losses, the peaks in flight and of bytes, the bytes sent."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    model = task.load()
    model.split(task.micro_batches)
    stages = _stages(rank, task, model)
    tally = Tally(stages)
    runtime = _PipelineScheduleRuntime(stages, task.micro_batches, loss_fn=model.loss)
    runtime._load_csv(str(folder / "schedule.csv"), format=FORMS[task.form])  # noqa: SLF001
    first, last = (any(stage.stage_index == end for stage in stages) for end in (0, len(task.rank_of_stage) - 1))
    losses: list[Tensor] = []
    target = {"target": model.targets, "losses": losses} if last else {}
    inputs = (model.inputs,) if first else ()
    offload = _offload(rank, task, model, stages, tally)

    def step() -> None:
        if offload is not None:
            offload.begin()
        runtime.step(*inputs, **target, return_outputs=False)

    with tally.watching():
        step()
    named = [each for stage in stages for each in stage.submod.named_parameters()]
    found = {
        "gradients": {name: None if each.grad is None else each.grad.clone() for name, each in named},
        "losses": [float(loss.detach()) for loss in losses],
        "in_flight": tally.peak,
        "kept_bytes": tally.peak_bytes,
        "sent_bytes": sum(stage.sent_bytes for stage in stages),
    }  # fmt: skip
    tally.leave()
    with tally.watching() if task.copies else nullcontext():  # what is saved travels
        return {**found, "spans": timed(step, task.repeats)}


def _stages(rank: int, task: Task, model: LayeredModel) -> list[CompressedStage]:
    from gapless.torch.pipeline.memory.offload import OffloadingStage
    from gapless.torch.pipeline.stage import CompressedStage

    kind = OffloadingStage if task.copies else CompressedStage
    modes = {(hop, m): mode for hop, m, mode in task.hop_modes}
    parts, here = model.stages(task.cut), [stage for stage, r in enumerate(task.rank_of_stage) if r == rank]
    return [
        kind(parts[stage], stage, len(parts), torch.device("cpu"), modes=modes, propagates=task.propagates,
             recomputes=stage in task.recomputed, policies=task.policies[stage] if task.policies else "")
        for stage in here
    ]  # fmt: skip


def _offload(
    rank: int, task: Task, model: LayeredModel, stages: Sequence[CompressedStage], tally: Tally
) -> Offload | None:
    """The copies of a rank, None where nothing of the plan travels."""
    from gapless.torch.pipeline.memory.offload import Offload, OffloadingStage, rows_on

    if not task.copies:
        return None
    tally.share([model.inputs, model.targets])
    offload = Offload(rows_on(task.copies, task.rank_of_stage, rank), task.offload_s_per_byte, tally)
    for stage in stages:
        assert isinstance(stage, OffloadingStage)
        stage.travel(offload, tally)
    return offload


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, Task)
    return Program(max(task.rank_of_stage) + 1, task.wait_s, lambda rank: run_rank(rank, task, folder))


@dataclass(frozen=True)
class RanksRun:
    """What a step on ranks came to.

    `gradients`: of how many parameters there is one; `equal`: how many have the bits that one process finds, `losses`:
    how many micro-batches' losses have. `error`: the squared distance of all gradients from those, relative to them.
    `in_flight[r]`: the most micro-batches, counted once a stage, that rank r kept at once. `kept_bytes[r]`: the most
    that it kept of them. `sent_bytes[r]`: by rank r. `step_s[k]`: of each step that was timed.
    """

    gradients: int
    equal: int
    losses: int
    error: float
    in_flight: tuple[int, ...]
    kept_bytes: tuple[int, ...]
    sent_bytes: tuple[int, ...]
    step_s: tuple[float, ...] = ()


def run_ranks(order: ActionOrder, task: Task, stop: threading.Event | None = None) -> RanksRun:
    """Run a step in as many processes as there are ranks, and in this one.

    Raises `InputError` for what can't run, `RunError` where a process fails.
    """
    for mode in sorted({mode for *_, mode in task.hop_modes}):
        HopCompressor(mode)  # refused here, not in each rank
    model = task.load()
    model.split(task.micro_batches)
    if model.shared:
        first, last = model.shared[0]
        raise InputError(f"model: {first} and {last} are the same weights, which only a training adds up; give steps")
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
        kept_bytes=tuple(rank["kept_bytes"] for rank in found),
        sent_bytes=tuple(rank["sent_bytes"] for rank in found),
        step_s=spans_s([rank["spans"] for rank in found]),
    )


def _are_equal(found: Tensor | None, expected: Tensor | None) -> bool:
    return (found is None) == (expected is None) and (expected is None or bool(torch.equal(found, expected)))


def timed(step: Callable[[], object], repeats: int) -> list[Span]:
    """Of so many steps on this rank; all ranks begin each of them together."""
    spans = []
    for _ in range(repeats):
        torch.distributed.barrier()
        begin_s = time.monotonic()
        step()
        spans.append((begin_s, time.monotonic()))
    return spans


def spans_s(spans: Sequence[Sequence[Span]]) -> tuple[float, ...]:
    """Of [rank][step]: from the first rank's begin to the last one's end, of each step."""
    return tuple(max(end for _, end in step) - min(begin for begin, _ in step) for step in zip(*spans, strict=True))
