"""Sweeps: what the rows say, what the folder holds, what is solved again, and where a search starts."""

from __future__ import annotations

import csv
import json
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from examples import examples
from hand_training import chain
from hypothesis import given
from hypothesis import strategies as st
from powered_training import fast_or_frugal
from tiny_training import MIB, training_graphs

import gapless
from gapless import Progress, SolveOptions, Status, StopReason
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.curve.rows import Row
from gapless.encodings.monet.curve.sweep import bisection
from gapless.encodings.monet.curve.sweep import sweep as sweep_with
from gapless.encodings.monet.decisions import StepDecision
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.retention import keep_set_of, tightened
from gapless.errors import GaplessError, InputError
from gapless.io.plan import read_plan
from gapless.processes.jobs import Job, Jobs
from gapless.processes.workers import outcome_of
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build
from gapless.sweeps.question import Given, limits_of
from gapless.sweeps.results import Row as Known
from gapless.sweeps.solving import Work

OPTIONS = SolveOptions(gap=0.02, time_limit_s=60.0, threads=1)
sweep = partial(sweep_with, parameters=Parameters(least_budget_steps=100))
"""For a budget that nothing fits in, the least that is possible is hardly looked for."""
SCARCE, LITTLE, AMPLE = 20, 45, 1000
"""Budgets of a chain of six: nothing fits, something has to be recomputed, everything can be kept."""
AMPLE_OF_VGG = 5_200_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sweep of a chain of six; tests don't change it."""
    folder = tmp_path_factory.mktemp("sweeps") / "curve"
    sweep(chain(6), [AMPLE, SCARCE, LITTLE, AMPLE], OPTIONS, 0, folder)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    return sweep(chain(6), [SCARCE, LITTLE, AMPLE], OPTIONS, 0, folder)


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def times(folder: Path) -> dict[str, int]:
    """When each answer was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if not path.name.startswith("summary")}


class Noting(Jobs[Known]):
    """Notes the jobs that are started."""

    started: ClassVar[list[Job[Known]]] = []

    def start(self, job: Job[Known]) -> None:
        self.started.append(job)
        super().start(job)


def problem_of(job: Job[Known]) -> Problem:
    """What a job solves."""
    assert isinstance(job.work, Work)
    assert isinstance(job.work.question.problem, Problem)
    return job.work.question.problem


def starts_of(job: Job[Known]) -> tuple[KeepSet, ...]:
    """The keep-sets that a job's solve starts from."""
    return problem_of(job).starts


def budget_of(job: Job[Known]) -> int:
    """The budget that a job solves."""
    return problem_of(job).budget_bytes


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Job[Known]]:
    """The jobs that sweeps start from here on."""
    monkeypatch.setattr("gapless.processes.jobs.Jobs", Noting)
    monkeypatch.setattr(Noting, "started", [])
    return Noting.started


@pytest.mark.thorough
def test_rows_come_by_ascending_budget_and_each_once(rows: list[Row]) -> None:
    assert [row.budget_bytes for row in rows] == [SCARCE, LITTLE, AMPLE]
    assert [row.memory_ratio for row in rows] == pytest.approx(
        [budget / peak_without_saving_bytes(chain(6)) for budget in (SCARCE, LITTLE, AMPLE)]
    )


@pytest.mark.thorough
def test_infeasible_budget_is_a_row_and_not_an_error(rows: list[Row]) -> None:
    assert rows[0].status is Status.INFEASIBLE
    assert (rows[0].cost_s, rows[0].bound_s, rows[0].overhead, rows[0].plan) == (None, None, None, None)


@pytest.mark.thorough
def test_ample_budget_has_no_overhead_and_a_small_one_some(rows: list[Row]) -> None:
    assert rows[1].overhead is not None
    assert rows[1].overhead > 0
    assert rows[2].overhead == pytest.approx(0)
    assert rows[2].overhead_bound == pytest.approx(0)
    assert rows[2].cost_s == pytest.approx(12)


def test_plan_files_replay_to_what_the_rows_say(folder: Path, rows: list[Row]) -> None:
    for row in rows[1:]:
        assert row.plan is not None
        plan = read_plan(folder / row.plan)
        report = check(plan.schedule)
        assert report.valid
        assert report.makespan_s == row.cost_s
        assert max(report.peak_bytes) == row.peak_bytes
        assert row.peak_bytes is not None
        assert row.peak_bytes <= row.budget_bytes
        assert plan.problem["budget_bytes"] == row.budget_bytes


