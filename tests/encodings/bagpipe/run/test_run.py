"""Runs that end early: what was planned is a run that replays clean, nothing of it is lost, and another goes on."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from changed_files import arrays_of
from examples import share

import gapless
from gapless import Result, SolveOptions
from gapless.encodings.bagpipe import Planning
from gapless.encodings.bagpipe.batch_plans import Budget, NoTimeLeftError, Pace, batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.lowering.actions import NOT_FETCHED, SENT_LATER, SENT_NOW
from gapless.encodings.bagpipe.parameters import Parameters, Synchronised
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.run import run as runs
from gapless.encodings.bagpipe.run import store as run_store
from gapless.errors import InputError
from gapless.io.reading import Limits
from gapless.options import Deadline, Progress
from gapless.profiles.traces.generators import zipf_trace
from gapless.solution import StopReason

TRAINERS, BATCHES = 3, 10


def problem(resume: Path | None = None, seed: int = 0, **settings: Any) -> Problem:
    planning = Planning(TRAINERS, 24, **{"lookahead": 2, "batches": BATCHES, **settings})
    trace, cluster = zipf_trace((40, 300, 5), 1.1, 24 * BATCHES, seed), Cluster(TRAINERS, fetch_latency_s=1e-3)
    return Problem(trace, planning, cluster, resume=None if resume is None else str(resume))


@pytest.mark.thorough(but=("settings0",))
@pytest.mark.parametrize("settings", [{}, {"lookahead": 5}, {"cache_rows": 90, "lookahead": None}, {"lookahead": 50}])
@pytest.mark.parametrize("design", ["lrpp-delayed", "partitioned", "lrpp-fine-grained"])
def test_the_first_batches_of_any_run_are_a_run(settings: dict[str, Any], design: str) -> None:
    for batches in range(1, BATCHES + 1):
        run = stopped_after(batches, design=design, **settings)
        assert run.valid, run.report.summary()
        assert run.windows.count == run.details["batches_planned"] == batches
        actions = [run.windows.actions(number) for number in range(batches)]
        assert run.details["evicted_rows"] == sum(int(batch.evicted.sum()) for batch in actions)
        written = np.concatenate([batch.ids[batch.evicted == 1] for batch in actions])
        is_fetched = [np.isin(batch.fetched_by, [NOT_FETCHED, SENT_NOW, SENT_LATER], invert=True) for batch in actions]
        fetched = np.concatenate([batch.ids[each] for batch, each in zip(actions, is_fetched, strict=True)])
        assert np.array_equal(np.sort(written), np.sort(fetched))


def stopped_after(batches: int, parameters: Parameters | None = None, **settings: Any) -> Result:
    """Stopped by somebody who sees so many batches planned."""

    def stop(progress: Progress) -> None:
        if progress.done == batches:
            options.stop.set()

    options = SolveOptions(on_progress=stop)
    return gapless.solve(problem(**settings), options, parameters)


@pytest.mark.thorough("9-")
@pytest.mark.parametrize("objective", ["paper", "fetches", "max-load"])
@pytest.mark.parametrize("batches", [1, 4, 9])
def test_who_stops_a_run_keeps_what_was_planned(batches: int, objective: str) -> None:
    result = stopped_after(batches, objective=objective, lookahead=3)
    assert result.valid
    assert result.details["batches_planned"] == result.details["batches_optimised"] == batches
    assert result.solution.stop_reason is StopReason.INTERRUPTED
    whole = gapless.solve(problem(objective=objective, lookahead=3))
    for number in range(batches):
        assert np.array_equal(result.windows.trainer(number), whole.windows.trainer(number))


@pytest.mark.parametrize("method", ["auto", "milp", "min_cost_flow", "lp"])
def test_who_has_stopped_before_the_start_has_one_batch(method: str) -> None:
    options = SolveOptions()
    options.stop.set()
    result = gapless.solve(problem(method=method), options)
    assert result.valid
    assert result.details["batches_planned"] == 1
    assert result.details["batches_optimised"] == 0
    assert result.solution.stop_reason is StopReason.INTERRUPTED


@pytest.mark.parametrize("objective", ["paper", "fetches", "max-load"])
def test_with_no_time_there_is_a_run_of_one_batch(objective: str) -> None:
    result = gapless.solve(problem(objective=objective), SolveOptions(time_limit_s=1e-6))
    assert result.valid
    assert result.details["batches_planned"] == 1
    assert result.details["batches_optimised"] == 0
    assert result.solution.stop_reason is StopReason.TIME_LIMIT


class _Clock(Deadline):
    """A deadline whose time passes by hand."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(SolveOptions(time_limit_s=1e6))
        self.left_s = limit_s

    @property
    def remaining_s(self) -> float:
        return self.left_s


