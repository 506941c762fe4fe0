"""A sparse allreduce by a plan on processes of this machine, beside TopkA and the library's dense allreduce.

The folder of a rank holds `task.json`, `sets.npz`, `selected.npz`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.sparsity.index_file import read_index_sets, write_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.torch.library import torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.sparse.allreduce import Entries, SparseAllreduce, TopkAllgather, Words
from gapless.torch.sparse.plan import SparsePlan

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["NAMES", "SparseRun", "prepared", "run_sparse"]


NAMES = ("plan", "TopkA", "dense")


@dataclass(frozen=True)
class _Task:
    plan: SparsePlan
    repeats: int
    wait_s: float
    ranks: int


@dataclass
class _Found:
    """Of a rank: by step, words of each phase, and `times_s[name]` of each repetition."""

    wrong: int = 0
    words: list[list[int]] = field(default_factory=list)
    times_s: dict[str, list[list[float]]] = field(default_factory=lambda: {name: [] for name in NAMES})


@dataclass(frozen=True)
class SparseRun:
    """What the ranks found. `wrong`: sums, of all steps and ranks, that have other bits than the dense sum, or aren't
    among those selected, or are missing. `received_words`: of the plan, int64 (steps, ranks, 3), the contributions,
    what balancing moved, and sums. `times_s[name]`: float (steps, repeats), until the slowest rank is done.
    """

    wrong: int
    received_words: NDArray[np.int64]
    times_s: dict[str, NDArray[np.float64]]


def run_sparse(
    plan: SparsePlan, sets: IndexSets, selected: Sequence[NDArray[np.int64]], repeats: int, wait_s: float,
    stop: threading.Event | None = None, among: Ranks | None = None,
) -> SparseRun:  # fmt: skip
    """Run a plan on all steps of the sets, which have values, in a process a rank, or `among` those that are there.

    `selected`: the places, ascending, of which all ranks get the sum, for each step. Raises `RunError` where a process
    fails, `InputError` where the plan is for other sets.
    """
    plan.check(sets.elements, sets.ranks)

    def leave(folder: Path) -> None:
        write_index_sets(folder / "sets.npz", sets)
        np.savez(folder / "selected.npz", *selected)

    task = _Task(plan, repeats, wait_s, sets.ranks)
    found = [_Found(**rank) for rank in run_ranks(prepared, task, sets.ranks, wait_s, stop, among, leave)]
    return SparseRun(
        wrong=sum(rank.wrong for rank in found),
        received_words=np.array([rank.words for rank in found], dtype=np.int64).transpose(1, 0, 2),
        times_s={name: np.array([rank.times_s[name] for rank in found]).max(axis=0) for name in NAMES},
    )


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    task = read_task(folder, _Task)
    return Program(task.ranks, task.wait_s, lambda rank: _work(folder, task, rank))


def _work(folder: Path, task: _Task, rank: int) -> dict[str, object]:
    sets = read_index_sets(folder / "sets.npz")
    allreduce = SparseAllreduce(task.plan)
    found = _Found()
    with np.load(folder / "selected.npz") as selected:
        for step in range(sets.steps):
            _step(found, allreduce, sets, torch.from_numpy(selected[f"arr_{step}"]), (step, rank), task.repeats)
    return asdict(found)


def _step(
    found: _Found, allreduce: SparseAllreduce, sets: IndexSets, selected: torch.Tensor, at: tuple[int, int],
    repeats: int,
) -> None:  # fmt: skip
    """Run a step, and add what it came to; `at`: step and rank."""
    own, total = _entries(sets, *at), _dense_sum(sets, at[0])
    is_selected = torch.zeros(sets.elements, dtype=torch.bool)
    is_selected[selected] = True
    gathered, dense = TopkAllgather(), torch.empty(sets.elements)

    def sparse() -> Entries:
        return allreduce(own, lambda sums: sums.where(is_selected[sums.places]))

    def library() -> object:
        dense.zero_()
        dense[own.places] = own.values
        return torch.distributed.all_reduce(dense)

    allreduce.words = Words()
    sums = sparse()
    words = allreduce.words
    found.words.append([words.reduced, words.balanced, words.gathered])
    missing = len(selected) - int(is_selected[sums.places].sum())
    found.wrong += missing + len(sums) - int(_same_bits(sums.values, total[sums.places]).sum())
    calls: dict[str, Callable[[], object]] = {
        "plan": sparse, "TopkA": lambda: gathered(own, sets.elements, at[0]), "dense": library,
    }  # fmt: skip
    for call in calls.values():
        call()
    times_s: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            torch.distributed.barrier()
            begin_s = time.perf_counter()
            call()
            times_s[name].append(time.perf_counter() - begin_s)
    for name, each_s in times_s.items():
        found.times_s[name].append(each_s)


def _entries(sets: IndexSets, step: int, rank: int) -> Entries:
    places = torch.from_numpy(sets.of(step, rank).astype(np.int64))
    return Entries(places, torch.from_numpy(sets.values_of(step, rank).copy()))


def _dense_sum(sets: IndexSets, step: int) -> torch.Tensor:
    """Of the ranks' gradients, dense, in the order of ranks."""
    total = torch.zeros(sets.elements)
    for rank in range(sets.ranks):
        entries, dense = _entries(sets, step, rank), torch.zeros(sets.elements)
        dense[entries.places] = entries.values
        total += dense
    return total


def _same_bits(values: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int32) == others.view(torch.int32)
