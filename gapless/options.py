"""SolveOptions: what every solver is asked for, in neutral words, and the progress that it reports."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.units import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MOST_GAP", "MOST_SECONDS", "MOST_THREADS", "Deadline", "Progress", "SolveOptions"]

MOST_SECONDS = 1e6
"""The longest time limit, eleven days: what waits for a process can't wait for more than 2^31 milliseconds."""
MOST_GAP = 1.0
"""With it any plan will do: a gap is a share of the plan's objective."""
MOST_THREADS = 1024


class _Unsaid(float):
    """A gap that nobody stated: exact for a backend, the problem's own where `gapless.solve` is asked."""


_UNSAID = _Unsaid(0.0)


@dataclass(frozen=True)
class Progress:
    """One report of a running solve; `incumbent` and `bound`, in `unit`, are None while unknown.

    `done` of `total` instances have an answer, where several are solved. `steps`: those of the backend so far.
    """

    wall_s: float
    incumbent: float | None
    bound: float | None
    phase: str = ""
    unit: Unit = "s"
    done: int | None = None
    total: int | None = None
    steps: int | None = None

    @property
    def gap(self) -> float | None:
        """Relative distance of incumbent and bound, None while either is unknown."""
        return relative_gap(self.incumbent, self.bound)


@dataclass(frozen=True)
class SolveOptions:
    """How long, how exact, on how many threads.

    `time_limit_s`: seconds of wall time, None for no limit. `step_limit`: after how many steps a backend ends, None for
    no limit; a step is about a linear program that it solves, and its number is the same on any machine. `gap`: stop
    once the relative gap is proven to be at most this (0.05 = 5 %); where it isn't stated, a backend proves the
    optimum, and `gapless.solve` takes the gap of `problem.default_options`, as the command line does. `threads`: 0
    takes every core; the plan doesn't depend on it, unless a time limit cuts it short. `presolve`: whether backends may
    simplify a model before they solve it. `interior`: whether HiGHS solves linear programs by interior points alone,
    whose duals bound as well as those of a vertex. `solver` names the backend of the encoding's own model (`gapless
    list solvers`), None leaves it to the encoding. `on_progress` is called from the solving thread. `on_plan` takes
    what a system finds before its end: the cost of a plan, and what makes it, called later, in another thread, if at
    all (`gapless.anytime.incumbents`). `on_point` takes every better point of a model that HiGHS finds: its objective,
    and its values, one per column. `on_step` is called at every step of HiGHS in a model with integers: the steps so
    far, and the bound. `unfinished`: where a system whose plans grow piece by piece may keep what is finished, in case
    it is killed. `stop` may be set from anywhere, as Ctrl-C does: the solver returns its incumbent. `within_deadline`:
    the deadline of the solve that this one is a stage of.

    Raises `InputError` for what is out of range: a time limit of 0 or more than 10^6 s; a step limit below 1; a
    gap beyond 0..1; threads beyond 0..1024; a seed beyond 0..2^31 - 1.
    """

    time_limit_s: float | None = None
    gap: float = _UNSAID
    threads: int = 0
    seed: int = 0
    solver: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    on_plan: Callable[[float, Callable[[], Any]], None] | None = field(default=None, repr=False, compare=False)
    on_point: Callable[[float, NDArray[np.float64]], None] | None = field(default=None, repr=False, compare=False)
    on_step: Callable[[int, float], None] | None = field(default=None, repr=False, compare=False)
    stop: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    step_limit: int | None = None
    presolve: bool = True
    interior: bool = False
    unfinished: Path | None = None
    within_deadline: Deadline | None = field(default=None, repr=False, compare=False)

    def __deepcopy__(self, _: dict[int, object]) -> SolveOptions:
        """Itself: nothing of it changes, and whoever stops one solve stops all that were asked for so."""
        return self

    def __post_init__(self) -> None:
        limit = self.time_limit_s
        if limit is not None and not 0 < limit <= MOST_SECONDS:
            raise InputError(f"time_limit_s must be a number > 0, at most {MOST_SECONDS:g}, or None, got {limit}")
        if self.step_limit is not None and self.step_limit < 1:
            raise InputError(f"step_limit must be >= 1 or None, got {self.step_limit}")
        if not 0 <= self.gap <= MOST_GAP:
            raise InputError(f"gap must be a number in 0..1, 0.05 for 5 %, got {self.gap}")
        if not 0 <= self.threads <= MOST_THREADS:
            raise InputError(f"threads must be in 0..{MOST_THREADS} (0 takes every core), got {self.threads}")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed must be between 0 and 2147483647, got {self.seed}")

    @property
    def thread_count(self) -> int:
        """The number of threads to run on, with 0 resolved to the cores that this process may use."""
        return self.threads or available_cores()

    def within(self, time_limit_s: float | None) -> SolveOptions:
        """These options with another time limit, at least a millisecond."""
        return replace(self, time_limit_s=None if time_limit_s is None else max(time_limit_s, 1e-3))

    def for_problem(self, default: SolveOptions) -> SolveOptions:
        """These options with the gap of a problem's default ones, if none is stated here."""
        return replace(self, gap=default.gap) if isinstance(self.gap, _Unsaid) else self

    def of_a_part(self) -> SolveOptions:
        """These options for a part of a plan: its reports are passed on without incumbent and bound, its own alone."""
        report = self.on_progress
        if report is None:
            return self
        return replace(self, on_progress=lambda news: report(replace(news, incumbent=None, bound=None)))


