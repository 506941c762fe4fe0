"""Sweeps: a result and a plan for each instance, kept as long as both are what they were, and a table of all."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gapless.checker import check
from gapless.errors import InputError, SolverError
from gapless.io.plan import read_plan
from gapless.options import Progress
from gapless.recipe import solve
from gapless.solution import Status, StopReason
from gapless.sweeps import Local, Row, read_instances, solving, sweep
from gapless.sweeps import run as module
from gapless.sweeps.local import Outcome, Task
from gapless.sweeps.solving import Work
from gapless.sweeps.summary import read_summary

FileOf = Callable[..., Path]


class Here:
    """An engine in this process, which notes what it solves; `fails`: the places where it breaks."""

    def __init__(self, fails: Sequence[int] = ()) -> None:
        self.solved: list[int] = []
        self.fails = fails

    def check(self) -> None:
        """Nothing can be wrong."""

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """One after the other."""
        for task in tasks:
            self.solved.append(task.place)
            if task.place in self.fails:
                yield task.place, SolverError("the solver broke")
            else:
                yield task.place, Work(task.question, folder, 1)(stop)


def solved_by(path: Path, folder: Path, **options: Any) -> tuple[list[int], list[Row]]:
    """The places that a sweep has to solve, and its rows."""
    engine = Here(**options)
    rows = sweep(read_instances(path), folder, engine)
    return engine.solved, rows


def test_every_instance_has_a_result_and_a_plan_named_by_its_hash(small: Path, tmp_path: Path) -> None:
    rows = sweep(read_instances(small), tmp_path / "out", Local(threads=1))
    assert [row.verdict for row in rows] == ["optimal", "feasible", "optimal", "infeasible"]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    results = {f"{row.hash}.json" for row in rows}
    assert names == results | {f"{row.hash}.plan.json" for row in rows[:3]} | {"summary.csv", "summary.json"}
    for row in rows[:3]:
        plan = read_plan(tmp_path / "out" / f"{row.plan}")
        report = check(plan.schedule)
        assert report.valid
        assert (row.makespan_s, row.peak_bytes) == (report.makespan_s, max(report.peak_bytes))
        assert str(plan.run["command"]).startswith(f"gapless solve {row.system} --")
    data = json.loads((tmp_path / "out" / f"{rows[0].hash}.json").read_text())
    assert {"hash", "fields", "files", "status", "objective_s", "bound_s", "gap", "solve_s", "versions"} <= set(data)
    assert (data["fields"], list(data["files"])) == ({"profile": "profile.json", "method": "pareto"}, ["profile"])


def test_the_table_has_a_row_for_each_instance_and_reads_back(small: Path, tmp_path: Path) -> None:
    _, rows = solved_by(small, tmp_path / "out")
    assert read_summary(tmp_path / "out" / "summary.json") == rows
    with (tmp_path / "out" / "summary.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [line["hash"] for line in table] == [row.hash for row in rows]
    assert [line["fields.method"] for line in table] == ["pareto", "one-group", "", ""]
    assert [line["fields.budget"] for line in table] == ["", "", "2.5x", "20"]
    assert float(table[0]["makespan_s"]) == rows[0].makespan_s
    assert table[3]["makespan_s"] == ""


def test_what_has_a_result_is_not_solved_again(small: Path, tmp_path: Path) -> None:
    assert solved_by(small, tmp_path / "out")[0] == [0, 1, 2, 3]
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.plan.json")}
    solved, rows = solved_by(small, tmp_path / "out")
    assert solved == []
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.plan.json")} == before
    assert rows == read_summary(tmp_path / "out" / "summary.json")


def test_only_what_a_changed_file_is_part_of_is_solved_again(small: Path, tmp_path: Path) -> None:
    solved_by(small, tmp_path / "out")
    graph = Path("chain.json")
    graph.write_text(graph.read_text() + " ")
    assert solved_by(small, tmp_path / "out")[0] == [2, 3]


@pytest.mark.thorough(but=("hash",))
@pytest.mark.parametrize("damage", ["plan", "no plan", "result", "status", "hash", "number"])
def test_what_is_damaged_is_solved_again(small: Path, tmp_path: Path, damage: str) -> None:
    _, rows = solved_by(small, tmp_path / "out")
    result, plan = (tmp_path / "out" / f"{rows[0].hash}{ending}" for ending in (".json", ".plan.json"))
    data = json.loads(result.read_text())
    if damage == "plan":
        plan.write_text(plan.read_text() + " ")
    elif damage == "no plan":
        plan.unlink()
    elif damage == "result":
        result.write_text(result.read_text()[:-9])
    else:
        wrong = {"status": "fine", "hash": rows[1].hash, "number": "x"}[damage]
        result.write_text(json.dumps({**data, "makespan_s" if damage == "number" else damage: wrong}))
    assert solved_by(small, tmp_path / "out") == ([0], rows_but_times(rows, solved_by(small, tmp_path / "out")[1]))


def rows_but_times(rows: list[Row], later: list[Row]) -> list[Row]:
    """The rows with the times of the later ones."""
    return [replace(row, solve_s=its.solve_s) for row, its in zip(rows, later, strict=True)]


def test_a_failure_is_a_row_and_tried_again(small: Path, tmp_path: Path) -> None:
    solved, rows = solved_by(small, tmp_path / "out", fails=[1])
    assert solved == [0, 1, 2, 3]
    assert (rows[1].status, rows[1].error, rows[1].is_answer) == ("failed", "the solver broke", False)
    assert read_summary(tmp_path / "out" / "summary.json")[1].error == "the solver broke"
    assert solved_by(small, tmp_path / "out")[0] == [1]


def test_nothing_is_made_for_a_sweep_that_is_refused(small: Path, file_of: FileOf, tmp_path: Path) -> None:
    bad = file_of({"system": "cupcake", "profile": ["profile.json", "none.json"]})
    with pytest.raises(InputError, match=r"grid\[0\] \(profile=none\.json\): cannot read none\.json"):
        sweep(read_instances(bad), tmp_path / "out")
    with pytest.raises(InputError, match="threads x workers must be <= "):
        sweep(read_instances(file_of({"system": "cupcake", "profile": "resnet50"})), tmp_path / "out", Local(99, 99))
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        sweep(read_instances(file_of({"system": "cupcake", "profile": "resnet50"})), tmp_path / "file")


def test_progress_counts_instances(small: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    sweep(read_instances(small), tmp_path / "out", Here(fails=[1]), told.append)
    assert [(each.done, each.total) for each in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert told[0].phase == "cupcake method=pareto: optimal"
    told.clear()
    sweep(read_instances(small), tmp_path / "out", Here(), told.append)
    assert [(each.done, each.phase) for each in told] == [
        (3, "known from before"),
        (4, "cupcake method=one-group: feasible"),
    ]


# -- interrupted -------------------------------------------------------------------------------------------------------

ONE = {"system": "cupcake", "profile": "resnet50"}


@pytest.fixture
def interrupted(file_of: FileOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Row]:
    """Solves `ONE` into the folder `out`, as if Ctrl-C had ended it with so many seconds as the objective."""

    def stopped(objective_s: float, *question: Any) -> Any:
        result = solve(*question)
        how = {"stop_reason": StopReason.INTERRUPTED, "status": Status.FEASIBLE, "objective": objective_s}
        return replace(result, solution=replace(result.solution, **how))

    def sweep_once(objective_s: float) -> Row:
        monkeypatch.setattr(solving, "solve", partial(stopped, objective_s))
        (row,) = sweep(read_instances(file_of(ONE)), tmp_path / "out", Here())
        monkeypatch.setattr(solving, "solve", solve)
        return row

    return sweep_once


def test_an_interrupted_plan_is_kept_and_no_answer(
    interrupted: Callable[[float], Row], file_of: FileOf, tmp_path: Path
) -> None:
    row = interrupted(2.0)
    assert (row.verdict, row.is_answer, row.plan) == ("interrupted", False, f"{row.hash}.plan.json")
    assert check(read_plan(tmp_path / "out" / f"{row.plan}").schedule).valid
    instances = read_instances(file_of(ONE))
    assert module.known_rows(instances, tmp_path / "out") == {0: row}
    solved, (later,) = solved_by(file_of(ONE), tmp_path / "out")
    assert (solved, later.verdict) == ([0], "optimal")
    assert solved_by(file_of(ONE), tmp_path / "out") == ([], [later])


def test_a_worse_interrupted_plan_does_not_replace_a_better_one(interrupted: Callable[[float], Row]) -> None:
    assert interrupted(2.0).objective_s == 2.0
    assert interrupted(3.0).objective_s == 2.0
    assert interrupted(1.0).objective_s == 1.0


def test_an_error_does_not_hide_the_plan_of_an_interrupted_solve(
    interrupted: Callable[[float], Row], file_of: FileOf, tmp_path: Path
) -> None:
    row = interrupted(2.0)
    solved, (again,) = solved_by(file_of(ONE), tmp_path / "out", fails=[0])
    assert (solved, again) == ([0], replace(row, error="the solver broke"))


def test_a_sweep_that_is_killed_has_left_the_best_plan_so_far(
    file_of: FileOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*question: Any) -> Any:
        *asked, keep = question
        result = solve(*asked)
        keep(replace(result, solution=replace(result.solution, stop_reason=StopReason.INTERRUPTED, objective=2.0)))
        raise Killed

    monkeypatch.setattr(solving, "solve", killed)
    with pytest.raises(Killed):
        sweep(read_instances(file_of(ONE)), tmp_path / "out", Here())
    monkeypatch.setattr(solving, "solve", solve)
    row = module.known_rows(read_instances(file_of(ONE)), tmp_path / "out")[0]
    assert (row.verdict, row.objective_s) == ("interrupted", 2.0)
    assert check(read_plan(tmp_path / "out" / f"{row.plan}").schedule).valid
    solved, (later,) = solved_by(file_of(ONE), tmp_path / "out")
    assert (solved, later.verdict) == ([0], "optimal")
