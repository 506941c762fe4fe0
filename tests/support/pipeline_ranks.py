"""Ranks of pipelines, one task after the other in the same processes. Imports torch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from gapless.encodings.pipeline.execution.copies import NO_COPIES, Copies
from gapless.encodings.pipeline.programs.program import Program
from gapless.io.formats.torch_pipeline import Action, ActionOrder, write_torch_pipeline
from gapless.torch.pipeline.run import Task, run_rank
from gapless.torch.processes import read_task, write_task


def task_of(program: Program, blocks: int, form: str, propagates: bool = False, copies: Copies = NO_COPIES) -> Task:
    """A task on a small GPT with so many blocks."""
    modes = tuple((hop, m, mode) for (hop, m), mode in sorted(program.hop_modes.items()))
    order = program.order
    defaults = {"layers": blocks, "hidden": 32, "sequence": 16}
    return Task("train:gpt", defaults, 0, program.cut, order.rank_of_stage, order.micro_batches, modes, propagates,
                form, 120.0, program.recomputed, policies=program.policies, copies=copies.rows(order),
                offload_s_per_byte=copies.s_per_byte)  # fmt: skip


def program_on(rank_of_stage: tuple[int, ...], cut: tuple[int, ...], micro_batches: int, seed: int) -> Program:
    """A program of stages on any ranks, whose actions are in a random order, as far as losses and sums allow."""
    drawn, count, done = random.Random(seed), len(rank_of_stage), set[Action]()
    lines = [[Action(s, "F", m) for s in range(count)] + [Action(s, "I", m) for s in reversed(range(count))]
             for m in range(micro_batches)]  # fmt: skip
    actions: list[Action] = []
    losses, added = 0, [0] * count  # torch takes losses in the order of micro-batches, and so sums have the same bits
    while len(actions) < 3 * count * micro_batches:
        ready = [line[0] for line in lines if line]
        ready = [a for a in ready if a.kind != "F" or a.stage < count - 1 or a.micro_batch == losses]
        ready += [Action(a.stage, "W", a.micro_batch) for a in done if a.micro_batch == added[a.stage]]
        action = drawn.choice(sorted(ready))
        actions.append(action)
        losses += action.kind == "F" and action.stage == count - 1
        if action.kind == "W":
            added[action.stage] += 1
            done.discard(Action(action.stage, "I", action.micro_batch))
        else:
            done |= {action} if action.kind == "I" else set()
            lines[action.micro_batch].pop(0)
    order = ActionOrder(rank_of_stage, micro_batches, tuple(actions))
    return Program(order, cut, (), {}, (), (), (), ())


def leave_task(folder: Path, task: Task, program: Program) -> None:
    """Where `run_tasks` finds it."""
    folder.mkdir()
    write_task(folder, task)
    write_torch_pipeline(folder / "schedule.csv", program.order, task.form)


def run_tasks(rank: int, folder: Path) -> dict[str, Any]:
    """What a rank found, by the name of the task's folder."""
    tasks = sorted(path.parent for path in folder.glob("*/task.json"))
    return {task.name: run_rank(rank, read_task(task, Task), task) for task in tasks}
