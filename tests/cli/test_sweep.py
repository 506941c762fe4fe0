"""`gapless sweep` on the command line: what it prints and writes, how it goes on, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from calls import run
from hand_training import chain
from powered_training import fast_or_frugal

from gapless.cli.main import main
from gapless.plot import plot_tradeoff
from gapless.profiles.training.graph_file import write_training_graph

ROOT = Path(__file__).resolve().parents[2]
VGG = ["sweep", "monet", "--graph", "vgg16", "--batch", "64", "--gap", "0.03", "--threads", "1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file `chain.json` and its sweep in `curve`."""
    folder = tmp_path_factory.mktemp("sweep")
    write_training_graph(folder / "chain.json", chain(6))
    (folder / "little.toml").write_text("least_budget_steps = 100\n")
    assert main([*sweep_of(folder), "--quiet"]) == 0
    return folder


def sweep_of(folder: Path) -> list[str]:
    """A budget that nothing fits in, one that costs something, and one that holds all."""
    arguments = ["sweep", "monet", "--graph", str(folder / "chain.json"), "--budgets", "20,45B,2.5x"]
    arguments += ["--parameters", str(folder / "little.toml")]
    return [*arguments, "--time-limit", "2", "-o", str(folder / "curve")]


def plans(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.plan.json"))


@pytest.mark.thorough
def test_json_holds_a_row_for_each_budget(capsys: pytest.CaptureFixture[str], made: Path) -> None:
    code, out, err = run(capsys, *sweep_of(made), "--json", "--quiet")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["problem"] == "monet"
    assert data["rows"][0]["status"] == "infeasible"
    assert [row["budget_bytes"] for row in data["rows"]][:2] == [20, 45]
    assert data["rows"][2]["memory_ratio"] == pytest.approx(2.5, abs=0.05)
    assert {"cost_s", "bound_s", "gap", "overhead", "peak_bytes", "solve_s", "plan"} <= set(data["rows"][1])
    assert Path(data["csv"]).exists()
    assert Path(data["json"]).exists()


@pytest.mark.thorough
def test_table_is_printed_and_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str], made: Path) -> None:
    code, out, err = run(capsys, *sweep_of(made))
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert re.match(r"budget +ratio +status +cost +bound +gap +overhead +peak +solved in", lines[0].strip())
    assert re.match(r"20 B +0\.\d+ +infeasible +- +- +- +- +-", lines[1].strip())
    assert "3/3  known from before" in err


def test_plans_of_a_sweep_are_shown_and_checked_as_any(capsys: pytest.CaptureFixture[str], made: Path) -> None:
    found = plans(made / "curve")
    assert len(found) == 2
    for path in found:
        assert run(capsys, "check", str(path))[0] == 0
        assert run(capsys, "show", str(path))[0] == 0


def test_energy_is_swept_in_joules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_training_graph(tmp_path / "graph.json", fast_or_frugal())
    arguments = ["sweep", "monet", "--graph", str(tmp_path / "graph.json"), "--objective", "energy"]
    arguments += ["--budgets", "1000B", "--time-limit", "2", "-o", str(tmp_path / "curve")]
    code, out, err = run(capsys, *arguments)
    assert code == 0
    head, line = out.splitlines()
    assert re.match(r"budget +ratio +status +time +energy +bound +gap +overhead +peak +solved in", head.strip())
    assert re.match(r"1 KB +\d+\.\d+ +optimal +8 s +160 J +160 J +0\.00 % +0\.00 % ", line.strip())
    assert re.search(r"1/1  1 KB: optimal +incumbent +160 J +bound +160 J", err)
    data = json.loads(run(capsys, *arguments, "--json", "--quiet")[1])
    assert (data["objective"], data["rows"][0]["energy_j"]) == ("energy", pytest.approx(160))


