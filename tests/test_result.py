"""Results: what people read of a plan, and that a plan read back is the plan that was saved."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from importlib.util import find_spec
from pathlib import Path

import pytest

import gapless
from gapless.errors import InputError
from gapless.installation.extras import install_line
from gapless.ir.schedule import event_records
from gapless.report import notebook
from gapless.report.text import described
from gapless.result import Asked, Result, load


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


def test_notebooks_get_a_small_table_with_the_summary_behind_a_click(result: Result) -> None:
    shown, _, every = result._repr_html_().partition("<details>")
    names = ("question", "answer", "bound", "gap", "verdict", "replay")
    rows = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', shown)
    assert [name for name in rows if name not in ("narrower bound", "wider question")] == list(names)
    assert described("makespan_s", result.report.makespan_s) in shown
    assert "valid; 12 events" in shown
    assert every.count("<tr") == len(result.summary().splitlines())


def test_where_there_is_no_plan_notebooks_show_that(nothing: Result) -> None:
    page = nothing._repr_html_()
    assert "no plan" in page
    assert "infeasible" in page
    assert "<img" not in page


def test_a_notebook_shows_no_markup_of_a_name(result: Result) -> None:
    asked = replace_asked(result, topology="<script>alert(1)</script>\n")
    page = asked._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\n" not in repr(asked.problem)


def replace_asked(result: Result, **values: str) -> Result:
    return replace(result, problem=Asked(result.problem.system, {**result.problem.description, **values}))


def test_a_picture_in_a_notebook_is_bounded_in_bytes(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'src="data:image/svg+xml;base64,' in result._repr_html_()
    assert result.plot("topology")._repr_html_().count("<img") == 1
    monkeypatch.setattr(notebook, "_MOST_SVG_BYTES", 1000)
    monkeypatch.setattr(notebook, "_MOST_PIXELS", 10_000)
    page = result._repr_html_()
    assert 'src="data:image/png;base64,' in page
    assert len(page) < 20_000


def test_without_matplotlib_a_notebook_says_what_is_missing(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    page = result._repr_html_()
    assert "<img" not in page
    assert escape(install_line("plot")) in page


def test_large_objects_have_a_short_line(result: Result) -> None:
    schedule = result.schedule
    large = (result.problem, schedule, schedule.graph, schedule.topology, result.report, result.solution, result.plan)
    for each in large:
        assert len(repr(each)) <= 202
        assert "\n" not in repr(each)
    assert repr(schedule) == "<schedule on ring:4: 12 events (12 transfer)>"
    assert "valid" in result.report._repr_html_()
    assert "allgather" in result.problem._repr_html_()


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


def test_a_plan_is_exported_as_by_the_command_line(result: Result, nothing: Result, tmp_path: Path) -> None:
    path = tmp_path / "plan.xml"
    assert result.export(path, "taccl-ef", instances=2).startswith(f"{path}: ")
    assert 'proto="Simple"' in path.read_text(encoding="utf-8")
    assert "12 events" in result.export(tmp_path / "trace.json", "perfetto")
    for form, values, rule in (
        ("xml", {}, "--format xml must be one of taccl-ef, mscclpp, chakra, perfetto"),
        ("ddp-buckets", {}, "takes plans of cupcake, got one of taccl"),
        ("taccl-ef", {"instance": 2}, "instance: is no argument of taccl-ef"),
    ):
        with pytest.raises(InputError, match=rule):
            result.export(tmp_path / "x", form, **values)
    with pytest.raises(InputError, match="there is no plan"):
        nothing.export(tmp_path / "x", "perfetto")
    assert not (tmp_path / "x").exists()
