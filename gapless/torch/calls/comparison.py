"""Planned calls beside what users have today, within the peak that was measured for each, or within a share of eager's.

Steps of two alternate, and what is compared is one step's time with its neighbour's. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.torch.calls.model import planned
from gapless.torch.cuda_allocator import Reserved, reserved_by
from gapless.torch.run.comparison import (
    Method,
    Runner,
    alternated,
    backward_of,
    eager_runner,
    measured,
    outcome_of,
    rivals,
)
from gapless.torch.run.difference import Outcome
from gapless.torch.run.step_plan import StepPlan
from gapless.torch.run.workload import Workload

__all__ = ["AtPeak", "compare_at_peaks", "compare_in_share"]

_SHARES = (0.8, 0.4)
"""Of PyTorch's `activation_memory_budget`: in the first nothing random is computed again, in the second it is."""


@dataclass(frozen=True)
class AtPeak:
    """A method, and planned calls within the peak that was measured for it.

    `ratio`: of the planned step's time to the method's, the median over pairs of steps that ran one after the other;
    `low` and `high`: what the median lies between with 95 % confidence. `plan_bytes`: the peak by the plan. `reserved`:
    what a GPU's allocator is expected to take for it. All None where the method or the plan has a note instead.
    """

    method: Method
    plan: Method
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    plan_bytes: int | None = None
    reserved: Reserved | None = None


@dataclass(frozen=True)
class _Search:
    """How plans are found: as `planned` takes it."""

    options: SolveOptions | None
    cache: str | Path | None
    report: Callable[[str], None]


def compare_at_peaks(
    work: Workload,
    *,
    options: SolveOptions | None = None,
    cache: str | Path | None = None,
    rounds: int = 25,
    shares: Sequence[float] = _SHARES,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[AtPeak]:
    """Eager and each method beside planned calls within the peak that it needs, in `rounds` pairs of steps.

    Methods: checkpointing per block, selective checkpointing, and PyTorch's `activation_memory_budget` in some shares.
    `options`, `cache`, `report`: as for `planned`. The model is as before at the end.
    """
    eager = eager_runner(work)
    reference = outcome_of(work, eager)
    search = _Search(options, cache, report)
    for rival in (eager, *rivals(work, shares)):
        method = rival if isinstance(rival, Method) else measured(work, rival, reference)
        if method.peak_bytes is None or isinstance(rival, Method):
            yield AtPeak(method, Method("gapless", note="not measured"))
        else:
            yield _beside(work, rival, method, reference, method.peak_bytes, rounds, search)


def compare_in_share(
    work: Workload,
    share: float,
    *,
    options: SolveOptions | None = None,
    cache: str | Path | None = None,
    rounds: int = 25,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[Method, AtPeak]:
    """Eager, and checkpointing per block beside planned calls within a share of eager's measured peak, whatever
    checkpointing needs. The rest as for `compare_at_peaks`.
    """
    eager = eager_runner(work)
    reference = outcome_of(work, eager)
    method = measured(work, eager, reference)
    budget_bytes, search = int(share * (method.peak_bytes or 0)), _Search(options, cache, report)
    rival = next(rivals(work, ()))
    if isinstance(rival, Method):
        return method, _beside(work, eager, method, reference, budget_bytes, rounds, search)
    return method, _beside(work, rival, measured(work, rival, reference), reference, budget_bytes, rounds, search)


def _beside(
    work: Workload, rival: Runner, method: Method, reference: Outcome, budget_bytes: int, rounds: int, search: _Search
) -> AtPeak:
    """A method that was measured, and planned calls within a budget."""
    try:
        runner, plan = _following(work, budget_bytes, search)
    except InputError as error:
        return AtPeak(method, Method("gapless", note=str(error)))
    found = measured(work, runner, reference)
    pair = alternated(work, [rival, runner], rounds)
    times_s = [statistics.median(taken) for taken in pair]
    ratios = sorted(own / other for other, own in zip(*pair, strict=True))
    return AtPeak(
        replace(method, step_s=times_s[0]), replace(found, step_s=times_s[1]), *_median_between(ratios),
        plan.peak_bytes, reserved_by(plan.schedule),
    )  # fmt: skip


# -- plans of calls ----------------------------------------------------------------------------------------------------


def _following(work: Workload, budget_bytes: int, search: _Search) -> tuple[Runner, StepPlan]:
    """Planned calls of the model within a budget, and their plan. Raises `InputError` where none fits."""
    cache = None if search.cache is None else str(search.cache)
    following = planned(
        work.model, budget_bytes, cache=cache, options=search.options, report=search.report
    ).forward  # fmt: skip
    del work.model.forward  # the model follows them while its runner is active

    @contextlib.contextmanager
    def active() -> Iterator[None]:
        work.model.forward = following
        try:
            yield
        finally:
            del work.model.forward

    runner = Runner("gapless", functools.partial(backward_of, work, work.model), active)
    outcome_of(work, runner)
    (plan,) = following.plans
    return runner, plan


def _median_between(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The median of sorted numbers, and what it lies between with 95 % confidence, by the sign test."""
    reach = 0.98 * sqrt(len(ratios))
    low = max(int(len(ratios) / 2 - reach), 0)
    return statistics.median(ratios), ratios[low], ratios[len(ratios) - 1 - low]
