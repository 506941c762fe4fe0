"""Plans of collectives beside the library's, in turn, among all ranks: many cells of a table in one process group.

A folder holds `task.json` and the plans, `0.json` and so on, for the ranks.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np

from gapless.array_types import Floats
from gapless.ir.collective import ROOTED, Collective, collective_by_name
from gapless.torch.collectives.executor import Channels, planned
from gapless.torch.collectives.fitted import FittedCollective
from gapless.torch.collectives.libraries import library_call
from gapless.torch.collectives.rank import buffers_of
from gapless.torch.devices import device_of
from gapless.torch.library import torch
from gapless.torch.processes import Program, backend_device, built, read_task
from gapless.torch.ranks import Ranks, run_ranks

__all__ = [
    "ELEMENT_BYTES",
    "Cell",
    "CellTimes",
    "ContestTask",
    "most_chunks",
    "prepared",
    "run_contest",
    "whole_collective",
]

ELEMENT_BYTES = 4
"""Buffers are of float32."""


@dataclass(frozen=True)
class Cell:
    """A collective among `ranks`, for input buffers of `size_bytes`, with the numbers of the plans that are tried.

    A root is the first of the ranks.
    """

    collective: str
    ranks: tuple[int, ...]
    size_bytes: int
    plans: tuple[int, ...]


@dataclass(frozen=True)
class ContestTask:
    """`repeats` calls of each plan, and twice as many of the library, in turn, in every cell.

    After a first call of each, a plan that takes more than `hopeless` times as long as the library is given up.
    `wait_s`: the longest that a rank waits for another. `backend`: of torch.distributed.
    """

    ranks: int
    cells: tuple[Cell, ...]
    repeats: int
    hopeless: float
    seed: int
    wait_s: float
    backend: str = "gloo"


@dataclass(frozen=True)
class CellTimes:
    """What was found in a cell. `wrong`: by plan, numbers that the collective's definition has otherwise.

    `plan_s`: by plan, seconds of each call, until the slowest rank is done; empty where it was hopeless or wrong.
    `library_s`: the same of the library, in two series that were called alike; empty where the backend lacks it.
    """

    wrong: tuple[int, ...]
    plan_s: tuple[tuple[float, ...], ...]
    library_s: tuple[tuple[float, ...], tuple[float, ...]]


def whole_collective(name: str, ranks: int) -> Collective:
    """The collective in as few chunks as there can be; its root is rank 0."""
    return collective_by_name(name, ranks, 1, 0 if name in ROOTED else None)


def most_chunks(collective: Collective) -> int:
    """The chunks of the largest input buffer."""
    return max(map(len, collective.inputs))


def run_contest(
    plans: Sequence[Path], task: ContestTask, stop: threading.Event | None = None, among: Ranks | None = None
) -> list[CellTimes]:
    """Run it in as many processes as the task has ranks, or `among` those that are there.

    Raises `RunError` where one fails.
    """

    def leave(folder: Path) -> None:
        for number, path in enumerate(plans):
            shutil.copyfile(path, folder / f"{number}.json")

    answers = run_ranks(prepared, task, task.ranks, task.wait_s, stop, among, leave)
    found = [
        [built(CellTimes, answers[rank]["cells"][place]) for rank in cell.ranks]
        for place, cell in enumerate(task.cells)
    ]
    return [_slowest(of_ranks) for of_ranks in found]


def _slowest(of_ranks: Sequence[CellTimes]) -> CellTimes:
    """One cell of all its ranks: a call ends with the slowest."""

    def joined(series: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
        times: Floats = np.max(series, axis=0)
        return tuple(times.tolist())

    plans = range(len(of_ranks[0].wrong))
    return CellTimes(
        tuple(sum(rank.wrong[plan] for rank in of_ranks) for plan in plans),
        tuple(joined([rank.plan_s[plan] for rank in of_ranks]) for plan in plans),
        (joined([rank.library_s[0] for rank in of_ranks]), joined([rank.library_s[1] for rank in of_ranks])),
    )


def prepared(folder: Path) -> Program:
    """What all ranks do, by what is in a folder."""
    task = read_task(folder, ContestTask)

    def work(rank: int) -> dict[str, object]:
        return {"cells": _Rank(task, folder, rank).cells()}

    return Program(task.ranks, task.wait_s, work, task.backend)


class _Rank:
    """One rank at all cells, which it goes through with all others."""

    def __init__(self, task: ContestTask, folder: Path, rank: int) -> None:
        self._task, self._folder, self._rank = task, folder, rank
        self._device = backend_device(task.backend)
        everyone = tuple(range(task.ranks))
        self._groups: dict[tuple[int, ...], tuple[torch.distributed.ProcessGroup | None, Channels | None]] = {}
        for ranks in dict.fromkeys(cell.ranks for cell in task.cells):
            wait = timedelta(seconds=task.wait_s)
            group = None if ranks == everyone else torch.distributed.new_group(list(ranks), wait)
            self._groups[ranks] = group, Channels(group, task.wait_s) if rank in ranks else None

    def cells(self) -> list[dict[str, object] | None]:
        """What this rank found in each cell, None where it takes no part."""
        found = []
        for cell in self._task.cells:
            torch.distributed.barrier()
            found.append(asdict(self._cell(cell)) if self._rank in cell.ranks else None)
        return found

    def _cell(self, cell: Cell) -> CellTimes:
        group, channels = self._groups[cell.ranks]
        place, whole = cell.ranks.index(self._rank), whole_collective(cell.collective, len(cell.ranks))
        made = buffers_of(whole, cell.size_bytes // most_chunks(whole), self._task.seed, place)
        given, expected = (buffer.to(self._device) for buffer in made)
        output = torch.empty_like(expected)
        library = library_call(whole, place, given, output, group)
        calls: list[Callable[[], object]] = []
        for number in cell.plans:
            file = self._folder / f"{number}.json"
            plan = FittedCollective(
                planned(file, group=group, wait_s=self._task.wait_s, anyway=True, channels=channels)
            )
            calls.append(lambda plan=plan: plan(given, output))  # type: ignore[misc]
        first_s = self._timed(library, group) if library is not None else np.inf
        wrong, hopeful = [], []
        for number, call in enumerate(calls):
            output.zero_()
            call()
            wrong.append(int((output != expected).sum()))
            is_right = self._largest(float(wrong[-1]), group) == 0
            if is_right and self._timed(call, group) <= self._task.hopeless * first_s:
                hopeful.append(number)
        del expected
        return self._in_turn(calls, hopeful, library, group, wrong)

    def _in_turn(
        self, calls: Sequence[Callable[[], object]], hopeful: Sequence[int], library: Callable[[], object] | None,
        group: torch.distributed.ProcessGroup | None, wrong: Sequence[int],
    ) -> CellTimes:  # fmt: skip
        """Every round calls all once, and the library twice, in an order of its own."""
        contestants: list[Callable[[], object]] = [calls[number] for number in hopeful]
        if library is not None:
            contestants += [library, library]
        times_s: list[list[float]] = [[] for _ in contestants]
        drawn = np.random.default_rng(self._task.seed)  # the same on all ranks
        for _ in range(self._task.repeats):
            for number in drawn.permutation(len(contestants)).tolist():
                times_s[number].append(self._once(contestants[number], group))
        by_plan = {number: tuple(times) for number, times in zip(hopeful, times_s, strict=False)}
        of_library = (tuple(times_s[-2]), tuple(times_s[-1])) if library is not None else ((), ())
        return CellTimes(tuple(wrong), tuple(by_plan.get(number, ()) for number in range(len(calls))), of_library)

    def _timed(self, call: Callable[[], object], group: torch.distributed.ProcessGroup | None) -> float:
        """Seconds of a call until the slowest rank is done, as all ranks know it."""
        return self._largest(self._once(call, group), group)

    def _once(self, call: Callable[[], object], group: torch.distributed.ProcessGroup | None) -> float:
        torch.distributed.barrier(group)
        device_of(self._device).synchronize()
        begin_s = time.perf_counter()
        call()
        device_of(self._device).synchronize()
        return time.perf_counter() - begin_s

    def _largest(self, value: float, group: torch.distributed.ProcessGroup | None) -> float:
        """The largest that a rank has."""
        most = torch.tensor([value], dtype=torch.float64, device=self._device)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX, group)
        return float(most)
