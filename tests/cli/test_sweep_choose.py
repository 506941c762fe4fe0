"""`gapless sweep FILE --choose` on the command line: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from calls import run
from noisy_configurations import FILE, write_files
from spawned import ended, spawn

CHOOSE = ("sweep", "measure.toml", "--choose", "max:throughput", "--subject-to", "memory<=1MiB", "-o", "out")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one, with a program and a measure file."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_the_answer_is_a_table_and_sentences_and_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *CHOOSE)
    assert code == 0
    lines = out.splitlines()
    assert " ".join(lines[0].split()) == "speed memory runs throughput (queries/s) memory on the front standing"
    assert [line.split()[-1] for line in lines[1:5]] == ["worse", "chosen", "worse", "infeasible"]
    assert lines[5:] == [
        "",
        "max:throughput subject to memory<=1MiB: 8 runs, 8 of them new",
        "chosen: speed=900 memory=900",
        "likelihood that it is the best: 100.0 %",
        "all others are ruled out, with 95 % confidence together",
    ]
    assert "1/12  speed=" in err
    assert "incumbent" not in err


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *CHOOSE, "--json", "--quiet")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["chosen"]["fields"] == {"speed": 900, "memory": 900}
    assert (data["status"], data["stop_reason"], data["gap"], data["not_ruled_out"]) == (
        "decided",
        "finished",
        0.0,
        [],
    )
    assert json.loads(Path(data["json"]).read_text())["rows"] == data["rows"]
    assert Path(data["csv"]).exists()


def test_what_is_not_ruled_out_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("measure.toml").write_text(
        FILE.replace("speed = [100, 900]", "speed = [900, 900.1]").replace("budget = 12", "budget = 10")
    )
    code, out, _ = run(capsys, *CHOOSE, "--quiet")
    assert (code, out) == (0, "")
    code, out, _ = run(capsys, *CHOOSE)
    assert code == 0
    assert "; the budget of runs is used up" in out
    assert "not ruled out, with 95 % confidence (better by at most " in out
    assert sum(line.endswith("not ruled out") for line in out.splitlines()) == 1


def test_a_dry_run_lists_configurations_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CHOOSE, "--dry-run")
    assert (code, Path("out").exists()) == (0, False)
    assert [line.split()[1:] for line in out.splitlines()[1:3]] == [
        ["0", "speed=100", "memory=900"],
        ["0", "speed=900", "memory=900"],
    ]
    run(capsys, *CHOOSE, "--quiet")
    rows = json.loads(run(capsys, *CHOOSE, "--dry-run", "--json")[1])["rows"]
    assert [row["repeats"] for row in rows] == [2, 2, 2, 2]


def test_limits_that_none_keeps_end_with_3_and_failures_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CHOOSE[:-3], "memory<=1KiB", "-o", "out")
    assert code == 3
    assert out.splitlines()[-1] == "every configuration breaks a limit, with 95 % confidence"
    Path("noisy.py").write_text("import nothing_of_this_name")
    code, out, err = run(capsys, *CHOOSE)
    assert code == 4
    assert out.splitlines()[-1] == "no configuration is known to keep the limits"
    assert "gapless: speed=100 memory=900: it ended with exit code 1: ModuleNotFoundError: No module named 'not" in err


BAD = [
    (CHOOSE[:2], "--choose: must be given with measured commands: max:METRIC or min:METRIC, of throughput, memory"),
    ((*CHOOSE, "--subject-to", "memory<1"), "--subject-to: must be METRIC<=VALUE or METRIC>=VALUE, got 'memory<1'"),
    ((*CHOOSE, "--engine", "slurm"), "--engine: does not go with measured commands, which run here, one at a time"),
    ((*CHOOSE, "--threads", "2"), "--threads: does not go with measured commands"),
    ((*CHOOSE, "--engine-option", "a=b"), "--engine-option: does not go with measured commands"),
    ((*CHOOSE, "--workers", "9999"), "--workers: must be <= "),
    (("sweep", "none.toml", "--choose", "max:rate"), "cannot read none.toml: No such file"),
    (("sweep", "grid.toml", "--choose", "max:rate"), '--choose: goes with a file of measured commands (format = "gap'),
    (("sweep", "grid.toml", "--subject-to", "rate<=1"), "--subject-to: goes with a file of measured commands"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_gets_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    Path("grid.toml").write_text('format = "gapless.sweep"\nversion = 1\n[[grid]]\nsystem = "monet"\n')
    code, out, err = run(capsys, *arguments, "-o", "out")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not Path("out").exists()


def test_the_table_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CHOOSE, "--quiet")
    assert run(capsys, "plot", "out/summary.json", "-o", "front.svg") == (
        0,
        "front.svg: front of 4 configurations\n",
        "",
    )
    text = Path("front.svg").read_text()
    for label in (
        "throughput (queries/s)",
        "memory (MB)",
        "chosen",
        "breaks a limit",
        "limit of memory",
        "on the front",
    ):
        assert label in text
    code, _, err = run(capsys, "plot", "out/summary.json", "-o", "b.svg", "--x", "recall")
    assert (code, err) == (2, "gapless: error: --x: must be a metric, one of throughput, memory, got 'recall'\n")
    assert (
        "--x: must be another metric than --y"
        in run(capsys, "plot", "out/summary.json", "-o", "b.svg", "--x", "memory", "--y", "memory")[2]
    )
    assert not Path("b.svg").exists()


@pytest.mark.thorough("SIGINT")
@pytest.mark.skipif(os.name != "posix", reason="sends signals to a process group")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_keeps_what_is_measured_and_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str], folder: Path, number: signal.Signals
) -> None:
    program = (folder / "noisy.py").read_text()
    (folder / "wait.py").write_text(f"import os, time\nif os.path.exists('{folder}/hang'): time.sleep(600)\n{program}")
    (folder / "measure.toml").write_text(FILE.replace("noisy.py", f"{folder}/wait.py"))
    arguments = ("sweep", f"{folder}/measure.toml", *CHOOSE[2:-1], f"{folder}/out")
    process = spawn(*arguments)
    assert process.stderr is not None
    assert "1/12  " in process.stderr.readline()
    (folder / "hang").touch()
    os.killpg(process.pid, number)
    found = ended(process)
    assert found.code == 4, found.err
    assert "stopping: measurements are kept; the same command goes on" in found.err
    assert "; it was stopped" in found.out
    (folder / "hang").unlink()
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "8 runs, 8 of them new" not in out
