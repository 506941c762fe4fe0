"""A sparse allreduce by a plan on processes of this machine, beside TopkA and the library's dense allreduce."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.leaving import temporary_folder
from gapless.profiles.sparsity.index_file import write_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.torch.ranks import run_ranks
from gapless.torch.sparse.plan import SparsePlan

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["NAMES", "SparseRun", "run_sparse"]

NAMES = ("plan", "TopkA", "dense")


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
    with temporary_folder("gapless-ranks-") as name:
        folder = Path(name)
        task = {"plan": plan.data(), "repeats": repeats, "wait_s": wait_s, "ranks": sets.ranks}
        (folder / "task.json").write_text(json.dumps(task), "utf-8")
        write_index_sets(folder / "sets.npz", sets)
        np.savez(folder / "selected.npz", *selected)
        found = run_ranks("gapless.torch.sparse.rank", folder, sets.ranks, wait_s, stop, among)
    return SparseRun(
        wrong=sum(rank["wrong"] for rank in found),
        received_words=np.array([rank["words"] for rank in found], dtype=np.int64).transpose(1, 0, 2),
        times_s={name: _slowest(found, name) for name in NAMES},
    )


def _slowest(found: Sequence[dict[str, Any]], name: str) -> NDArray[np.float64]:
    return np.asarray(np.max([rank["times_s"][name] for rank in found], axis=0), dtype=np.float64)