BAD_INPUT = [
    (["--budgets", "5GiB,"], r"--budgets: must be values with commas between them"),
    (["--budgets", "0x"], r"--budgets: must be a number > 0 and <= 1000, got '0'"),
    (["--budgets", "5GiB", "--workers", "9999"], r"threads x workers must be <= \d+, the number of cores"),
    (["--budgets", "5GiB", "--time-limit", "0"], r"--time-limit: must be a number > 0"),
    (["--budgets", "5GiB", "--device", "p101"], r"p101"),
    (["--budgets", "5GiB", "--objective", "joules"], r"--objective: must be one of time, energy, got 'joules'"),
    ([], r"required: --budgets"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=[message[:30] for _, message in BAD_INPUT])
def test_bad_input_gets_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *VGG, "-o", str(tmp_path / "curve"), "--quiet", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_nothing_found_within_the_limit_is_exit_code_4_and_tried_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["sweep", "monet", "--graph", "unet", "--batch", "4", "--budgets", "0.3x", "--time-limit", "0.001"]
    code, out, err = run(capsys, *arguments, "-o", str(tmp_path / "curve"), "--json", "--quiet")
    assert code == 4
    assert json.loads(out)["rows"][0]["status"] == "no_solution"
    assert "0 of 1 budgets have an answer" in err
    assert plans(tmp_path / "curve") == []


HARD = [*VGG[:-4], "--gap", "0", "--workers", "1", "--time-limit", "6"]
"""A budget that the last word isn't said on within the limit."""


def at_work(folder: Path) -> subprocess.Popen[str]:
    """A sweep of two budgets in a process, the smaller known and the larger begun."""
    command = [sys.executable, "-m", "gapless", *HARD, "--budgets", "0.6x,0.62x", "-o", str(folder)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert "1/2" in first, first
    return process


def statuses(out: str) -> list[str]:
    return [line.split()[3] for line in out.splitlines()[1:]]


@pytest.mark.thorough
def test_interrupt_hands_over_the_plans_at_work_and_the_same_command_goes_on_from_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "curve"
    assert run(capsys, *HARD, "--budgets", "0.6x", "-o", str(folder), "--quiet")[0] == 0
    (done,) = plans(folder)
    process = at_work(folder)
    time.sleep(3)
    os.killpg(process.pid, signal.SIGTERM)  # as systems that shut down do: the command and all that it started
    out, err = process.communicate(timeout=600)
    assert process.returncode == 4, err
    assert "stopping with the best plans so far; the same command goes on from them" in err
    assert re.search(r"2/2 .*: interrupted", err)
    assert "1 of 2 budgets have an answer" in err
    assert "Traceback" not in err
    assert statuses(out) == ["feasible", "interrupted"]
    assert json.loads((folder / "summary.json").read_text())[1]["stop_reason"] == "interrupted"
    for path in plans(folder):  # the interrupted one has a plan if it had found any by then
        assert run(capsys, "check", str(path), "--quiet")[0] == 0
    code, out, _ = run(capsys, *HARD, "--budgets", "0.6x,0.62x", "-o", str(folder))
    assert code == 0
    assert "interrupted" not in out
    assert len(plans(folder)) == 2
    assert done in plans(folder)


@pytest.mark.thorough
def test_second_interrupt_leaves_at_once_and_no_half_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "curve"
    assert run(capsys, *HARD, "--budgets", "0.6x", "-o", str(folder), "--quiet")[0] == 0
    done = plans(folder)
    process = at_work(folder)
    time.sleep(0.3)  # its worker is there by now, and far from listening
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    assert any("Ctrl-C again" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert "interrupted; no half-written file is left" in err
    assert "Traceback" not in err
    assert plans(folder) == done


def test_plot_without_matplotlib_is_refused_before_anything_is_solved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else real(name))
    arguments = [*VGG, "--budgets", "0.5x", "-o", str(tmp_path / "curve"), "--plot", str(tmp_path / "curve.png")]
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err == (
        "gapless: error: plotting needs matplotlib, which is not installed; pip install '.[plot]' in a checkout\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_plot_is_written_in_the_kind_that_its_ending_names(
    capsys: pytest.CaptureFixture[str], made: Path, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"curve.{kind}"
    assert run(capsys, *sweep_of(made), "--quiet", "--plot", str(path))[0] == 0
    assert path.read_bytes()[:5] in (b"%PDF-", b"\x89PNG\r", b"<?xml")


def test_plot_file_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str], made: Path) -> None:
    code, _, err = run(capsys, *sweep_of(made), "--plot", "curve.txt")
    assert code == 2
    assert "must end in .pdf, .png or .svg, got 'curve.txt'" in err


class Axes:
    """Notes the lines that are drawn, and takes every other call."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[list[float], list[float]]] = {}
        self.titles: list[str] = []

    def set_ylabel(self, title: str) -> None:
        self.titles.append(title)

    def plot(self, x: list[float], y: list[float], style: str, label: str) -> None:
        self.lines[label] = (x, y)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


def test_plot_draws_plans_and_bounds_by_memory_ratio_in_percent_and_skips_what_is_unknown() -> None:
    rows: list[Any] = [
        SimpleNamespace(method="auto", memory_ratio=0.8, overhead=0.0, overhead_bound=0.0),
        SimpleNamespace(method="auto", memory_ratio=0.4, overhead=None, overhead_bound=None),
        SimpleNamespace(method="auto", memory_ratio=0.6, overhead=0.05, overhead_bound=0.04),
    ]
    axes = Axes()
    assert plot_tradeoff(rows, axes, "energy") is axes
    assert axes.titles == ["energy overhead (%)"]
    assert axes.lines == {"plan": ([0.6, 0.8], [5.0, 0.0]), "lower bound": ([0.6, 0.8], [4.0, 0.0])}
