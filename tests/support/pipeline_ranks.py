"""Ranks of pipelines, one task after the other in the same processes. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapless.encodings.pipeline.programs.program import Program
from gapless.io.formats.torch_pipeline import write_torch_pipeline
from gapless.torch.pipeline.run import Task, run_rank
from gapless.torch.processes import read_task, write_task


def task_of(program: Program, blocks: int, form: str, propagates: bool = False) -> Task:
    """A task on a small GPT with so many blocks."""
    modes = tuple((hop, m, mode) for (hop, m), mode in sorted(program.hop_modes.items()))
    order = program.order
    defaults = {"layers": blocks, "hidden": 32, "sequence": 16}
    return Task("train:gpt", defaults, 0, program.cut, order.rank_of_stage, order.micro_batches, modes, propagates,
                form, 120.0, program.recomputed)  # fmt: skip


def leave_task(folder: Path, task: Task, program: Program) -> None:
    """Where `run_tasks` finds it."""
    folder.mkdir()
    write_task(folder, task)
    write_torch_pipeline(folder / "schedule.csv", program.order, task.form)


def run_tasks(rank: int, folder: Path) -> dict[str, Any]:
    """What a rank found, by the name of the task's folder."""
    tasks = sorted(path.parent for path in folder.glob("*/task.json"))
    return {task.name: run_rank(rank, read_task(task, Task), task) for task in tasks}
