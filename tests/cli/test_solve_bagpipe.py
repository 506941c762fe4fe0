"""`gapless solve bagpipe`."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from calls import exit_code
from changed_files import arrays_of, as_meta, meta_of
from spawned import spawn

from gapless.cli.main import main

SMALL = ["--trace", "zipf", "--table-rows", "50,400", "--examples", "300", "--trainers", "4", "--batch-size", "30"]


def test_the_json_object_holds_totals_and_medians(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "bagpipe", *SMALL, "--lookahead", "3", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = ("partition_cost", "fetched_rows", "sync_now_rows", "sync_later_rows", "evicted_rows")
    assert all(name in found and name in found["median"] for name in names)
    assert found["valid"]
    assert found["batches_planned"] == 10
    assert found["makespan_s"] == found["objective_s"]
    assert found["cache_rows_peak"] > 0
    assert found["stages"]["lookahead"] > 0


@pytest.mark.parametrize("objective", ["fetches", "max-load"])
def test_the_other_objectives_have_a_bound(capsys: pytest.CaptureFixture[str], objective: str) -> None:
    assert main(["solve", "bagpipe", *SMALL, "--objective", objective, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["partition_bound_after_history"] <= found["partition_cost"]
    assert found["bounds"][-1]["class"] == "history"
    assert found["bounds"][-1]["bound"] == found["partition_bound_after_history"]
    assert (found["bounds"][-1]["unit"], found["bounds"][-1]["objective"]) == ("rows", found["partition_cost"])


@pytest.mark.parametrize("design", ["replicated", "partitioned", "lrpp"])
def test_every_design_is_solved_and_its_file_replays(
    design: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "plan.npz")
    assert main(["solve", "bagpipe", *SMALL, "--design", design, "-o", path, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["asked"]["design"] == design
    assert (found["sync_now_rows"] > 0) == (design != "partitioned")
    assert (found["peer_rows"] > 0) == (design == "partitioned")
    assert main(["check", path, "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert (checked["valid"], checked["makespan_s"]) == (True, found["makespan_s"])


def test_a_batch_size_that_the_trainers_do_not_divide_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "bagpipe", *SMALL[:-1], "31", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"]


def test_as_many_trainers_as_examples_are_fine_and_more_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["solve", "bagpipe", "--trace", "zipf", "--table-rows", "9", "--examples", "6", "--batch-size", "3"]
    assert main([*arguments, "--trainers", "3", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"]
    assert main([*arguments, "--trainers", "4", "--quiet"]) == 2
    assert "--trainers: must be at most the 3 examples of a batch, got 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cache-rows", "5"], "cache_rows must hold the distinct ids of a batch"),
        (["--objective", "paperr"], "did you mean 'paper'?"),
        (["--shares", "3,2,1"], "shares: must be one per trainer, 4 in all, got 3"),
        (["--shares", "3,2,1,0"], "--shares: must be a number > 0, got '0'"),
        (["--optimizer", "adma"], "did you mean 'adam'?"),
        (["--pooling-factors", "2,3,4"], "pooling factors must be one, or one for each of 2 tables, got 3"),
        (["--pooling-factors", "0.5"], "--pooling-factors: must be a number >= 1, got '0.5'"),
        (["--replicate-budget", "1kB"], "replicate_budget: must hold a table; the smallest has 9,600 bytes on each"),
        (["--replicate-budget", "1MB", "--design", "partitioned"], "goes with a design of replicated, lrpp"),
        (["--bag-columns", "a"], "--bag-columns: goes with a .csv or .csv.gz file, got trace zipf"),
        (["--ownership", "mine"], "must be one of first-touch, hash, got 'mine'"),
        (["--design", "lfu"], "--cache-rows: must be given, and no lookahead, with design lfu, got none"),
        (["--design", "lrp"], "got 'lrp'; did you mean 'lrpp'?"),
        (["--objective", "fetches", "--method", "lp"], "lp is for the paper's objective"),
        (["--objective", "fetches", "--method", "lp", "--time-limit", "0.001"], "lp is for the paper's objective"),
        (["--solver", "highs", "--time-limit", "0.001"], "goes with method milp or lp, got 'highs' with search"),
        (["--solver", "highs"], "solver: goes with method milp or lp, got 'highs' with search"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("solve", "bagpipe", *SMALL, *arguments, "--quiet") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("t.npy", np.array([[1, 2], [3, -4]]), [], "ids must be in 0..17592186044415, got -4 in example 1, table 1"),
        ("t.npy", np.zeros((0, 2), dtype=int), [], "must be integers, examples x tables, at least one of each"),
        ("t.npy", np.ones((3, 2)), [], "must be integers, examples x tables"),
        ("t.csv", "a,b\n1,2\n3\n", ["--columns", "a,b"], "line 3: must have 2 fields as the header, got 1"),
        ("t.csv", "a,b\n1,2\n3,-4\n", ["--columns", "a,b"], "line 3: column 'b' must be a whole number in 0.."),
        ("t.csv", "a,b\n1,2\n", ["--columns", "a,bb"], "column 'bb' must be one of a, b; did you mean 'b'?"),
        ("t.csv", "a,b\n1,2\n", [], "--columns must name at least one of a, b"),
        ("t.csv", "a,b\n", ["--columns", "a,b"], "must hold a header and at least one line of values"),
        ("t.csv", "", ["--columns", "a"], "must hold a header and at least one line of values"),
        ("t.npz", "text", [], "not readable: File is not a zip file"),
        ("t.csv.gz", None, ["--columns", "a"], "No such file or directory"),
        (
            "t.txt",
            None,
            [],
            "must be one of criteo-like, avazu-like, terabyte-like, zipf, skew, or a file ending in .npy, .npz",
        ),
    ],
)
def test_a_trace_that_is_none_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: np.ndarray | str | None,
    options: list[str],
    message: str,
) -> None:
    file = tmp_path / name
    if isinstance(content, str):
        file.write_text(content)
    elif content is not None:
        np.save(file, content)
    arguments = ["--trace", str(file), *options, "--trainers", "2", "--batch-size", "2", "--quiet"]
    assert main(["solve", "bagpipe", *arguments]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert message in error
    assert len(error.strip().splitlines()) == 1


# -- plans -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.npz"
    assert main(["solve", "bagpipe", *SMALL, "--lookahead", "2", "--quiet", "-o", str(path)]) == 0
    return path


def test_a_plan_is_checked_and_shown(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(plan), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problem"] == "bagpipe"
    assert found["valid"]
    assert main(["show", str(plan), "--events", "3"]) == 0
    shown = capsys.readouterr().out
    assert "problem (bagpipe)" in shown
    assert "fetched rows" in shown
    assert "valid" in shown
    assert list(plan.parent.iterdir()) == [plan]


def test_a_summary_for_people_says_what_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "bagpipe", *SMALL, "--lookahead", "2"]) == 0
    said = capsys.readouterr()
    assert "fetched rows" in said.out
    assert "10/10  batches" in said.err


def test_a_plan_that_breaks_consistency_ends_with_5(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = arrays_of(plan)
    arrays["00000000/sync"][arrays["00000000/sync"] == 1] = 0
    np.savez(plan, **arrays)
    assert main(["check", str(plan), "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["violations"]["input-stale"] > 0
    assert main(["show", str(plan)]) == 5
    assert "input-stale" in capsys.readouterr().out


def test_a_claim_of_any_number_is_shown(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = arrays_of(plan)
    meta = meta_of(arrays, "end")
    meta["claim"] |= {"objective_s": 10**400, "gap": "none", "solve_s": None}
    np.savez(plan, **(arrays | {"end": as_meta(json.dumps(meta))}))
    assert main(["show", str(plan)]) == 0
    assert "1000000000" in capsys.readouterr().out


def test_what_is_no_plan_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other, missing = tmp_path / "other.npz", tmp_path / "missing.npz"
    np.savez(other, ids=np.arange(3))
    for command in ("check", "show"):
        for path in (other, missing):
            assert main([command, str(path)]) == 2
            error = capsys.readouterr().err
            assert str(path) in error
            assert len(error.strip().splitlines()) == 1


def test_no_runtime_format_takes_a_plan_of_bagpipe(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(plan), "--format", "taccl-ef", "-o", str(tmp_path / "plan.xml")]) == 2
    assert "takes plans of taccl, got one of bagpipe" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "message"), [("plan.json", "a plan of bagpipe is a .npz file"), ("no/plan.npz", "there is no folder")]
)
def test_a_place_that_takes_no_plan_is_refused_before_work_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, message: str
) -> None:
    assert main(["solve", "bagpipe", *SMALL, "-o", str(tmp_path / path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "batch 1" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_plan_leaves_the_file_that_is_there(plan: Path) -> None:
    before = plan.read_bytes()
    assert main(["solve", "bagpipe", *SMALL, "--cache-rows", "5", "--quiet", "-o", str(plan)]) == 2
    assert plan.read_bytes() == before
    assert list(plan.parent.iterdir()) == [plan]


def test_a_limit_that_is_too_short_has_the_first_batches_planned(plan: Path) -> None:
    assert main(["solve", "bagpipe", *SMALL, "--time-limit", "0.000001", "--quiet", "-o", str(plan)]) == 0
    assert main(["check", str(plan)]) == 0
    end = meta_of(arrays_of(plan), "end")
    assert end["claim"]["stop_reason"] == "time_limit"
    assert end["details"]["batches_planned"] < meta_of(arrays_of(plan))["problem"]["batches"]


def test_interrupt_ends_a_run_with_the_batches_that_are_planned(tmp_path: Path) -> None:
    plan = tmp_path / "plan.npz"
    arguments = ["--trace", "zipf", "--table-rows", "50,9000", "--examples", "100000", "--trainers", "4"]
    arguments += ["--batch-size", "50", "--batches", "2000", "--lookahead", "5", "-o", str(plan)]
    process = spawn("solve", "bagpipe", *arguments)
    assert process.stderr is not None
    assert any("3/2000 " in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=600)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == [plan]
    assert main(["check", str(plan)]) == 0
    end = meta_of(arrays_of(plan), "end")
    assert end["claim"]["stop_reason"] == "interrupted"
    assert 3 <= end["details"]["batches_planned"] < 2000


# -- long runs ---------------------------------------------------------------------------------------------------------


def test_a_run_is_gone_on_with_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = ["solve", "bagpipe", *SMALL, "--design", "lrpp-fine-grained", "--quiet"]
    assert main([*question, "-o", str(tmp_path / "first.npz")]) == 0
    assert main([*question, "-o", str(tmp_path / "again.npz"), "--resume", str(tmp_path / "first.npz")]) == 0
    first, again = arrays_of(tmp_path / "first.npz"), arrays_of(tmp_path / "again.npz")
    assert all(first[name].tobytes() == again[name].tobytes() for name in first if name != "made")
    assert not list(tmp_path.glob("*.part"))
    assert exit_code(*question, "--lookahead", "3", "--resume", str(tmp_path / "first.npz")) == 2
    assert "lookahead must be the question's, 3" in capsys.readouterr().err


def test_what_was_not_finished_says_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, part = tmp_path / "plan.npz", tmp_path / "plan.npz.part"
    question = ["solve", "bagpipe", *SMALL, "--quiet", "-o", str(plan)]
    assert main(question) == 0
    whole, before = plan.read_bytes(), arrays_of(plan)["spans"]
    part.write_bytes(whole[: len(whole) // 2])
    assert exit_code(*question) == 2
    assert f"go on with it with --resume {part}, or remove it" in capsys.readouterr().err
    part.rename(tmp_path / "half.npz")
    assert exit_code("check", str(tmp_path / "half.npz")) == 2
    assert "it is not finished: `solve bagpipe` with --resume goes on with it" in capsys.readouterr().err
    assert main([*question, "--resume", str(tmp_path / "half.npz")]) == 0
    error = capsys.readouterr().err
    assert "bytes of an unfinished window are ignored" in error
    assert len(error.splitlines()) == 1
    assert np.array_equal(arrays_of(plan)["spans"], before)


def test_some_batches_of_a_run_are_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.npz")
    assert main(["solve", "bagpipe", *SMALL, "--quiet", "-o", plan]) == 0
    capsys.readouterr()
    for batches, events in (("0:1", 39), ("3:5", None)):
        assert main(["plot", plan, "--batches", batches, "-o", str(tmp_path / "some.svg")]) == 0
        assert events is None or f"gantt of {events} events" in capsys.readouterr().out
    for batches, message in (
        ("3", "batches: must be FIRST:STOP, such as 0:10, got '3'"),
        ("5:5", "batches: must be FIRST:STOP with 0 <= FIRST < STOP <= 10, got 5:5"),
        ("0:11", "0 <= FIRST < STOP <= 10, got 0:11"),
    ):
        assert exit_code("plot", plan, "--batches", batches, "-o", str(tmp_path / "none.svg")) == 2
        assert message in capsys.readouterr().err
    assert exit_code("plot", plan, "--batches", "0:2", "--kind", "memory", "-o", str(tmp_path / "none.svg")) == 2
    assert "the memory is drawn of whole plans, got 0:2" in capsys.readouterr().err
