"""Chunking: which numbers of chunks are planned, and when none is."""

from __future__ import annotations

import pytest

from gapless.encodings.taccl import Chunked, Problem
from gapless.encodings.taccl import solve as taccl_solve
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.flow import chunking
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.parameters import Parameters
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology


def test_numbers_that_their_own_bound_rules_out_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = {}

    def plan(problem: Chunked, *rest: object) -> Candidate | None:
        found = plan_greedy(problem, *rest)  # type: ignore[arg-type]
        planned[problem.chunks] = None if found is None else found.end_s
        return found

    monkeypatch.setattr(chunking, "plan_greedy", plan)
    problem = Problem(load_topology("ndv2", 1), "alltoall", 10**6)
    quick = chunking.best_chunking(problem, bounds_of(problem.coarsest), SolveOptions(), Parameters())
    assert set(planned) == {1}
    for number in (2, 3, 4):  # where one would be the best, it would have been planned
        cut = problem.in_chunks(number)
        assert plan_greedy(cut, SolveOptions(), most_tries=150).end_s >= quick.end_s


@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
def test_a_first_plan_near_its_bound_spares_the_search(collective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> chunking.Quick:
        raise AssertionError("a number of chunks is looked for")

    monkeypatch.setattr(taccl_solve, "best_chunking", search)
    question = Problem(load_topology("dragonfly:a=4,p=1,h=1"), collective, 64 * 10**6)
    plan = taccl_solve.solve(question, question.default_options)
    assert plan.solution.objective is not None
    assert plan.solution.objective <= 1.005 * plan.solution.bound
    with pytest.raises(AssertionError, match="a number of chunks"):  # where no gap is left
        taccl_solve.solve(question, SolveOptions(gap=0.0))