def planned(clock: _Clock, pace: Pace, read_s: float, **settings: Any) -> list[bool]:
    """Of each batch that is planned, whether its partition was cut. Reading and planning cost what is said here."""
    asked = problem(**settings)
    budget = Budget(clock, pace)
    check_reading = budget.check_reading

    def read() -> None:
        clock.left_s -= read_s
        check_reading()

    budget.check_reading = read  # type: ignore[method-assign]
    plans = []
    with suppress(NoTimeLeftError):
        for plan in batch_plans(asked.trace, asked.planning, None, SolveOptions(), budget):
            plans.append(plan)
            clock.left_s -= pace.plan_s
            if not budget.goes_on():
                break
    return [plan.partition.is_cut for plan in plans]


def test_with_time_for_all_every_batch_is_planned() -> None:
    assert planned(_Clock(1000.0), Pace(1.0, 1.0), 1.0) == [False] * BATCHES


@pytest.mark.parametrize("lookahead", [1, 3])
def test_with_time_for_few_batches_the_rest_is_not_planned(lookahead: int) -> None:
    clock = _Clock(20.0)
    cut = planned(clock, Pace(1.0, 2.0), 1.0, lookahead=lookahead)
    assert 1 < len(cut) < BATCHES
    assert not any(cut)
    assert clock.has_struck


def test_with_no_time_to_look_ahead_nothing_is_planned() -> None:
    assert planned(_Clock(8.0), Pace(1.0, 2.0), 1.0, lookahead=50) == []


def test_a_batch_that_is_read_alone_is_the_first_of_the_run() -> None:
    result = gapless.solve(problem(batches=1), SolveOptions(time_limit_s=60.0))
    assert result.details["batches_optimised"] == 1
    assert result.solution.stop_reason is StopReason.FINISHED
    assert replace(result.solution, wall_s=0.0) == replace(gapless.solve(problem(batches=1)).solution, wall_s=0.0)


# -- going on ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three batches each."""
    for module in (run_store, runs):
        monkeypatch.setattr(module, "WINDOW_ROWS", 60)


def assert_same_run(path: Path, other: Path) -> None:
    """All but how it was made."""
    arrays, others = arrays_of(path), arrays_of(other)
    del arrays["made"], others["made"]
    assert list(arrays) == list(others)
    assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)


SETTINGS = [
    {},
    {"lookahead": 4, "objective": "fetches"},
    {"cache_rows": 90, "lookahead": None},
    {"design": "partitioned", "lookahead": 50},
    {"method": "random", "lookahead": 3},
    {"objective": "synchronised", "design": "lrpp-fine-grained", "lookahead": 4},
]


@pytest.mark.thorough(
    but=(
        "settings0",
        "settings3",
    )
)
@pytest.mark.usefixtures("_small_windows")
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_run_that_is_gone_on_with_equals_one_that_never_ended(settings: dict[str, Any], tmp_path: Path) -> None:
    gapless.solve(problem(**settings)).save(tmp_path / "whole.npz")
    for batches in (1, 5, 9, BATCHES):
        stopped_after(batches, **settings).save(tmp_path / "cut.npz")
        resumed = gapless.solve(problem(tmp_path / "cut.npz", **settings))
        assert resumed.valid
        resumed.save(tmp_path / "resumed.npz")
        assert_same_run(tmp_path / "resumed.npz", tmp_path / "whole.npz")


