"""One rank of a pipeline that runs a plan. The folder holds `task.json` and the schedule, `schedule.csv`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless.io.torch_pipeline import FORMS
from gapless.torch.library import torch
from gapless.torch.pipeline.layers import LayeredModel, load_layers
from gapless.torch.processes import Program, read_task

__all__ = ["Task", "prepared", "run_rank"]


@dataclass(frozen=True)
class Task:
    """What all ranks are to do.

    `model`, `defaults`: as `load_layers` takes them. `cut`: the first layer of each stage but the first.
    `hop_modes`: rows of hop, micro-batch, mode. `form`: that of the schedule's file. `wait_s`: the longest that a rank
    waits for another.
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

    def load(self) -> LayeredModel:
        """The model, the same in every process."""
        return load_layers(self.model, self.micro_batches, self.seed, self.defaults)


def run_rank(rank: int, task: Task, folder: Path) -> dict[str, Any]:
    """Run this rank's part of one step. Gradients by name, losses, the peak in flight, and the bytes sent."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    model = task.load()
    model.split(task.micro_batches)
    stages = _stages(rank, task, model)
    tally = _Tally(stages)
    runtime = _PipelineScheduleRuntime(stages, task.micro_batches, loss_fn=model.loss)
    runtime._load_csv(str(folder / "schedule.csv"), format=FORMS[task.form])  # noqa: SLF001
    first, last = (any(stage.stage_index == end for stage in stages) for end in (0, len(task.rank_of_stage) - 1))
    losses: list[Any] = []
    target = {"target": model.targets, "losses": losses} if last else {}
    runtime.step(*((model.inputs,) if first else ()), **target, return_outputs=False)
    return {
        "gradients": {
            name: parameter.grad for stage in stages for name, parameter in stage.submod.named_parameters()
        },
        "losses": [float(loss.detach()) for loss in losses],
        "in_flight": tally.peak,
        "sent_bytes": sum(stage.sent_bytes for stage in stages),
    }  # fmt: skip


def _stages(rank: int, task: Task, model: LayeredModel) -> list[Any]:
    from gapless.torch.pipeline.stage import CompressedStage

    modes = {(hop, m): mode for hop, m, mode in task.hop_modes}
    parts, here = model.stages(task.cut), [stage for stage, r in enumerate(task.rank_of_stage) if r == rank]
    return [
        CompressedStage(parts[stage], stage, len(parts), torch.device("cpu"), modes=modes, propagates=task.propagates)
        for stage in here
    ]


class _Tally:
    """The most micro-batches in flight on the rank, counted once a stage, after each forward."""

    def __init__(self, stages: list[Any]) -> None:
        self.stages, self.peak = stages, 0
        for stage in stages:
            stage.submod.register_forward_hook(self._after_forward)

    def _after_forward(self, *_: Any) -> None:
        """The micro-batch that has just gone forward is kept from now on."""
        self.peak = max(self.peak, 1 + sum(stage.in_flight for stage in self.stages))


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, Task)
    return Program(max(task.rank_of_stage) + 1, task.wait_s, lambda rank: run_rank(rank, task, folder))
