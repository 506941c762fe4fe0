"""Sweeps over memory: a looser limit never has a slower plan; what the rows say, and what is solved again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from examples import share
from pipeline_sweeps import FEW, random_sweep

from gapless.encodings.pipeline import sweep as sweeping
from gapless.encodings.pipeline.sweep import sweep
from gapless.errors import InputError, SolverError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.sweeps.local import Local, Outcome
from gapless.sweeps.question import Question
from gapless.sweeps.results import Row
from gapless.sweeps.solving import Work
from gapless.system import Session

OPTIONS = SolveOptions(threads=1)
ASKED = {"profile": "uniform:f=10,b=12,w=8", "ranks": 2, "micro_batches": 4, "hop": 2}


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """What is solved from here on, in this process: starting one for each takes longer than the solves."""
    found: list[Question] = []

    def in_order(
        self: Local, waiting: Sequence[tuple[int, tuple[int, ...]]], question_of: Callable[[int], Question],
        folder: Path, stop: threading.Event,
    ) -> Iterator[tuple[int, Outcome]]:  # fmt: skip
        for place, _ in waiting:
            found.append(question_of(place))
            yield place, Work(found[-1], folder, 1)(stop)

    monkeypatch.setattr(Local, "in_order", in_order)
    return found


@pytest.mark.parametrize("seed", range(share(500)))
def test_more_memory_never_gives_a_slower_plan(seed: int, solved: list[Question], tmp_path: Path) -> None:
    asked, limit, limits = random_sweep(seed)
    rows = sweep(asked, limit, limits, OPTIONS, tmp_path, FEW)
    assert [row.fields[limit] for row in rows] == list(dict.fromkeys(limits))
    ascending = sorted(rows, key=lambda row: row.fields[limit])
    costs = [row.objective for row in ascending if row.plan is not None]
    assert costs == sorted(costs, reverse=True)
    assert [row.plan is not None for row in ascending] == sorted(row.plan is not None for row in ascending)
    assert all(row.bound <= row.objective * (1 + 1e-9) for row in rows if row.plan is not None)
    assert not any(row.violations for row in rows)


def test_each_limit_begins_with_the_plan_of_the_one_before(solved: list[Question], tmp_path: Path) -> None:
    rows = sweep(ASKED, "in_flight", [4, 2, 3], OPTIONS, tmp_path, FEW)
    assert [question.values["in_flight"] for question in solved] == [2, 3, 4]
    assert [[start.in_flight for start in question.problem.starts] for question in solved] == [[], [2], [3]]
    for row in rows:
        assert row.plan is not None
        plan = read_plan(tmp_path / row.plan)
        assert plan.problem["in_flight"] == row.fields["in_flight"]
        assert plan.claim["objective_s"] == row.objective
    solved.clear()
    assert sweep(ASKED, "in_flight", [4, 2, 3], OPTIONS, tmp_path, FEW) == rows
    assert not solved


@pytest.mark.thorough
def test_a_tighter_limit_that_is_new_has_the_looser_ones_solved_again(solved: list[Question], tmp_path: Path) -> None:
    sweep(ASKED, "in_flight", [2, 4], OPTIONS, tmp_path, FEW)
    solved.clear()
    sweep(ASKED, "in_flight", [2, 3, 4], OPTIONS, tmp_path, FEW)
    assert [question.values["in_flight"] for question in solved] == [3, 4]


def test_a_slower_plan_gives_way_to_that_of_a_tighter_limit() -> None:
    rows = [_row(3, 12.0, bound_s=8.0), _row(2, 10.0, bound_s=9.0), _row(1, None)]
    found = sweeping.closed(rows, (2, 1, 0), "in_flight")
    assert [row.objective for row in found] == [10.0, 10.0, None]
    assert (found[0].plan, found[0].bound, found[0].gap, found[0].details["plan_of"]) == ("2", 8.0, 0.2, 2)


@pytest.mark.parametrize("looser", [{"bound_s": 11.0, "cost_s": 12.0}, {"cost_s": None, "status": "infeasible"}])
def test_a_bound_that_a_plan_refutes_is_an_error(looser: dict[str, Any]) -> None:
    with pytest.raises(SolverError, match=r"in_flight 3: a plan of 10\.0 for 2 refutes"):
        sweeping.closed([_row(3, **looser), _row(2, 10.0)], (1, 0), "in_flight")


def _row(most: int, cost_s: float | None, bound_s: float | None = None, status: str = "feasible") -> Row:
    plan = None if cost_s is None else str(most)
    return Row(str(most), "pipeline", {"in_flight": most}, ("in_flight",), status, objective_s=cost_s,
               bound_s=bound_s, plan=plan)  # fmt: skip


@pytest.mark.parametrize("given", [{}, {"memory": [100], "in_flight": [2]}])
def test_one_kind_of_limit_is_swept(given: dict[str, Any], tmp_path: Path) -> None:
    values = {**ASKED, "memory": None, "in_flight": None, "output": str(tmp_path / "curve"), **given}
    with pytest.raises(InputError, match=r"memory, in_flight: must be one of both, got (neither|memory and in_flight)"):
        sweeping.answer(values, Session(OPTIONS, print))
