"""A plan of a collective on processes of this machine, beside the library's own, call by call in turn.

A folder holds `plan.json` and `task.json` for the ranks.
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
from gapless.ir.collective import Collective
from gapless.torch.collectives.executor import PlannedCollective, planned
from gapless.torch.collectives.libraries import library_call
from gapless.torch.devices import device_of
from gapless.torch.library import torch
from gapless.torch.processes import Program, backend_device, built, read_task
from gapless.torch.ranks import Ranks, run_ranks

__all__ = ["CollectiveRun", "Task", "buffers_of", "prepared", "run_collective"]

_LARGEST = 1000
"""Numbers to be added are whole and below this: their sums are exact in any order."""


@dataclass(frozen=True)
class Task:
    """What all ranks are to do: `repeats` calls of the plan and of the library, in turn, with chunks of `chunk_bytes`.

    Where chunks are of unlike sizes, the plan says them. `tokens`: as for `planned`. `wait_s`: the longest that a rank
    waits for another. `backend`: of torch.distributed.
    """

    ranks: int
    chunk_bytes: int
    repeats: int
    tokens: bool
    seed: int
    wait_s: float
    backend: str = "gloo"


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, Task)
    plan = folder / "plan.json"

    def work(rank: int) -> dict[str, object]:
        return asdict(_compare(planned(plan, task.tokens, wait_s=task.wait_s, anyway=True), task, rank))

    return Program(task.ranks, task.wait_s, work, task.backend)


@dataclass(frozen=True)
class _Found:
    """What a rank found: wrong numbers, bytes of one call of the plan, times of the plan and of the library."""

    wrong: int
    sent_bytes: int
    plan_s: tuple[float, ...]
    library_s: tuple[float, ...]


def _compare(plan: PlannedCollective, task: Task, rank: int) -> _Found:
    """Times of the plan and of the library, by repetition; how many numbers of the plan's result are wrong."""
    device = backend_device(task.backend)
    given, expected = (buffer.to(device) for buffer in buffers_of(plan.collective, task.chunk_bytes, task.seed, rank))
    output = torch.empty_like(expected)
    calls: dict[str, Callable[[], object]] = {"plan": lambda: plan(given, output)}
    library = library_call(plan.collective, rank, given, torch.empty_like(expected))
    if library is not None:
        calls["library"] = library
    plan(given, output)
    wrong = int((output != expected).sum())
    times_s: dict[str, list[float]] = {"plan": [], "library": []}
    for _ in range(task.repeats):
        for name, call in calls.items():
            torch.distributed.barrier()
            device_of(device).synchronize()
            begin_s = time.perf_counter()
            call()
            device_of(device).synchronize()
            times_s[name].append(time.perf_counter() - begin_s)
    return _Found(wrong, plan.sent_bytes, tuple(times_s["plan"]), tuple(times_s["library"]))


def buffers_of(
    collective: Collective, chunk_bytes: int, seed: int, rank: int
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """A rank's input, and the output that the collective's definition gives: whole numbers, drawn for every rank."""
    kind = torch.float32 if chunk_bytes % 4 == 0 and collective.chunk_sizes is None else torch.uint8
    length = chunk_bytes // torch.empty(0, dtype=kind).element_size()
    lengths = collective.chunk_sizes or (length,) * collective.chunk_count
    parts: dict[int, torch.Tensor] = {}
    given = torch.empty(0, dtype=kind)
    for other, chunks in enumerate(collective.inputs):
        drawn = torch.Generator().manual_seed(seed * collective.rank_count + other)
        own_lengths = [lengths[chunk] for chunk in chunks]
        buffer = torch.randint(_LARGEST, (sum(own_lengths),), generator=drawn).to(kind)
        given = buffer if other == rank else given
        for chunk, part in zip(chunks, buffer.split(own_lengths) if own_lengths else (), strict=True):
            parts[chunk] = parts[chunk] + part if chunk in parts else part
    wanted = [parts[chunk] for chunk in collective.outputs[rank]]
    if not len(given) and not wanted and collective.chunk_sizes is None:
        given = torch.empty(length, dtype=kind)
    return given, torch.cat(wanted) if wanted else torch.empty(0, dtype=kind)


@dataclass(frozen=True)
class CollectiveRun:
    """What the ranks found. `wrong`: numbers that the collective's definition has otherwise, on all ranks.

    `plan_s`, `library_s`: float, shape (repeats,), until the slowest rank is done; `library_s` is empty where the
    library has no such collective. `sent_bytes[r]`: of one call of the plan.
    """

    wrong: int
    plan_s: Floats
    library_s: Floats
    sent_bytes: tuple[int, ...]


def run_collective(
    plan: str | Path, task: Task, stop: threading.Event | None = None, among: Ranks | None = None
) -> CollectiveRun:
    """Run a plan file in as many processes as it has ranks, or `among` those that are there.

    Raises `RunError` where one fails.
    """
    answers = run_ranks(
        prepared, task, task.ranks, task.wait_s, stop, among, lambda folder: shutil.copyfile(plan, folder / "plan.json")
    )
    found: list[_Found] = [built(_Found, answer) for answer in answers]
    return CollectiveRun(
        wrong=sum(rank.wrong for rank in found),
        plan_s=np.max([rank.plan_s for rank in found], axis=0),
        library_s=np.max([rank.library_s for rank in found], axis=0),
        sent_bytes=tuple(rank.sent_bytes for rank in found),
    )
