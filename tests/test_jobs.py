"""Problems that are solved side by side, each in a process of its own."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from planwright.checker import check
from planwright.encodings.taccl import Problem
from planwright.errors import InputError, SolverError
from planwright.jobs import Answer, Job, Jobs, solving
from planwright.options import SolveOptions
from planwright.topologies.files import load_topology

PROBLEM = Problem.of(load_topology("ndv2", 1), "allgather", 1000)


def all_of(jobs: Jobs[Answer]) -> dict[int, Answer]:
    found: dict[int, Answer] = {}
    while jobs.running:
        found.update(jobs.finished())
    return found


def test_answers_come_with_their_places_and_replay_clean() -> None:
    options = SolveOptions(time_limit_s=20, threads=1, gap=0.5)
    with closing(Jobs[Answer]()) as jobs:
        for place in (7, 3):
            jobs.start(Job(place, f"job {place}", solving(PROBLEM, options)))
        assert jobs.running == 2
        answers = all_of(jobs)
    assert sorted(answers) == [3, 7]
    for answer in answers.values():
        assert answer.violations == 0
        assert answer.plan is not None
        assert check(answer.plan.schedule).valid


def test_what_a_job_raises_is_raised_here() -> None:
    with closing(Jobs[Answer]()) as jobs:
        jobs.start(Job(0, "the only job", solving(PROBLEM, SolveOptions(solver="abacus"))))
        with pytest.raises(InputError, match="abacus"):
            all_of(jobs)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_job_that_is_killed_is_named() -> None:
    with closing(Jobs[Answer]()) as jobs:
        jobs.start(Job(0, "the only job", solving(PROBLEM, SolveOptions(time_limit_s=60))))
        ((_, process),) = jobs._at_work.values()  # noqa: SLF001
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(SolverError, match="the only job: its process crashed with exit code -9"):
            all_of(jobs)