def test_folder_holds_a_file_for_each_budget_and_the_table_twice(folder: Path, rows: list[Row]) -> None:
    names = {path.name for path in folder.iterdir()}
    results = {f"{name.removesuffix('.plan.json')}.json" for name in names if name.endswith(".plan.json")}
    assert results < names
    assert len(names) == len(rows) + len(results) + 2
    with (folder / "summary.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    data = json.loads((folder / "summary.json").read_text())
    assert data == [row.data for row in rows]
    assert [line["status"] for line in table] == [row.status.value for row in rows]
    assert table[0]["cost_s"] == ""
    assert float(table[1]["cost_s"]) == rows[1].cost_s


def test_second_sweep_solves_nothing_and_says_the_same(
    folder: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = times(folder)
    monkeypatch.setattr("gapless.processes.jobs.Jobs", None)
    assert sweep(chain(6), [AMPLE, LITTLE, SCARCE], replace(OPTIONS, threads=0), 1, folder) == rows
    assert times(folder) == before


def test_more_budgets_join_those_that_are_there(folder: Path, rows: list[Row], tmp_path: Path) -> None:
    target = copied(folder, tmp_path / "curve")
    before = times(target)
    found = sweep(chain(6), [LITTLE + 10, LITTLE, AMPLE], OPTIONS, 0, target)
    assert [row.budget_bytes for row in found] == [LITTLE, LITTLE + 10, AMPLE]
    assert before.items() <= times(target).items()
    assert len(times(target)) == len(before) + 2


@pytest.mark.thorough
def test_new_budget_starts_from_the_plans_of_its_neighbours(
    folder: Path, rows: list[Row], tmp_path: Path, started: list[Job[Known]]
) -> None:
    sweep(chain(6), [LITTLE - 1, LITTLE, AMPLE, AMPLE + 1], OPTIONS, 0, copied(folder, tmp_path / "curve"))
    starts = {
        budget_of(job): [Keeper(chain(6), AMPLE).assess(keep)[1].cost_s for keep in starts_of(job)] for job in started
    }
    assert starts == {LITTLE - 1: [pytest.approx(rows[1].cost_s)], AMPLE + 1: [pytest.approx(rows[2].cost_s)]}


@pytest.mark.thorough("options")
@pytest.mark.parametrize(
    ("graph", "options"),
    [(replace(chain(6), fixed_bytes=4), OPTIONS), (chain(6), replace(OPTIONS, gap=0.01))],
    ids=["graph", "options"],
)
def test_another_graph_or_other_options_are_solved_anew(
    folder: Path, rows: list[Row], tmp_path: Path, graph: TrainingGraph, options: SolveOptions
) -> None:
    target = copied(folder, tmp_path / "curve")
    (row,) = sweep(graph, [AMPLE], options, 0, target)
    assert row.plan is not None
    assert row.plan not in times(folder)


@pytest.mark.thorough("format")
@pytest.mark.parametrize("damage", ["", "{}", '{"format": "gapless.plan", "version": 1}'])
def test_damaged_answer_is_replaced(folder: Path, rows: list[Row], tmp_path: Path, damage: str) -> None:
    target = copied(folder, tmp_path / "curve")
    assert rows[2].plan is not None
    (target / rows[2].plan).write_text(damage)
    (row,) = sweep(chain(6), [AMPLE], OPTIONS, 0, target)
    assert row.cost_s == rows[2].cost_s
    assert check(read_plan(target / rows[2].plan).schedule).valid


def test_stop_keeps_what_is_there_and_gives_up_the_rest(folder: Path, rows: list[Row], tmp_path: Path) -> None:
    target = copied(folder, tmp_path / "curve")
    stop = threading.Event()
    heard: list[str] = []

    def hear(progress: Progress) -> None:
        heard.append(f"{progress.done}/{progress.total} {progress.phase}")
        stop.set()

    options = replace(OPTIONS, stop=stop, on_progress=hear)
    assert sweep(chain(6), [LITTLE, LITTLE + 1], options, 0, target) == [rows[1]]
    assert heard == ["1/2 known from before"]
    assert times(target) == times(target) | dict.fromkeys((), 0)
    assert json.loads((target / "summary.json").read_text()) == [rows[1].data]


def as_if_interrupted(folder: Path, row: Row) -> None:
    """Change the row's result into that of a solve which was interrupted before it had proven much."""
    assert row.plan is not None
    result = folder / row.plan.replace(".plan", "")
    known = {"status": "feasible", "stop_reason": "interrupted", "bound_s": 1.0, "gap": 0.9, "solve_s": 5}
    result.write_text(json.dumps({**json.loads(result.read_text()), **known}))


def test_interrupted_plan_is_no_answer_but_where_the_next_sweep_starts(
    folder: Path, rows: list[Row], tmp_path: Path, started: list[Job[Known]]
) -> None:
    target = copied(folder, tmp_path / "curve")
    as_if_interrupted(target, rows[1])
    (row,) = sweep(chain(6), [LITTLE], OPTIONS, 0, target)
    (job,) = started
    assert [Keeper(chain(6), LITTLE).assess(keep)[1].cost_s for keep in starts_of(job)] == [
        pytest.approx(rows[1].cost_s)
    ]
    assert (row.cost_s, row.plan, row.is_interrupted) == (rows[1].cost_s, rows[1].plan, False)
    assert row.bound_s == pytest.approx(rows[1].bound_s)
    assert row.solve_s > 5
    assert sweep(chain(6), [LITTLE], OPTIONS, 0, target) == [row]
    assert len(started) == 1


def test_interrupted_plan_with_a_damaged_claim_is_as_good_as_none(
    folder: Path, rows: list[Row], tmp_path: Path, started: list[Job[Known]]
) -> None:
    target = copied(folder, tmp_path / "curve")
    as_if_interrupted(target, rows[2])
    assert rows[2].plan is not None
    path = target / rows[2].plan
    assert '"objective_s": ' in path.read_text()
    path.write_text(path.read_text().replace('"objective_s": ', '"objective_s": null, "was": '))
    (row,) = sweep(chain(6), [AMPLE], OPTIONS, 0, target)
    assert row.cost_s == rows[2].cost_s
    assert starts_of(started[0]) == ()


class Answering:
    """Stands for the processes: jobs are done in this one."""

    def __init__(self, *arguments: Any) -> None:
        self.jobs: list[Job[Known]] = []

    @property
    def running(self) -> int:
        return len(self.jobs)

    def start(self, job: Job[Known]) -> None:
        self.jobs.append(job)

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    def outcomes(self) -> list[tuple[int, Known | GaplessError]]:
        done, self.jobs = self.jobs, []
        return [(job.place, outcome_of(job.name, job.work, threading.Event())) for job in done]


@pytest.mark.parametrize("reason", [StopReason.INTERRUPTED, StopReason.TIME_LIMIT])
def test_worse_or_no_plan_of_a_second_solve_does_not_replace_the_first(
    folder: Path, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: StopReason
) -> None:
    target = copied(folder, tmp_path / "curve")
    assert rows[1].plan is not None
    dearer = gapless.load(folder / rows[1].plan)  # as it has less memory, with a better bound than the first's
    solution = replace(dearer.solution, stop_reason=reason, status=Status.FEASIBLE, bound=2.0, wall_s=0.5)
    worse = replace(dearer, solution=solution)
    nothing = replace(solution, status=Status.NO_SOLUTION, objective=None, bound=None)
    none = replace(worse, solution=nothing, schedule=None, report=None)
    monkeypatch.setattr("gapless.processes.jobs.Jobs", Answering)
    for result, bound_s in ((none, 1.0), (worse, 2.0)):
        as_if_interrupted(target, rows[2])
        monkeypatch.setattr("gapless.sweeps.solving.solve", lambda *asked, found=result: found)
        (row,) = sweep(chain(6), [AMPLE], OPTIONS, 0, target)
        assert (row.cost_s, row.bound_s, row.gap) == (rows[2].cost_s, bound_s, pytest.approx(1 - bound_s / 12))
        assert (row.stop_reason, row.solve_s) == (reason, 5.5)
        assert row.verdict == ("interrupted" if reason is StopReason.INTERRUPTED else "feasible")


def test_stop_hands_over_the_best_plan_of_what_is_at_work(tmp_path: Path) -> None:
    graph, budget_bytes = build("vgg16", 64, "p100"), 4 * AMPLE_OF_VGG
    nodes = len(graph.forward)
    keep = KeepSet.just_in_time(np.ones(nodes, np.bool_), np.zeros(len(graph.backward), np.int64))
    problem, options = Problem(graph, budget_bytes, (keep,)), replace(OPTIONS, gap=0.0, time_limit_s=600)
    question = Given(problem, limits_of(options), "hash", "the only one", {})
    with closing(Jobs[Known]()) as jobs:
        jobs.start(Job(0, "the only one", Work(question, tmp_path, 1)))
        jobs.stop()  # before its process has come to life: all that it has is where it starts
        while not (answers := list(jobs.finished())):
            pass
        assert jobs.running == 0
    ((place, answer),) = answers
    assert (place, answer.status) == (0, "feasible")
    assert answer.stop_reason in ("interrupted", "gap_reached")
    assert answer.plan is not None
    report, known = check(read_plan(tmp_path / answer.plan).schedule), Keeper(graph, budget_bytes).assess(keep)[1]
    assert report.valid
    assert report.makespan_s <= known.cost_s * (1 + 1e-9)


@pytest.mark.thorough
def test_energy_is_a_sweep_of_its_own_with_rows_in_joules(tmp_path: Path) -> None:
    (fast,) = sweep(fast_or_frugal(), [AMPLE], OPTIONS, 0, tmp_path)
    frugal = sweep(fast_or_frugal(), [12, AMPLE], OPTIONS, 0, tmp_path, "energy")
    assert len(times(tmp_path)) == 5  # two plans and three results
    assert [row.status for row in frugal] == [Status.INFEASIBLE, Status.OPTIMAL]
    assert (frugal[1].cost_s, frugal[1].energy_j, frugal[1].bound_s) == (pytest.approx(8), pytest.approx(160), None)
    assert (fast.cost_s, fast.energy_j, fast.bound_j) == (pytest.approx(4), pytest.approx(300), None)
    assert frugal[1].bound_j == pytest.approx(160, rel=1e-5)
    assert (frugal[1].overhead, frugal[1].overhead_bound) == pytest.approx((0, 0), abs=1e-5)
    with (tmp_path / "summary.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert float(table[1]["energy_j"]) == frugal[1].energy_j
    assert sweep(fast_or_frugal(), [12, AMPLE], OPTIONS, 0, tmp_path, "energy") == frugal


def test_energy_of_a_graph_without_powers_is_refused_before_the_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="every implementation must have power_w"):
        sweep(chain(6), [AMPLE], OPTIONS, 0, tmp_path / "curve", "energy")
    assert list(tmp_path.iterdir()) == []


def test_error_in_a_process_reaches_the_caller(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="solver must be one of"):
        sweep(chain(6), [AMPLE], replace(OPTIONS, solver="gurobi"), 0, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_threads_and_workers_beyond_the_cores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.processes.jobs.available_cores", lambda: 4)
    with pytest.raises(InputError, match=r"threads x workers must be <= 4, the number of cores, got 2 x 3"):
        sweep(chain(6), [AMPLE], replace(OPTIONS, threads=2), 3, tmp_path)


@pytest.mark.parametrize("budgets", [[], [0, 5]])
def test_budgets_must_be_there_and_positive(tmp_path: Path, budgets: list[int]) -> None:
    with pytest.raises(InputError, match=r"budgets must hold at least one, each >= 1 byte"):
        sweep(chain(6), budgets, OPTIONS, 0, tmp_path)


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        sweep(chain(6), [AMPLE], OPTIONS, 0, tmp_path / "file")


@pytest.mark.parametrize("count", range(9))
def test_bisection_visits_each_place_once_after_its_neighbours_before(count: int) -> None:
    order = bisection(count)
    assert sorted(place for place, _ in order) == list(range(count))
    for number, (place, near) in enumerate(order):
        before = [other for other, _ in order[:number]]
        smaller, larger = [k for k in before if k < place], [k for k in before if k > place]
        assert near == (*([max(smaller)] if smaller else []), *([min(larger)] if larger else []))


@examples(100)
@given(graph=training_graphs(max_ops=5), data=st.data())
def test_keep_set_read_from_its_own_decision_comes_to_the_same(graph: TrainingGraph, data: st.DataObject) -> None:
    flags = [data.draw(st.lists(st.booleans(), min_size=n, max_size=n)) for n in (len(graph.forward),) * 2]
    variant = [data.draw(st.integers(0, len(node.variants) - 1)) for node in graph.backward]
    keeper = Keeper(graph, data.draw(st.integers(8, 100)) * MIB)
    lead = data.draw(st.lists(st.integers(0, 3), min_size=len(flags[0]), max_size=len(flags[0])))
    plain, outcome = keeper.assess(KeepSet(np.array(flags[0]), np.array(flags[1]), np.array(variant), np.array(lead)))
    decision = tightened(graph, keeper.decide(plain)).decision
    again, found = keeper.assess(keep_set_of(graph, decision.on(graph)))
    assert found == outcome
    assert (again.kept == plain.kept).all()


def test_start_that_is_within_the_gap_needs_no_search() -> None:
    graph, options = build("vgg16", 64, "p100"), replace(OPTIONS, gap=0.1, time_limit_s=20)
    first = gapless.solve(Problem(graph, AMPLE_OF_VGG), options)
    assert isinstance(first.decision, StepDecision)
    start = keep_set_of(graph, first.decision.on(graph))
    again = gapless.solve(Problem(graph, AMPLE_OF_VGG, (start,)), options)
    assert again.details["states"] == 1
    assert again.solution.objective == first.solution.objective


def test_start_of_another_graph_is_refused() -> None:
    start = KeepSet.just_in_time(np.ones(3, dtype=np.bool_), np.zeros(2, dtype=np.int64))
    with pytest.raises(InputError, match="starts must be keep-sets of the graph 'chain'"):
        Problem(chain(6), AMPLE, (start,))
