"""Training as Ok-Topk does it, observed: what its thresholds select, beside others on the same gradients, and its xi.

Thresholds are found every so many steps and reused in between, as published, whatever they select. Sums are those of
any exchange, so all entries are gathered here. Assumption 1 of the paper: the largest k entries of the mean of what all
ranks have (their gradients with the errors that are left) are off the applied update by at most xi times the norm of
the mean gradient. The learning rate is a factor on both sides.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapless.profiles.sparsity.estimates import EXACT, GAUSSIAN, GAUSSIAN_ADJUSTED
from gapless.torch.ddp.buckets import trainable
from gapless.torch.library import rank_count, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import load_named
from gapless.torch.sparse.allreduce import Entries
from gapless.torch.sparse.hook import attach_exchange
from gapless.torch.sparse.selection import Threshold, entry_count, estimated_threshold
from gapless.torch.sparse.training import KeptSums, TrainingTask, trained

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["Histogram", "Observed", "observed", "prepared"]


@dataclass(frozen=True)
class _Task:
    task: TrainingTask
    density: float


@dataclass(frozen=True)
class Histogram:
    """Of a rank's gradient with the error that is left, in a step in which its threshold is `age` steps old. `edges`:
    of bins, one more than their `entries`. `thresholds`: reused, exact, and of a fitted normal.
    """

    step: int
    age: int
    edges: list[float]
    entries: list[int]
    thresholds: dict[str, float]


@dataclass
class Observed:
    """By step. `losses`, `sent`, `gaussian`, `adjusted`: means over ranks, of the loss before the step, and of entries
    at or above the reused threshold, the one of a fitted normal, and the latter adjusted; `summed`: sums at or above
    the reused global threshold. `xi`: of Assumption 1. `count`: k. `values`: rank 0's in one step.
    """

    count: int
    losses: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    gaussian: list[float] = field(default_factory=list)
    adjusted: list[float] = field(default_factory=list)
    summed: list[float] = field(default_factory=list)
    xi: list[float] = field(default_factory=list)
    values: Histogram = field(default_factory=lambda: Histogram(0, 0, [], [], {}))


_BINS = 128


def observed(
    task: TrainingTask, density: float, stop: threading.Event | None = None, among: Ranks | None = None
) -> Observed:
    """Train in as many processes. Raises `InputError` for a model that can't be, and `RunError`."""
    entry_count(density, sum(each.numel() for each in trainable(load_named(task.model, task.seed).model).values()))
    answers = run_ranks(prepared, _Task(task, density), task.ranks, task.wait_s, stop, among)
    ranks = [Observed(**rank) for rank in answers]
    columns = {
        name: np.mean([getattr(rank, name) for rank in ranks], axis=0).tolist()
        for name in ("losses", "sent", "gaussian", "adjusted", "summed", "xi")
    }
    return Observed(ranks[0].count, **columns, values=Histogram(**answers[0]["values"]))


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    whole = read_task(folder, _Task)
    return Program(whole.task.ranks, whole.task.wait_s, lambda rank: asdict(_observe(whole.task, whole.density, rank)))


def _observe(task: TrainingTask, density: float, rank: int) -> Observed:
    model = load_named(task.model, task.seed).model
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    count = entry_count(density, sum(each.numel() for each in trainable(model).values()))
    state = attach_exchange(ddp, density, KeptSums(count, task.period), task.period)
    state.threshold = Threshold(count, task.period, slack=None)
    found = Observed(count)
    last = max(task.steps - task.steps % task.period - 1, 0) if task.steps >= task.period else task.steps - 1
    state.observer = _Noting(found, state.threshold, last)
    found.losses = trained(ddp, task, rank)
    return found


class _Noting:
    """Called in each step: what is noted in each step, in `found`; values in step `at`, with the threshold in use."""

    def __init__(self, found: Observed, threshold: Threshold, at: int) -> None:
        self._found, self._threshold, self._at = found, threshold, at

    def __call__(self, accumulated: torch.Tensor, gradient: torch.Tensor, given: Entries, sums: Entries) -> None:
        found, magnitudes = self._found, accumulated.abs()
        if len(found.sent) == self._at:
            found.values = self._histogram(accumulated)
        found.sent.append(len(given))
        found.summed.append(len(sums))
        for estimate, counts in ((GAUSSIAN, found.gaussian), (GAUSSIAN_ADJUSTED, found.adjusted)):
            threshold = estimated_threshold(accumulated, found.count, estimate)
            counts.append(int(((magnitudes >= threshold) & (magnitudes > 0)).sum()))
        found.xi.append(_xi(accumulated, gradient, sums, found.count))

    def _histogram(self, values: torch.Tensor) -> Histogram:
        most, threshold, count = float(values.abs().max()), self._threshold, self._found.count
        entries = torch.histc(values, _BINS, -most, most)
        thresholds = {
            "reused": threshold.value, "exact": estimated_threshold(values, count, EXACT),
            "fitted normal": estimated_threshold(values, count, GAUSSIAN),
        }  # fmt: skip
        edges = np.linspace(-most, most, _BINS + 1).tolist()
        return Histogram(self._at, self._at % threshold.period, edges, entries.int().tolist(), thresholds)


def _xi(accumulated: torch.Tensor, gradient: torch.Tensor, sums: Entries, count: int) -> float:
    """|top-k of the mean of what ranks have - the applied update| over |the mean gradient|; 0 where nothing is off."""
    means = torch.stack([accumulated, gradient])
    torch.distributed.all_reduce(means)
    means /= rank_count()
    wanted = torch.zeros_like(gradient)
    places = means[0].abs().topk(count, sorted=False).indices
    wanted[places] = means[0][places]
    wanted[sums.places] -= sums.values / rank_count()
    off = float(wanted.norm())
    return off / float(means[1].norm()) if off else 0.0
