"""`gapless sweep taccl` on the command line: the programs, the table, how it goes on, and how it ends."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from calls import run

from gapless.cli.main import main
from gapless.io.taccl_ef import read_program
from gapless.io.taccl_ef import run as execute
from gapless.io.taccl_ef.program import NO_MAX_BYTES
from gapless.ir.collective import allgather

ROOT = Path(__file__).resolve().parents[2]


def topology_file(folder: Path) -> Path:
    """Four ranks in a ring of uneven links."""
    links = [
        {"from": k, "to": (k + 1) % 4, "alpha_us": 1, "beta_us_per_mb": beta, "both_ways": True}
        for k, beta in enumerate((20, 40, 20, 40))
    ]
    data = {"format": "gapless.topology", "version": 1, "name": "four", "ranks_per_node": 4, "links": links}
    path = folder / "four.json"
    path.write_text(json.dumps(data))
    return path


def sweep_of(folder: Path, *more: str) -> list[str]:
    arguments = ["sweep", "taccl", "--topology-file", str(topology_file(folder)), "--sizes", "4KB,1MB,400MB"]
    return [*arguments, "--time-limit", "30", "--threads", "1", "-o", str(folder / "out"), *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sweep of ALLGATHER in `out`."""
    folder = tmp_path_factory.mktemp("sweep")
    assert main([*sweep_of(folder), "--quiet"]) == 0
    return folder


def summary(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return data


def test_every_program_is_correct_and_the_ranges_have_no_gap(made: Path) -> None:
    files = sorted((made / "out" / "xml").iterdir())
    programs = [read_program(path)[0] for path in files]
    assert [path.name for path in files] == [its["xml"] for its in summary(made)["ranges"]]
    assert programs[0].min_bytes == 0
    assert programs[-1].max_bytes == NO_MAX_BYTES
    for before, after in pairwise(programs):
        assert before.max_bytes == after.min_bytes
    for path, program in zip(files, programs, strict=True):
        assert program.name == path.stem
        for slots in (1, 8):
            parts = program.nchunksperloop // 4
            assert execute(program, allgather(4, parts), slots=slots).is_ok


def test_table_has_a_row_for_each_size_and_no_baseline_is_faster(made: Path) -> None:
    rows = summary(made)["rows"]
    assert [row["size_bytes"] for row in rows] == [4000, 1_000_000, 400_000_000]
    for row in rows:
        assert row["ratio_to_baseline"] <= 1 + 1e-9
        assert row["ratio_to_bound"] >= 1 - 1e-9
        assert row["xml"] in {its["xml"] for its in summary(made)["ranges"]}
        assert row["makespan_s"] <= row["synthesised_s"] * (1 + 1e-9)
        tried = row["tried"]
        times = [one["makespan_s"] for one in tried.values()]
        assert times == sorted(times)
        assert times[0] == pytest.approx(row["makespan_s"])
        assert tried[row["baseline"]] == {
            "sketch": None, "is_baseline": True, "instances": row["baseline_instances"],
            "makespan_s": pytest.approx(row["baseline_s"]),
        }  # fmt: skip
        assert {name.partition("-")[0] for name, one in tried.items() if not one["is_baseline"]} == {"plan"}
    with (made / "out" / "summary.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [int(row["size_bytes"]) for row in read] == [4000, 1_000_000, 400_000_000]
    assert "tried" not in read[0]


@pytest.mark.thorough
def test_a_second_sweep_solves_nothing_again(capsys: pytest.CaptureFixture[str], made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (made / "out").glob("allgather-*.json")}
    rows = summary(made)["rows"]
    code, out, err = run(capsys, *sweep_of(made), "--json", "--quiet")
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    data = json.loads(out)
    assert data["rows"] == rows
    assert data["complete"]
    assert Path(data["csv"]).exists()


@pytest.mark.thorough
def test_damaged_plans_are_made_again(made: Path) -> None:
    victim = min((made / "out").glob("allgather-*.plan.json"))
    victim.write_text(victim.read_text()[:200])
    assert main([*sweep_of(made), "--quiet"]) == 0
    assert json.loads(victim.read_text())["format"] == "gapless.plan"


@pytest.mark.thorough
def test_programs_that_are_no_longer_wanted_go_and_others_stay(made: Path) -> None:
    foreign = made / "out" / "xml" / "mine.xml"
    foreign.write_text("kept")
    assert main([*sweep_of(made), "--quiet", "--tolerance", "100"]) == 0
    names = {path.name for path in (made / "out" / "xml").iterdir()}
    assert len(names) == 2
    assert "mine.xml" in names
    foreign.unlink()


@pytest.mark.thorough
def test_tables_are_printed_and_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str], made: Path) -> None:
    code, out, err = run(capsys, *sweep_of(made))
    assert code == 0
    assert out.splitlines()[0].split()[:4] == ["size", "plan", "sketch", "x"]
    assert "min_bytes" in out
    assert "baselines" in err


