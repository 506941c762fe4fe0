"""Results: what people read of a plan, and that a plan read back is the plan that was saved."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import gapless
from gapless.cli.main import main
from gapless.errors import InputError
from gapless.frames import event_records
from gapless.result import Result, load


@pytest.fixture(scope="module")
def result() -> Result:
    return gapless.taccl.solve("ring:4", collective="allgather", size="1MB", chunks=1, threads=1)


@pytest.fixture(scope="module")
def nothing() -> Result:
    found: Result = gapless.monet.solve(
        "vgg16", batch=1, budget="1KB", threads=1, parameters={"least_budget_steps": 100}
    )
    return found


def test_repr_is_a_short_line_with_status_gap_and_makespan(result: Result, nothing: Result) -> None:
    assert repr(result).startswith("<taccl: ")
    assert "gap" in repr(result)
    assert "valid" in repr(result)
    assert "no plan" in repr(nothing)
    for found in (result, nothing):
        assert len(repr(found)) <= 300
        assert "\n" not in repr(found)


def test_summary_says_what_was_asked_claimed_and_replayed(result: Result) -> None:
    lines = dict(line.split(None, 1) for line in result.summary().splitlines())
    assert lines["collective"] == "allgather"
    assert lines["status"] == result.status.value
    assert "makespan" in lines
    assert "bound" in lines


def test_notebooks_get_a_table(result: Result) -> None:
    page = result._repr_html_()
    assert page.startswith("<h2>taccl")
    assert page.count("<tr>") == len(result.summary().splitlines())


def test_python_exports_what_the_command_exports(result: Result, tmp_path: Path) -> None:
    plan, shell, python = (tmp_path / name for name in ("plan.json", "shell.xml", "python.xml"))
    result.save(plan)
    assert main(["export", str(plan), "--format", "taccl-ef", "--instances", "2", "-o", str(shell)]) == 0
    assert "4 GPUs" in load(plan).export(python, "taccl-ef", instances=2)
    assert python.read_bytes() == shell.read_bytes()


def test_what_cannot_be_exported_is_refused(result: Result, nothing: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no plan: infeasible"):
        nothing.export(tmp_path / "file", "perfetto")
    with pytest.raises(InputError, match=r"format: must be one of taccl-ef, .* for plans of taccl, got 'xml'"):
        result.export(tmp_path / "file", "xml")
    with pytest.raises(InputError, match="instance: is no argument of the format taccl-ef; did you mean 'instances'"):
        result.export(tmp_path / "file", "taccl-ef", instance=2)
    with pytest.raises(InputError, match="must replay clean"):
        replace(result, report=None).export(tmp_path / "file", "perfetto")


def test_a_plan_that_is_loaded_is_the_plan_that_was_saved(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "plan.json")
    read = load(tmp_path / "plan.json")
    assert read.valid
    assert (read.status, read.solution.bound, read.details) == (result.status, result.solution.bound, result.details)
    assert read.summary() == result.summary()
    read.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_a_run_of_caches_is_loaded_and_saved_again(tmp_path: Path) -> None:
    asked = {"table_rows": "40,300", "examples": 64, "trainers": 2, "batch_size": 8}
    made = gapless.bagpipe.solve("zipf", **asked, threads=1)
    made.save(tmp_path / "run.npz")
    read = load(tmp_path / "run.npz")
    assert read.valid
    assert read.report is not None
    assert made.report is not None
    assert read.report.makespan_s == pytest.approx(made.report.makespan_s, rel=1e-12)
    read.save(tmp_path / "again.npz")
    assert load(tmp_path / "again.npz").details == made.details
    with pytest.raises(InputError, match=r"run\.json: a plan of bagpipe is a \.npz file"):
        made.save(tmp_path / "run.json")


def test_events_are_a_row_each(result: Result) -> None:
    assert result.schedule is not None
    records = event_records(result.schedule)
    assert len(records) == len(result.schedule)
    assert {record["kind"] for record in records} == {"transfer"}
    assert max(record["end_s"] for record in records) == pytest.approx(result.report.makespan_s)
    frame = result.events_frame()
    if find_spec("pandas") is None:
        assert frame == records
    else:
        assert list(frame.columns) == list(records[0])
        assert len(frame) == len(records)


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra `plot`")
def test_a_plan_is_drawn(result: Result) -> None:
    assert result.plot().figure is not None
    assert result.plot("topology").figure is not None


def test_without_a_plan_there_is_nothing_to_save_or_draw(nothing: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="monet: there is no plan: infeasible"):
        nothing.save(tmp_path / "plan.json")
    with pytest.raises(InputError, match="there is no plan"):
        nothing.events_frame()
    assert not list(tmp_path.iterdir())


def test_a_replay_is_made_again(result: Result) -> None:
    assert result.check().makespan_s == result.report.makespan_s
