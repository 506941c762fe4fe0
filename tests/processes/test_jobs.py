"""Problems that are solved side by side, each in a process of its own."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from broken_work import breaks_at_one

from gapless.checker import check
from gapless.encodings.taccl import Chunked
from gapless.errors import GaplessError, InputError, SolverError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.processes.jobs import Job, Jobs, shares
from gapless.sweeps.question import Given, limits_of
from gapless.sweeps.results import Row
from gapless.sweeps.solving import Work
from gapless.topologies.files import load_topology

PROBLEM = Chunked.of(load_topology("ndv2", 1), "allgather", 1000)


def solving(folder: Path, options: SolveOptions, name: str = "only") -> Work:
    """The work of solving the problem on one thread, into a folder."""
    return Work(Given(PROBLEM, limits_of(options), name, name, {}), folder, 1)


def all_of(jobs: Jobs[Row]) -> dict[int, Row]:
    found: dict[int, Row] = {}
    while jobs.running:
        found.update(jobs.finished())
    return found


def test_answers_come_with_their_places_and_replay_clean(tmp_path: Path) -> None:
    options = SolveOptions(time_limit_s=20, threads=1, gap=0.5)
    with closing(Jobs[Row]()) as jobs:
        for place in (7, 3):
            jobs.start(Job(place, f"job {place}", solving(tmp_path, options, f"job{place}")))
        assert jobs.running == 2
        answers = all_of(jobs)
    assert sorted(answers) == [3, 7]
    for answer in answers.values():
        assert answer.violations == 0
        assert answer.plan is not None
        assert check(read_plan(tmp_path / answer.plan).schedule).valid


def test_what_a_job_raises_is_raised_here(tmp_path: Path) -> None:
    with closing(Jobs[Row]()) as jobs:
        jobs.start(Job(0, "the only job", solving(tmp_path, SolveOptions(solver="abacus"))))
        with pytest.raises(InputError, match="abacus"):
            all_of(jobs)


def test_what_one_job_raises_leaves_the_others_alone() -> None:
    jobs: Jobs[int] = Jobs()
    found: dict[int, int | GaplessError] = {}
    with closing(jobs):
        for place in range(3):
            jobs.start(Job(place, f"job {place}", partial(breaks_at_one, place=place)))
        while jobs.running:
            found.update(jobs.outcomes())
    assert (found[0], found[2]) == (0, 20)
    assert str(found[1]) == "job 1: failed with KeyError: 'no such thing'"


def test_threads_and_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.processes.jobs.available_cores", lambda: 8)
    found = [shares(*asked) for asked in ((0, 0, 3), (0, 0, 20), (4, 0, 20), (0, 2, 20), (1, 0, 0))]
    assert found == [(2, 3), (1, 8), (4, 2), (4, 2), (1, 1)]
    with pytest.raises(InputError, match="threads x workers must be <= 8, the number of cores, got 3 x 3"):
        shares(3, 3, 1)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_job_that_is_killed_is_named(tmp_path: Path) -> None:
    with closing(Jobs[Row]()) as jobs:
        jobs.start(Job(0, "the only job", solving(tmp_path, SolveOptions(time_limit_s=60))))
        (worker,) = jobs._at_work  # noqa: SLF001
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(SolverError, match="the only job: its process crashed with exit code -9"):
            all_of(jobs)
