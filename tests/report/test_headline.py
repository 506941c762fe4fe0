"""What stands at the head of pictures and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_plans import SYSTEMS, small_plan

from gapless.checker import BusyTime, Report, Rule
from gapless.io.plan import SavedPlan
from gapless.ir.schedule import Schedule
from gapless.report.headline import answer_of, claim_rows, length_of, narrower_of, question_of, verdict_of, wider_of
from gapless.result import load
from gapless.solution import StopReason


def claiming(schedule: Schedule, **claim: Any) -> SavedPlan:
    return SavedPlan("elsewhere", {}, claim, {}, schedule)


def report(makespan_s: float, **more: Any) -> Report:
    return Report(makespan_s, (0,), BusyTime(), 1, **more)


@pytest.mark.parametrize(
    ("claim", "makespan_s", "words"),
    [
        ({"status": "optimal", "objective_s": 2.0, "bound_s": 2.0}, 2.0, "optimal"),
        ({"status": "optimal", "objective_s": 2.0, "bound_s": 2.0}, 4.0, "gap 50.00 %"),
        ({"status": "feasible", "objective_s": 2.0, "bound_s": 1.0}, 2.0, "gap 50.00 %"),
        ({"status": "feasible", "objective_s": 2.0, "bound_s": 3.0}, 2.0, "below its bound of 3 s, which is false"),
        ({"status": "feasible", "objective_s": 2.0, "bound_s": None, "gap": 0.1}, 2.0, "no bound"),
        ({"status": "feasible", "objective_s": 2.0, "bound_s": "much"}, 2.0, "no bound"),
        ({"status": "optimal", "objective_error": 0.5, "bound_error": 0.5}, 2.0, "optimal in error"),
        (
            {"objective_span_s": 2.0, "bound_span_s": 1.0},
            9.0,
            "below its bound of 1 s, which is false",
        ),
        ({"status": "feasible", "objective_j": 9.0, "bound_j": 3.0}, 2.0, "gap 66.67 % in energy"),
    ],
)
def test_the_gap_is_that_of_the_replay_to_the_bound(claim: dict[str, Any], makespan_s: float, words: str) -> None:
    assert verdict_of(claiming(schedule_of_nothing(), **claim), report(makespan_s)) == words


NARROWER = [
    {"class": "question", "plans": "any plan of this question", "bound": 1.0, "gap": 0.5, "source": "cuts"},
    {"class": "sketch", "plans": "plans under sketch s", "bound": 1.5, "gap": 0.25, "source": "cuts"},
    {"class": "chunks", "plans": "plans in 1 chunk under sketch s", "bound": 2.0, "gap": 0.0, "source": "arrival"},
]


def test_the_question_comes_first_and_narrower_classes_by_name() -> None:
    claim = {"status": "feasible", "objective_s": 2.0, "bound_s": 1.0, "bounds": NARROWER}
    plan = claiming(schedule_of_nothing(), **claim)
    said = "gap 50.00 %; 25.00 % among plans under sketch s; optimal among plans in 1 chunk under sketch s"
    assert verdict_of(plan, report(2.0)) == said
    assert verdict_of(plan, report(4.0)).endswith("; 50.00 % among plans in 1 chunk under sketch s")
    assert verdict_of(plan, report(1.75)).endswith(
        "; below the bound of 2, which is false, among plans in 1 chunk under sketch s"
    )
    rows = [row for row in claim_rows(claim) if row[0] == "narrower bound"]
    assert rows == [
        ("narrower bound", "1.5 s: 25.00 % among plans under sketch s"),
        ("narrower bound", "2 s: optimal among plans in 1 chunk under sketch s"),
    ]


def test_what_is_optimal_needs_no_narrower_class() -> None:
    claim = {"status": "optimal", "objective_s": 1.0, "bound_s": 1.0, "bounds": NARROWER}
    assert verdict_of(claiming(schedule_of_nothing(), **claim), report(1.0)) == "optimal"


def test_a_bound_on_something_else_than_the_objective_says_what_it_counts() -> None:
    other = {
        "class": "history", "plans": "plans of each batch after those before it", "bound": 90, "gap": 0.1, "source": "",
        "objective": 100, "unit": "rows",
    }  # fmt: skip
    claim = {"status": "feasible", "objective_s": 2.0, "bound_s": 1.0, "bounds": [NARROWER[0], other]}
    assert narrower_of(claim) == [("90 rows", "10.00 % among plans of each batch after those before it")]


@pytest.mark.parametrize("bounds", [None, 3, "much", [3], [{}], [{"class": "other"}], [{**NARROWER[1], "bound": "x"}]])
def test_whatever_a_file_says_of_bounds_the_rest_is_said(bounds: Any) -> None:
    claim = {"status": "feasible", "objective_s": 2.0, "bound_s": 1.0, "bounds": bounds}
    assert verdict_of(claiming(schedule_of_nothing(), **claim), report(2.0)) == "gap 50.00 %"


def test_a_wider_question_is_one_line() -> None:
    assert wider_of({"wider": {"asked": "without --sketch", "objective_s": 874.1e-6, "chunks": 5}}) == (
        "without --sketch: 874.1 us"
    )
    assert wider_of({}) == wider_of({"wider": 3}) == wider_of({"wider": {}}) == ""


def test_a_plan_that_does_not_replay_is_not_called_optimal() -> None:
    plan = claiming(schedule_of_nothing(), status="optimal", objective_s=1.0, bound_s=1.0)
    assert verdict_of(plan, report(1.0, violation_counts={Rule.INPUT_LATE: 1})) == "does not replay clean"


def schedule_of_nothing() -> Schedule:
    import numpy as np

    from gapless.ir.graph import Graph
    from gapless.ir.schedule import schedule_from_events
    from gapless.topologies.topology import Topology

    return schedule_from_events(Graph(np.ones(1, dtype=np.int64)), Topology("alone", (0,)), [])


@pytest.mark.thorough(but=("monet", "chai"))
@pytest.mark.parametrize("system", SYSTEMS)
def test_question_and_answer_of_every_system_are_words(system: str, tmp_path: Path) -> None:
    result = load(small_plan(system, tmp_path))
    question = question_of(system, result.problem.description)
    assert question not in ("", "plan")
    assert not {"{", "}"} & set(question)
    assert answer_of(result.plan, result.report) not in question  # type: ignore[arg-type]


def test_parts_without_a_value_are_left_out_and_long_values_cut() -> None:
    asked = {"collective": "allgather", "input_bytes": 1000, "topology": 99 * "long ", "sketch": None}
    assert question_of("taccl", asked) == f"allgather of 1 KB on {(99 * 'long ')[:59]}\u2026"
    assert question_of("taccl", {}, "some plan") == "some plan"
    assert question_of("elsewhere", asked, "some plan") == "some plan"


def test_reasons_to_stop_are_sentences_and_one_of_a_thing_is_singular() -> None:
    assert dict(claim_rows({"status": "no_solution", "stop_reason": "work_limit"})) == {
        "status": "no solution",
        "stop reason": "the counted work was done",
    }
    assert all(" " in reason.sentence for reason in StopReason)
    asked = {"profile": "p", "ranks": 1, "micro_batches": 1}
    assert question_of("pipeline", asked) == "p on 1 rank, 1 micro-batch"
    assert question_of("pipeline", asked | {"ranks": 2, "micro_batches": 11}) == "p on 2 ranks, 11 micro-batches"


def test_a_plan_in_time_points_has_no_seconds() -> None:
    assert length_of({"objective_cost": 7}, 24.0) == "24 time points"
    assert length_of({"objective_s": 7.0}, 24.0) == "makespan 24 s"
