"""`gapless sweep FILE` on the command line: what it prints and writes, how it ends, and how it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from calls import run
from fusion_instances import known_instance
from rich import console

from gapless.cli.progress import progress_on_stderr
from gapless.options import Progress
from gapless.profiles.gradients.profile_file import fusion_profile_text

ROOT = Path(__file__).resolve().parents[2]
GRID = """
format = "gapless.sweep"
version = 1

[[grid]]
system = "cupcake"
profile = "profile.json"
method = ["pareto", "one-group"]
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`grid.toml` in the current folder: two fusions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.json").write_text(fusion_profile_text(known_instance()))
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path / "grid.toml"


def test_a_table_is_printed_and_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    code, out, err = run(capsys, "sweep", "grid.toml", "-o", "out")
    assert code == 0
    lines = out.splitlines()
    assert re.match(r" +hash +system +method +status +makespan +bound +gap +peak +solve", lines[0])
    assert [line.split()[1:4] for line in lines[1:]] == [
        ["cupcake", "pareto", "optimal"],
        ["cupcake", "one-group", "feasible"],
    ]
    assert re.search(r"2/2  cupcake method=", err)
    assert run(capsys, "check", f"out/{lines[1].split()[0]}.plan.json", "--quiet")[0] == 0


def test_json_is_one_object_with_a_row_for_each_instance(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    code, out, err = run(capsys, "sweep", "file", "grid.toml", "-o", "out", "--json", "--quiet")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert [row["fields"]["method"] for row in data["rows"]] == ["pareto", "one-group"]
    assert {"hash", "status", "makespan_s", "bound_s", "gap", "violations", "plan"} <= set(data["rows"][0])
    assert json.loads(Path(data["json"]).read_text())["rows"] == data["rows"]
    assert Path(data["csv"]).exists()


@pytest.mark.thorough
def test_the_file_may_stand_after_the_options(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    assert run(capsys, "sweep", "-o", "out", "--quiet", "grid.toml") == (0, "", "")


@pytest.mark.thorough
def test_quiet_is_silent(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    assert run(capsys, "sweep", "grid.toml", "-o", "out", "--quiet") == (0, "", "")


def test_a_dry_run_lists_what_is_known_and_makes_nothing(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    code, out, _ = run(capsys, "sweep", "grid.toml", "-o", "out", "--dry-run")
    assert code == 0
    assert [line.split()[3] for line in out.splitlines()[1:]] == ["waiting", "waiting"]
    assert not Path("out").exists()
    run(capsys, "sweep", "grid.toml", "-o", "out", "--quiet")
    assert "optimal" in run(capsys, "sweep", "grid.toml", "-o", "out", "--dry-run")[1]


BAD = [
    (["none.toml"], "cannot read none.toml: No such file"),
    (["grid.tom"], "invalid choice: 'grid.tom'"),
    (["grid.toml", "--engine", "slum"], "--engine: must be one of local, slurm, ray, got 'slum'; did you mean 'slurm'"),
    (["grid.toml", "--engine-option", "a=b"], "--engine-option goes with --engine slurm or ray"),
    (["grid.toml", "--engine", "ray", "--engine-option", "a"], "must be NAME=VALUE, such as slurm_partition=cpu, got"),
    (["grid.toml", "--workers", "9999"], "threads x workers must be <= "),
    (["grid.toml", "--threads", "x"], "--threads: must be a whole number in 0.."),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_input_gets_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], grid: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, "sweep", *arguments, "-o", "out")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not Path("out").exists()


def test_nothing_found_is_exit_code_4_and_not_tried_again(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    grid.write_text(
        GRID.split("[[grid]]")[0]
        + '[[grid]]\nsystem = "monet"\ngraph = "unet"\nbatch = 4\nbudget = ["0.3x"]\ntime_limit = 0.001\n'
    )
    for _ in range(2):
        code, out, err = run(capsys, "sweep", "grid.toml", "-o", "out")
        assert (code, "no_solution" in out) == (4, True)
        assert "0 of 1 instances have an answer, 1 without a plan in time" in err
    assert "1/1  known from before" in err


def test_a_bar_over_instances_is_shown_on_a_terminal() -> None:
    from gapless.cli.progress import _live_line

    with Path(os.devnull).open("w") as file, _live_line(console.Console(file=file)) as tell:
        tell(Progress(1.0, 2.0, 1.0, "cupcake: optimal", done=1, total=2))
    with progress_on_stderr(True) as silent:
        assert silent is None


def test_the_summary_is_drawn(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    assert run(capsys, "sweep", "grid.toml", "-o", "out", "--quiet")[0] == 0
    code, out, err = run(capsys, "plot", "out/summary.json", "-o", "curve.svg")
    assert (code, out, err) == (0, "curve.svg: curves of 2 instances\n", "")
    assert Path("curve.svg").read_bytes().startswith(b"<?xml")
    code, _, err = run(capsys, "plot", "out/summary.json", "-o", "b.svg", "--x", "metod")
    assert (code, "did you mean 'method'" in err) == (2, True)
    assert "--y: must be a column" in run(capsys, "plot", "out/summary.json", "-o", "b.svg", "--y", "cost")[2]
    plan = next(Path("out").glob("*.plan.json"))
    assert "--x: goes with the summary.json" in run(capsys, "plot", str(plan), "-o", "b.svg", "--x", "method")[2]
    assert "--kind gantt takes a plan" in run(capsys, "plot", "out/summary.json", "-o", "b.svg", "--kind", "gantt")[2]
    assert not Path("b.svg").exists()


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------

HARD = """
format = "gapless.sweep"
version = 1

[[grid]]
system = "cupcake"
profile = "profile.json"

[[grid]]
system = "monet"
graph = "resnet50"
batch = 184
budget = ["0.5x", "0.52x"]
gap = 0
time_limit = 60
"""
"""One that is solved at once, and two that the last word isn't said on within the limit."""


def at_work(folder: Path) -> subprocess.Popen[str]:
    """The sweep in a process, with the first instance solved and the second begun."""
    (folder / "grid.toml").write_text(HARD)
    process = subprocess.Popen(
        [sys.executable, "-m", "gapless", "sweep", "grid.toml", "-o", "out", "--threads", "1", "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert "1/3  cupcake: optimal" in first, first
    return process


@pytest.mark.thorough
def test_interrupt_keeps_results_and_incumbents_and_says_so(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    process = at_work(grid.parent)
    time.sleep(8)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the command and all that it started
    out, err = process.communicate(timeout=600)
    assert process.returncode == 4, err
    assert "stopping: results and the best plans so far are kept; the same command goes on" in err
    assert "1 of 3 instances have an answer, 1 interrupted, 1 not begun" in err
    assert "Traceback" not in err
    rows = json.loads(Path("out/summary.json").read_text())["rows"]
    assert [row["stop_reason"] for row in rows] == ["finished", "interrupted", None]
    assert [line.split()[3] for line in out.splitlines()[1:]] == ["optimal", "interrupted", "waiting"]
    for path in Path("out").glob("*.plan.json"):
        assert run(capsys, "check", str(path), "--quiet")[0] == 0
    listed = run(capsys, "sweep", "grid.toml", "-o", "out", "--dry-run", "--json")[1]
    assert [row["status"] == "waiting" for row in json.loads(listed)["rows"]][::2] == [False, True]


@pytest.mark.thorough
def test_second_interrupt_leaves_at_once_and_no_half_file(grid: Path) -> None:
    process = at_work(grid.parent)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    assert any("Ctrl-C again" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert "interrupted; no half-written file is left" in err
    assert "Traceback" not in err
    names = sorted(path.name for path in Path("out").iterdir())
    assert [re.sub(r"^[0-9a-f]{16}", "HASH", name) for name in names] == ["HASH.json", "HASH.plan.json"]
