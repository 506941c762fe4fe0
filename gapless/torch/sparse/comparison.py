"""Training by a plan beside training by other exchanges, from one start on the same batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapless.profiles.sparsity.estimates import GAUSSIAN_ADJUSTED
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.emulation import sleep_until
from gapless.torch.library import rank_count, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import load_named
from gapless.torch.sparse.allreduce import TopkAllgather
from gapless.torch.sparse.baselines import SplitAllgather, TreeTopk
from gapless.torch.sparse.hook import Exchange, SparseState, attach, attach_exchange
from gapless.torch.sparse.plan import SparsePlan
from gapless.torch.sparse.relay import EmulatedLink
from gapless.torch.sparse.selection import entry_count
from gapless.torch.sparse.training import TrainingTask, trained

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["STRATEGIES", "Comparison", "Trained", "compare_training", "prepared"]

STRATEGIES = ("dense", "TopkA", "Gaussiank", "TopkDSA", "gTopk", "plan")


@dataclass(frozen=True)
class Comparison:
    """`task` by the dense allreduce, by those of `STRATEGIES` that are `beside`, and by the plan, whose sums are
    balanced as `balance_above` of `attach` says, and whose regions are made anew after every `renewal` steps. `link`:
    an emulated one, over which a dense ring goes while the backward pass does. `compute_s`: what computing a step takes
    at least.
    """

    task: TrainingTask
    plan: SparsePlan
    beside: tuple[str, ...]
    balance_above: float | None = None
    renewal: int = 64
    link: EmulatedLink | None = None
    compute_s: float = 0.0


BACKWARD = 2 / 3
"""The share of an emulated step's computation that is the backward pass."""


class _Pace:
    """The emulated time of a rank's steps."""

    def __init__(self, whole: Comparison) -> None:
        self._compute_s, self._link, self._begin_s = whole.compute_s, whole.link, 0.0
        self._bytes, self._ranks = 4 * whole.plan.regions.length, whole.task.ranks

    def begin(self) -> None:
        """A step begins."""
        self._begin_s = time.monotonic()

    def compute(self) -> None:
        """Until a step is computed."""
        sleep_until(self._begin_s + self._compute_s)

    def reduce(self) -> None:
        """Until a ring is through that goes on during the backward pass, and is over after it."""
        if self._link is None:
            self.compute()
            return
        others = self._ranks - 1
        ring_s = self._link.time_s(2 * self._bytes * others / self._ranks, 2 * others)
        computed_s = max(self._compute_s, time.monotonic() - self._begin_s)
        sleep_until(self._begin_s + max(computed_s, (1 - BACKWARD) * computed_s + ring_s))


@dataclass(frozen=True)
class Trained:
    """`losses[t]`: in step t, before the update, the mean over ranks. `received_words`: in a step, the mean over steps,
    by the rank that receives most; of what was sent to agree on thresholds and regions too. `sent[t]`, `summed[t]`:
    entries that a rank sent, the mean over ranks, and of which all got the sum; empty for the dense allreduce.
    `balanced_steps`: in which the plan's sums were balanced. `step_s`: a step, the mean of the slowest rank;
    `selection_s`, `communication_s`: of it, to select and for the exchange, None for the dense allreduce, which goes on
    during the backward pass.
    """

    name: str
    losses: tuple[float, ...]
    received_words: float
    step_s: float
    selection_s: float | None = None
    communication_s: float | None = None
    sent: tuple[float, ...] = ()
    summed: tuple[float, ...] = ()
    balanced_steps: int = 0


def compare_training(
    whole: Comparison, stop: threading.Event | None = None, among: Ranks | None = None
) -> tuple[Trained, ...]:
    """Train by each, in a process a rank. Raises `InputError` where the plan is for another model or number of ranks,
    and `RunError`.
    """
    task = whole.task
    whole.plan.check(
        sum(each.numel() for each in trainable(load_named(task.model, task.seed).model).values()), task.ranks
    )
    answers = run_ranks(prepared, whole, task.ranks, task.wait_s, stop, among)
    runs = ([Trained(**run) for run in rank["runs"]] for rank in answers)
    return tuple(_together(rows) for rows in zip(*runs, strict=True))


def _together(rows: Sequence[Trained]) -> Trained:
    """Of all ranks: times are those of the rank whose steps take longest."""
    slowest = max(rows, key=lambda row: row.step_s)
    columns = [row.losses for row in rows], [row.sent for row in rows]
    losses, sent = (tuple(np.mean(each, axis=0).tolist()) for each in columns)
    return replace(slowest, losses=losses, sent=sent, received_words=max(row.received_words for row in rows))


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    whole = read_task(folder, Comparison)
    names = [name for name in STRATEGIES if name in ("dense", *whole.beside, "plan")]

    def work(rank: int) -> dict[str, object]:
        return {"runs": [asdict(_trained(name, whole, rank)) for name in names]}

    return Program(whole.task.ranks, whole.task.wait_s, work)


def _trained(name: str, whole: Comparison, rank: int) -> Trained:
    task, length, ranks = whole.task, whole.plan.regions.length, rank_count()
    ddp = torch.nn.parallel.DistributedDataParallel(load_named(task.model, task.seed).model, broadcast_buffers=False)
    state = None if name == "dense" else _state(name, ddp, whole)
    sent, summed, pace = list[float](), list[float](), _Pace(whole)

    def end() -> None:
        if state is None:
            pace.reduce()
        else:
            sent.append(len(state.sent))
            summed.append(len(state.summed))

    if state is not None:
        state.before = pace.compute
    began_s = time.perf_counter()
    losses = tuple(trained(ddp, task, rank, end, pace.begin))
    step_s = (time.perf_counter() - began_s) / task.steps
    if state is None:
        return Trained(name, losses, 2 * length * (ranks - 1) / ranks, step_s)  # words of a ring, as gloo's
    allreduce = getattr(state.exchange, "allreduce", None)
    return Trained(
        name, losses, float(state.exchange.received_words) / task.steps, step_s, state.selection_s / task.steps,
        state.communication_s / task.steps, tuple(sent), tuple(summed),
        0 if allreduce is None else allreduce.balanced_calls,
    )  # fmt: skip


def _state(name: str, ddp: torch.nn.parallel.DistributedDataParallel, whole: Comparison) -> SparseState:
    task, plan, length = whole.task, whole.plan, whole.plan.regions.length
    if name == "plan":
        return attach(
            ddp, plan, period=task.period, renewal=whole.renewal, estimate=task.estimate,
            balance_above=whole.balance_above, link=whole.link,
        )  # fmt: skip
    if name == "Gaussiank":  # fits its threshold in every step, as published
        return attach_exchange(ddp, plan.density, TopkAllgather(link=whole.link), 1, estimate=GAUSSIAN_ADJUSTED)
    exchanges: dict[str, Callable[[], Exchange]] = {
        "TopkA": lambda: TopkAllgather(link=whole.link),
        "TopkDSA": lambda: SplitAllgather(length, link=whole.link),
        "gTopk": lambda: TreeTopk(entry_count(plan.density, length), link=whole.link),
    }
    return attach_exchange(ddp, plan.density, exchanges[name](), task.period)