@pytest.mark.thorough("fine-grained")
@pytest.mark.parametrize("design", ["lrpp-delayed", "lrpp-fine-grained"])
def test_so_does_one_whose_batches_are_partitioned_two_at_a_time(
    design: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may end between the two: both are partitioned again."""
    for module in (run_store, runs):
        monkeypatch.setattr(module, "WINDOW_ROWS", 1)  # a window in the file is a batch
    two, settings = Parameters(synchronised=Synchronised(window=2)), {"objective": "synchronised", "design": design}
    gapless.solve(problem(**settings), parameters=two).save(tmp_path / "whole.npz")
    for batches in (4, 7):
        stopped_after(batches, two, **settings).save(tmp_path / "cut.npz")
        with (tmp_path / "cut.npz").open("rb") as stream:
            assert run_store.salvaged(stream, Limits.none("cut"), lambda first, columns: True).batches == batches
        gapless.solve(problem(tmp_path / "cut.npz", **settings), parameters=two).save(tmp_path / "resumed.npz")
        assert_same_run(tmp_path / "resumed.npz", tmp_path / "whole.npz")


class _Killed(BaseException):
    """Nothing is tidied up."""


def killed_after(batches: int, path: Path) -> bytes:
    """What a process that is killed while it plans leaves in the file."""
    left = b""

    def kill(progress: Progress) -> None:
        nonlocal left
        if progress.done == batches:
            left = path.read_bytes()
            raise _Killed

    with pytest.raises(_Killed):
        gapless.solve(problem(), SolveOptions(on_progress=kill, unfinished=path))
    return left


@pytest.mark.thorough
@pytest.mark.usefixtures("_small_windows")
def test_what_a_killed_process_left_is_gone_on_with_and_half_a_window_is_ignored(tmp_path: Path) -> None:
    part = tmp_path / "run.npz.part"
    gapless.solve(problem()).save(tmp_path / "whole.npz")
    left, chance = killed_after(9, part), Random(3)
    for _ in range(share(40)):
        part.write_bytes(left[: chance.randrange(1000, len(left) + 1)])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            asked, options = problem(part), SolveOptions(unfinished=part)
            gapless.solve(asked, options).save(tmp_path / "run.npz")
        assert all("bytes of an unfinished window are ignored" in str(each.message) for each in said)
        assert not part.exists()
        assert_same_run(tmp_path / "run.npz", tmp_path / "whole.npz")


def test_an_unfinished_run_is_never_overwritten(tmp_path: Path) -> None:
    part = tmp_path / "run.npz.part"
    part.write_bytes(b"of another process")
    with pytest.raises(InputError, match=r"part: a run that has not ended is there: go on with it with --resume"):
        gapless.solve(problem(), SolveOptions(unfinished=part))
    assert part.read_bytes() == b"of another process"


@pytest.mark.usefixtures("_small_windows")
def test_a_run_of_another_question_is_refused(tmp_path: Path) -> None:
    stopped_after(8).save(tmp_path / "run.npz")
    with pytest.raises(InputError, match=r"run\.npz: lookahead must be the question's, 3, to go on with it; got 2"):
        gapless.solve(problem(tmp_path / "run.npz", lookahead=3))
    with pytest.raises(InputError, match="batches must be the question's, 9, to go on with it; got 10"):
        gapless.solve(problem(tmp_path / "run.npz", batches=9))
    with pytest.raises(InputError, match="ids of batch 0 must be those of the trace"):
        gapless.solve(problem(tmp_path / "run.npz", seed=1))
    (tmp_path / "none.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"none\.npz: must be a run file to go on with"):
        gapless.solve(problem(tmp_path / "none.npz"))
    with pytest.raises(InputError, match=r"cannot read .*missing\.npz"):
        gapless.solve(problem(tmp_path / "missing.npz"))
