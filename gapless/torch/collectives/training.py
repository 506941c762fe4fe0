"""The same training twice on processes of this machine: gradients summed by a plan or a selector, and by the library.

A folder holds `task.json` for the ranks, and `plan.json`, or `selector.json` and the folder `tuned` that it is of.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gapless.array_types import Floats
from gapless.io.formats.tuned_file import SELECTOR
from gapless.torch.collectives.ddp import PlanState, TunedState, reduce_by_plan
from gapless.torch.collectives.executor import AllReduce
from gapless.torch.collectives.installed import install
from gapless.torch.library import torch
from gapless.torch.processes import Program, built, read_task
from gapless.torch.ranks import Ranks, run_ranks
from gapless.torch.run.workload import load_named

__all__ = ["TrainingRun", "TrainingTask", "prepared", "train_by_plan", "train_by_winners"]

_RATE = 0.1
_MIB = 2**20
_TUNED = "tuned"


@dataclass(frozen=True)
class TrainingTask:
    """What all ranks do: `steps` of SGD on `model`, each on data of its own, twice from one start.

    `bucket_bytes`: DDP's buckets. `tokens`: as for `planned`. `wait_s`: the longest that a rank waits for another.
    """

    ranks: int
    model: str
    steps: int
    bucket_bytes: int
    tokens: bool
    seed: int
    wait_s: float


@dataclass(frozen=True)
class _Found:
    """What a rank found: its losses and seconds by step, with plans and with the library.

    `taken`, `left`: how many buckets plans have summed, and the library beside them.
    """

    plan_losses: tuple[float, ...]
    library_losses: tuple[float, ...]
    plan_s: tuple[float, ...]
    library_s: tuple[float, ...]
    sent_bytes: int
    taken: int
    left: int


@dataclass(frozen=True)
class TrainingRun:
    """Mean losses of all ranks, and seconds until the slowest rank is through, by step: float, shape (steps,).

    `sent_bytes[r]`: of all steps with the plan; not counted with a selector. `taken`, `left`: buckets of rank 0 that
    plans have summed, and the library beside them.
    """

    plan_losses: Floats
    library_losses: Floats
    plan_s: Floats
    library_s: Floats
    sent_bytes: tuple[int, ...]
    taken: int
    left: int

    @property
    def apart(self) -> float:
        """The largest difference of two losses of one step, as a share of the library's: sums are rounded otherwise."""
        return float(np.max(np.abs(self.plan_losses - self.library_losses) / np.abs(self.library_losses)))


def train_by_plan(
    plan: str | Path, task: TrainingTask, stop: threading.Event | None = None, among: Ranks | None = None
) -> TrainingRun:
    """Train in as many processes as the plan has ranks, or `among` those that are there.

    Raises `RunError` where one fails.
    """
    return _trained(task, lambda folder: shutil.copyfile(plan, folder / "plan.json"), stop, among)


def train_by_winners(
    tuned: str | Path, task: TrainingTask, stop: threading.Event | None = None, among: Ranks | None = None
) -> TrainingRun:
    """The same with the selector of a folder that `gapless tune` wrote: it sums the buckets that a plan has won.

    Raises `RunError` where a process fails, such as for a folder that isn't whole.
    """

    def leave(folder: Path) -> None:
        shutil.copytree(tuned, folder / _TUNED)
        shutil.copyfile(Path(tuned) / SELECTOR, folder / SELECTOR)  # what all ranks have to have alike

    return _trained(task, leave, stop, among)


def _trained(
    task: TrainingTask, leave: Callable[[Path], object], stop: threading.Event | None, among: Ranks | None
) -> TrainingRun:
    answers = run_ranks(prepared, task, task.ranks, task.wait_s, stop, among, leave)
    found: list[_Found] = [built(_Found, answer) for answer in answers]
    return TrainingRun(
        plan_losses=np.mean([rank.plan_losses for rank in found], axis=0),
        library_losses=np.mean([rank.library_losses for rank in found], axis=0),
        plan_s=np.max([rank.plan_s for rank in found], axis=0),
        library_s=np.max([rank.library_s for rank in found], axis=0),
        sent_bytes=tuple(rank.sent_bytes for rank in found),
        taken=found[0].taken,
        left=found[0].left,
    )


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, TrainingTask)
    work = _of_winners if (folder / _TUNED).is_dir() else _of_plan
    return Program(task.ranks, task.wait_s, lambda rank: asdict(work(task, folder, rank)), "gloo")


def _of_plan(task: TrainingTask, folder: Path, rank: int) -> _Found:
    state = PlanState(AllReduce(folder / "plan.json", task.tokens, wait_s=task.wait_s, anyway=True))
    plan_losses, plan_s = _run(task, rank, lambda ddp: ddp.register_comm_hook(state, reduce_by_plan))
    return _Found(plan_losses, *_by_library(task, rank, plan_s), state.sent_bytes, state.taken, 0)


def _of_winners(task: TrainingTask, folder: Path, rank: int) -> _Found:
    states: list[TunedState] = []
    with install(folder / _TUNED, task.wait_s) as tuned:
        plan_losses, plan_s = _run(task, rank, lambda ddp: states.append(tuned.register(ddp)))
    taken, left = (sum(getattr(state, name) for state in states) for name in ("taken", "left"))
    return _Found(plan_losses, *_by_library(task, rank, plan_s), 0, taken, left)


def _by_library(
    task: TrainingTask, rank: int, plan_s: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """The library's losses, the plan's times, the library's times: as `_Found` has them."""
    library_losses, library_s = _run(task, rank, lambda ddp: None)
    return library_losses, plan_s, library_s


def _run(
    task: TrainingTask, rank: int, prepare: Callable[[torch.nn.parallel.DistributedDataParallel], None]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Losses and seconds of each step; the model is rank 0's, whose weights DDP gives to all."""
    work = load_named(task.model, task.seed + rank)
    ddp = torch.nn.parallel.DistributedDataParallel(work.model, bucket_cap_mb=task.bucket_bytes / _MIB)
    prepare(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=_RATE)
    losses, times_s = list[float](), list[float]()
    for _ in range(task.steps):
        torch.distributed.barrier()
        begin_s = time.perf_counter()
        optimizer.zero_grad()
        loss = work.loss_of(ddp)
        loss.backward()
        optimizer.step()
        times_s.append(time.perf_counter() - begin_s)
        losses.append(float(loss.detach()))
    return tuple(losses), tuple(times_s)