@dataclass
class _Clock:
    """What all stages of a solve share: when the whole solve ends, and whether the clock has cut anything short."""

    start_s: float
    end_s: float
    kept_s: float = 0.0
    has_struck: bool = False


class Deadline:
    """When a solve has to end; also over once `options.stop` is set.

    The deadline of a stage, made from the options that `stage` gave, is over at the latest with that of the whole
    solve. All of them share one record of whether the clock has cut anything short (`has_struck`): only then may the
    same question have another plan the next time.
    """

    def __init__(self, options: SolveOptions) -> None:
        self._options = options
        self._start_s = time.monotonic()
        limit_s, whole = options.time_limit_s, options.within_deadline
        self._end_s = math.inf if limit_s is None else self._start_s + limit_s
        self.clock: _Clock = _Clock(self._start_s, self._end_s) if whole is None else whole.clock

    @property
    def elapsed_s(self) -> float:
        """Seconds since the deadline was set up."""
        return time.monotonic() - self._start_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, inf without a limit, 0 once stopped."""
        left_s = self._left_s
        if left_s <= 0 and not self._options.stop.is_set():
            self.strike()
        return left_s

    @property
    def over(self) -> bool:
        """Whether the time is up or somebody asked to stop."""
        return self.remaining_s <= 0

    @property
    def is_past(self) -> bool:
        """As `over`, for those who cut nothing short because of it."""
        return self._left_s <= 0

    @property
    def _left_s(self) -> float:
        if self._options.stop.is_set():
            return 0.0
        return max(min(self._end_s, self.clock.end_s - self.clock.kept_s) - time.monotonic(), 0.0)

    @property
    def has_struck(self) -> bool:
        """Whether the clock has cut something short, in this solve or any of its stages."""
        return self.clock.has_struck

    def strike(self) -> None:
        """Note that the clock has cut something short."""
        self.clock.has_struck = True

    def keep(self, duration_s: float) -> None:
        """Keep some of the whole solve's time for what follows the search: the replay, and writing the plan.

        At most a third of the limit, so that there is a search at all.
        """
        clock = self.clock
        if math.isfinite(clock.end_s):
            clock.kept_s = min(max(clock.kept_s, duration_s), (clock.end_s - clock.start_s) / 3)

    def stage(self, at_most_s: float = math.inf) -> SolveOptions:
        """The options for one stage: the time that is left, and no more than `at_most_s`."""
        limit_s = min(self.remaining_s, at_most_s)
        options = self._options.within(limit_s if math.isfinite(limit_s) else None)
        return replace(options, within_deadline=self)


def relative_gap(incumbent: float | None, bound: float | None) -> float | None:
    """|incumbent - bound| / |incumbent|; 0 where they agree, None where either is unknown."""
    if incumbent is None or bound is None:
        return None
    difference = abs(incumbent - bound)
    if difference <= 1e-9 * max(abs(incumbent), abs(bound)):
        return 0.0
    return difference / abs(incumbent) if incumbent else math.inf


def available_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
