"""A sparse allreduce by a plan on processes of this machine, beside TopkA and the library's dense allreduce.

The folder of a rank holds `task.json`, `sets.npz`, `selected.npz`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from gapless.torch.sparse.baselines import SplitAllgather, TreeTopk, tree_sum
from gapless.torch.sparse.plan import SparsePlan

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["BESIDE", "GAUSSIANK", "NAMES", "SparseRun", "prepared", "run_sparse"]


BESIDE = ("TopkDSA", "gTopk")
"""Those whose sums are checked, and whose words are counted, too."""
GAUSSIANK = "Gaussiank"
"""TopkA of the entries at or above the thresholds that were recorded for it."""
NAMES = ("plan", "other balancing", "TopkA", *BESIDE, "dense")
"""All but `GAUSSIANK`. `other balancing`: the plan with its sums balanced before they go to all where it doesn't, or
the other way round.
"""


@dataclass(frozen=True)
class _Task:
    plan: SparsePlan
    repeats: int
    wait_s: float
    ranks: int


@dataclass
class _Found:
    """Of a rank: by step, words of each phase, and `times_s[name]` of each repetition."""

    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("plan", "other balancing", *BESIDE), 0))
    words: list[list[int]] = field(default_factory=list)
    words_beside: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in BESIDE})
    times_s: dict[str, list[list[float]]] = field(default_factory=dict)
    chosen: dict[str, list[int]] = field(default_factory=lambda: {"plan": [], GAUSSIANK: []})
    added: int = 0
    adding_s: float = 0.0


@dataclass(frozen=True)
class SparseRun:
    """What the ranks found. `wrong[name]`: sums, of all steps and ranks, that have other bits than the dense sum (of
    gTopk: than its tree's in one process), or aren't among those selected, or are missing. `received_words`: of the
    plan, int64 (steps, ranks, 3), the contributions, what balancing moved, and sums. `words_beside[name]`: of others,
    int64 (steps, ranks). `times_s[name]`: float (steps, repeats), until the slowest rank is done. `chosen[name]`:
    entries that ranks send, int64 (steps, ranks); of `GAUSSIANK` where its thresholds were recorded. `add_s`: what an
    owner took to add an entry, in the mean of all calls of the plan.
    """

    wrong: dict[str, int]
    received_words: NDArray[np.int64]
    words_beside: dict[str, NDArray[np.int64]]
    times_s: dict[str, NDArray[np.float64]]
    chosen: dict[str, NDArray[np.int64]]
    add_s: float


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
        wrong={name: sum(rank.wrong[name] for rank in found) for name in found[0].wrong},
        received_words=np.array([rank.words for rank in found], dtype=np.int64).transpose(1, 0, 2),
        words_beside={name: np.array([rank.words_beside[name] for rank in found]).T for name in BESIDE},
        times_s={name: np.array([rank.times_s[name] for rank in found]).max(axis=0) for name in found[0].times_s},
        chosen={name: np.array([rank.chosen[name] for rank in found]).T for name in found[0].chosen},
        add_s=sum(rank.adding_s for rank in found) / max(1, sum(rank.added for rank in found)),
    )


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    task = read_task(folder, _Task)
    return Program(task.ranks, task.wait_s, lambda rank: _work(folder, task, rank))


@dataclass(frozen=True)
class _Allreduces:
    """What a rank runs in all steps: by the plan, with the other balancing, by others."""

    plan: SparseAllreduce
    other: SparseAllreduce
    split: SplitAllgather
    gathered: TopkAllgather

    @classmethod
    def of(cls, plan: SparsePlan) -> _Allreduces:
        other = SparseAllreduce(replace(plan, balances=not plan.balances))
        return cls(SparseAllreduce(plan), other, SplitAllgather(plan.regions.length), TopkAllgather())


def _work(folder: Path, task: _Task, rank: int) -> dict[str, object]:
    sets = read_index_sets(folder / "sets.npz")
    allreduces, found = _Allreduces.of(task.plan), _Found()
    with np.load(folder / "selected.npz") as selected:
        for step in range(sets.steps):
            chosen = torch.from_numpy(selected[f"arr_{step}"])
            calls = _checked(found, allreduces, sets, chosen, (step, rank))
            _time(found, calls, task.repeats)
    found.added, found.adding_s = allreduces.plan.adding.entries, allreduces.plan.adding.took_s
    return asdict(found)


def _checked(
    found: _Found, allreduces: _Allreduces, sets: IndexSets, selected: torch.Tensor, at: tuple[int, int]
) -> dict[str, Callable[[], object]]:
    """Run a step by each, and add what sums and words came to; `at`: step and rank. The calls, to be timed."""
    own, total = _entries(sets, *at), _dense_sum(sets, at[0])
    is_selected = torch.zeros(sets.elements, dtype=torch.bool)
    is_selected[selected] = True
    tree = TreeTopk(int(sets.counts[at[0]].max()))
    dense = torch.empty(sets.elements)

    def planned(allreduce: SparseAllreduce) -> Entries:
        return allreduce(own, lambda sums: sums.where(is_selected[sums.places]))

    def library() -> object:
        dense.zero_()
        dense[own.places] = own.values
        return torch.distributed.all_reduce(dense)

    for name, allreduce in (("plan", allreduces.plan), ("other balancing", allreduces.other)):
        allreduce.words = Words()
        sums = planned(allreduce)
        missing = len(selected) - int(is_selected[sums.places].sum())
        found.wrong[name] += missing + len(sums) - int(_same_bits(sums.values, total[sums.places]).sum())
    words = allreduces.plan.words
    found.words.append([words.reduced, words.balanced, words.gathered])
    every = [_entries(sets, at[0], rank) for rank in range(sets.ranks)]
    expected = {"TopkDSA": total, "gTopk": _dense(tree_sum(every, tree.count, sets.elements), sets.elements)}
    others: tuple[SplitAllgather | TreeTopk, ...] = (allreduces.split, tree)
    for name, exchange in zip(BESIDE, others, strict=True):
        before = exchange.received_words
        sums = exchange(own, sets.elements, at[0])
        found.words_beside[name].append(exchange.received_words - before)
        found.wrong[name] += int((_dense(sums, sets.elements) != expected[name]).sum())
    calls: tuple[Callable[[], object], ...] = (
        lambda: planned(allreduces.plan),
        lambda: planned(allreduces.other),
        *(
            lambda exchange=exchange: exchange(own, sets.elements, at[0])
            for exchange in (allreduces.gathered, allreduces.split, tree)
        ),
        library,
    )
    found.chosen["plan"].append(len(own))
    named = dict(zip(NAMES, calls, strict=True))
    if sets.fitted is None:
        found.chosen.pop(GAUSSIANK, None)
        return named
    fewer = own.where(own.values.abs() >= float(sets.fitted[at[0] * sets.ranks + at[1]]))
    found.chosen[GAUSSIANK].append(len(fewer))
    return {**named, GAUSSIANK: lambda: allreduces.gathered(fewer, sets.elements, at[0])}


def _time(found: _Found, calls: Mapping[str, Callable[[], object]], repeats: int) -> None:
    """Each in turn, once untimed, and then so many times."""
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
        found.times_s.setdefault(name, []).append(each_s)


def _entries(sets: IndexSets, step: int, rank: int) -> Entries:
    places = torch.from_numpy(sets.of(step, rank).astype(np.int64))
    return Entries(places, torch.from_numpy(sets.values_of(step, rank).copy()))


def _dense_sum(sets: IndexSets, step: int) -> torch.Tensor:
    """Of the ranks' gradients, dense, in the order of ranks."""
    total = torch.zeros(sets.elements)
    for rank in range(sets.ranks):
        total += _dense(_entries(sets, step, rank), sets.elements)
    return total


def _dense(entries: Entries, elements: int) -> torch.Tensor:
    dense = torch.zeros(elements)
    dense[entries.places] = entries.values
    return dense


def _same_bits(values: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int32) == others.view(torch.int32)
