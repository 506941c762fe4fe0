"""A plan of a collective on processes of this machine, beside the library's own, call by call in turn."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.torch.collectives.rank import Task, prepared
from gapless.torch.ranks import Ranks, run_ranks

__all__ = ["CollectiveRun", "run_collective"]


@dataclass(frozen=True)
class CollectiveRun:
    """What the ranks found. `wrong`: numbers that the collective's definition has otherwise, on all ranks.

    `plan_s`, `library_s`: float, shape (repeats,), until the slowest rank is done; `library_s` is empty where the
    library has no such collective. `sent_bytes[r]`: of one call of the plan.
    """

    wrong: int
    plan_s: NDArray[np.float64]
    library_s: NDArray[np.float64]
    sent_bytes: tuple[int, ...]


def run_collective(
    plan: str | Path, task: Task, stop: threading.Event | None = None, among: Ranks | None = None
) -> CollectiveRun:
    """Run a plan file in as many processes as it has ranks, or `among` those that are there.

    Raises `RunError` where one fails.
    """
    found = run_ranks(
        prepared, task, task.ranks, task.wait_s, stop, among, lambda folder: shutil.copyfile(plan, folder / "plan.json")
    )
    return CollectiveRun(
        wrong=sum(rank["wrong"] for rank in found),
        plan_s=_slowest(found, "plan_s"),
        library_s=_slowest(found, "library_s"),
        sent_bytes=tuple(rank["sent_bytes"] for rank in found),
    )


def _slowest(found: list[dict[str, Any]], name: str) -> NDArray[np.float64]:
    return np.asarray(np.max([rank.get(name, []) for rank in found], axis=0), dtype=np.float64)
