"""One rank that runs a sparse allreduce beside others: `python -m gapless.torch.sparse.rank FOLDER RANK`.

The folder holds `task.json`, `sets.npz`, `selected.npz`; the rank leaves `rank0.pt` there with what it found, or
`rank0.error`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gapless.profiles.sparsity.index_file import read_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.torch.library import torch
from gapless.torch.processes import Program, be_rank
from gapless.torch.sparse.allgather import TopkAllgather
from gapless.torch.sparse.allreduce import SparseAllreduce, Words
from gapless.torch.sparse.entries import Entries
from gapless.torch.sparse.plan import SparsePlan

__all__ = ["prepared"]


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    task = json.loads((folder / "task.json").read_text("utf-8"))
    return Program(task["ranks"], task["wait_s"], lambda rank: _work(folder, task, rank))


def _work(folder: Path, task: dict[str, Any], rank: int) -> dict[str, Any]:
    sets = read_index_sets(folder / "sets.npz")
    allreduce = SparseAllreduce(SparsePlan.read(task["plan"]))
    found: dict[str, Any] = {"wrong": 0, "words": [], "times_s": {"plan": [], "TopkA": [], "dense": []}}
    with np.load(folder / "selected.npz") as selected:
        for step in range(sets.steps):
            _step(found, allreduce, sets, torch.from_numpy(selected[f"arr_{step}"]), (step, rank), task["repeats"])
    return found


def _step(
    found: dict[str, Any], allreduce: SparseAllreduce, sets: IndexSets, selected: torch.Tensor, at: tuple[int, int],
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
    found["words"].append([words.reduced, words.balanced, words.gathered])
    missing = len(selected) - int(is_selected[sums.places].sum())
    found["wrong"] += missing + len(sums) - int(_same_bits(sums.values, total[sums.places]).sum())
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
        found["times_s"][name].append(each_s)


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


if __name__ == "__main__":
    be_rank(prepared)