def test_each_size_tries_every_sketch_and_the_table_says_which_served_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sketch = tmp_path / "mine.json"
    sketch.write_text(json.dumps({"intranode_sketch": {"strategy": "none"}}))
    arguments = sweep_of(tmp_path, "--parts", "1", "--gap", "1", "--json", "--quiet", "--sketch-file", str(sketch))
    arguments[arguments.index("4KB,1MB,400MB")] = "4KB,1MB"
    assert run(capsys, *arguments)[0] == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.plan.json")}
    assert len(before) == 2
    code, out, _ = run(capsys, *arguments, "--sketch", "auto")
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was planned is not planned again
    assert len(list((tmp_path / "out").glob("*.plan.json"))) == 4
    for row in json.loads(out)["rows"]:
        assert row["sketch"] in ("mine", "auto", None)
        assert (row["sketch"] is None) == (row["plan"] == row["baseline"])
        assert row["plan"] is None or row["sketch"] is None or row["plan"].split(" in ")[0].endswith(row["sketch"])
    assert any(row["sketch"] for row in summary(tmp_path)["rows"])


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        (["--sketch", "auto,auto"], "--sketch: must name each sketch once, got 'auto' 2 times"),
        (["--sketch", "nothing"], "sketch: must be one of"),
        (["--collective", "allgatter"], "collective: must be one of"),
        (["--sizes", "0"], "at least 1"),
        (["--instances", "0"], "must be a whole number in 1..64"),
        (["--parts", "x"], "must be a whole number"),
        (["--topology", "nothing", "--topology-file", "nowhere.json"], "nowhere.json"),
        (["--alpha-growth", "-1"], "must be a number >= 0"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, more: list[str], rule: str) -> None:
    code, out, err = run(capsys, *sweep_of(tmp_path), *more)
    assert (code, out) == (2, "")
    assert rule in err
    assert err.count("\n") == 1


def test_range_of_sizes_is_made_of_least_most_and_factor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = [word for word in sweep_of(tmp_path) if word not in ("--sizes", "4KB,1MB,400MB")]
    sizes = ["--min-size", "1KB", "--max-size", "64KB", "--factor", "8", "--parts", "1"]
    code, out, _ = run(capsys, *arguments, *sizes, "--json", "--quiet")
    assert code == 0
    assert [row["size_bytes"] for row in json.loads(out)["rows"]] == [1000, 8000, 64_000]


def test_no_time_for_plans_leaves_baselines_and_code_4(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = sweep_of(tmp_path, "--json", "--quiet")
    arguments[arguments.index("30")] = "1e-9"
    code, out, err = run(capsys, *arguments)
    assert code == 4
    assert "0 of 3 sizes have a plan of their own" in err
    assert not json.loads(out)["complete"]


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupt_keeps_what_is_there(tmp_path: Path) -> None:
    arguments = [
        sys.executable, "-m", "gapless", "sweep", "taccl", "--topology", "ndv2", "--nodes", "2", "--sketch",
        "ndv2-sk-1", "--sizes", "1KB,4KB,16KB,64KB", "--time-limit", "500", "-o", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "64 KB: baselines" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 4
    data = json.loads(out)
    assert data["ranges"]
    assert all((tmp_path / "out" / "xml" / its["xml"]).exists() for its in data["ranges"])
