"""INT, TERM and HUP before, in and after the search; disks and memories that are full."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from calls import run
from extras import needs_torch
from spawned import PATIENCE_S, children, ended, goes, hears, signalled, spawn

from gapless.anytime.incumbents import Incumbents
from gapless.checker import check
from gapless.cli import commands
from gapless.errors import OutOfMemoryError
from gapless.io import atomic
from gapless.io.plan import read_plan
from gapless.result import Result

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals to a process group")

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
FUSE = ("solve", "cupcake", "--profile", "resnet101")
DEAF = ("solve", "cupcake", "--profile", "resnet101", "--method", "milp")
"""HiGHS works for some seconds, and hears nothing for half a second and more."""

QUESTIONS = {
    "monet": (("--graph", "vgg16", "--batch", "176", "--budget", "7GiB", "--time-limit", "5"), "plan.json", 6.0),
    "taccl": (("--topology", "dgx2", "--nodes", "2", "--size", "1GB", "--time-limit", "4"), "plan.json", 6.0),
    "oktopk": (("--indices", "clustered:elements=400000,steps=12", "--ranks", "32"), "plan.json", 6.0),
    "cupcake": (("--profile", "gpt2", "--method", "milp", "--time-limit", "3"), "plan.json", 4.0),
    "chai": (
        ("--profile", "synthetic:layers=8,heads=32", "--kv-saving", "0.25", "--time-limit", "4"),
        "plan.json",
        4.0,
    ),
    "pipeline": (
        (
            "--profile",
            "uniform:f=10,b=12,w=8",
            "--ranks",
            "8",
            "--micro-batches",
            "24",
            "--in-flight",
            "9",
            "--hop",
            "2",
            "--time-limit",
            "4",
        ),
        "plan.json",
        5.0,
    ),
    "sharding": (("--instance", "drawn:nodes=400,choices=8", "--time-limit", "5"), "plan.json", 6.0),
    "bagpipe": (
        ("--trace", "criteo-like", "--trainers", "4", "--batch-size", "4096", "--batches", "30"),
        "plan.npz",
        8.0,
    ),
}
"""A question to each system, the name of its plan, and how long it takes."""


def begun(*arguments: str) -> subprocess.Popen[str]:
    """The command once it has reported its first plan."""
    process = spawn(*arguments)
    assert process.stderr is not None
    assert "baselines" in process.stderr.readline()
    return process


@pytest.mark.thorough("SIGHUP")
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_the_first_signal_stops_with_the_best_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, number: signal.Signals
) -> None:
    plan = tmp_path / "plan.json"
    process = begun(*DEAF, "-o", str(plan))
    os.killpg(process.pid, number)
    found = ended(process)
    assert found.code == 0, found.err
    assert "stopping with the best plan so far" in found.err
    assert "Traceback" not in found.err
    assert list(tmp_path.iterdir()) == [plan]
    assert run(capsys, "check", str(plan))[0] == 0
    assert json.loads(plan.read_text())["claim"]["stop_reason"] == "interrupted"


@pytest.mark.thorough("1-15", "15-1")
@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)],
)
def test_the_second_signal_leaves_at_once(tmp_path: Path, first: int, second: int) -> None:
    process = begun(*DEAF, "-o", str(tmp_path / "plan.json"))
    os.killpg(process.pid, first)
    assert process.stderr is not None
    assert "again" in process.stderr.readline() if first == signal.SIGINT else process.stderr.readline()
    os.killpg(process.pid, second)
    found = ended(process)
    assert (found.code, found.err) == (128 + second, "gapless: interrupted; no half-written file is left\n")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_that_is_left_at_once_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        'format = "gapless.sweep"\nversion = 1\n[[grid]]\nsystem = "cupcake"\nprofile = "gpt2"\nmethod = "milp"\n'
    )
    process = spawn("sweep", str(tmp_path / "grid.toml"), "-o", str(tmp_path / "results"))
    while not (workers := children(process.pid)):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    assert process.stderr is not None
    assert "stopping: results and the best plans so far are kept" in process.stderr.readline()
    os.kill(process.pid, signal.SIGTERM)
    assert ended(process).code == 128 + signal.SIGTERM
    assert all(goes(worker) for worker in workers)


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what is spawned inherits it, as below nohup
    try:
        process = spawn(*FUSE, "-o", str(tmp_path / "plan.json"))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert hears(process)
    os.killpg(process.pid, signal.SIGHUP)
    found = ended(process)
    assert found.code == 0, found.err
    assert "stopping" not in found.err


def test_a_terminal_that_is_closed_loses_no_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    terminal, end = os.openpty()
    with os.fdopen(end, "w") as screen:
        process = spawn(*DEAF, "-o", str(plan), stdout=screen, stderr=screen)
    while b"baselines" not in os.read(terminal, 1000):
        pass
    os.close(terminal)
    os.killpg(process.pid, signal.SIGHUP)
    assert ended(process).code == 0
    assert run(capsys, "check", str(plan))[0] == 0


@pytest.mark.thorough(
    but=(
        "0.7-chai",
        "0.7-monet",
    )
)
@pytest.mark.parametrize("system", QUESTIONS)
@pytest.mark.parametrize("moment", [0.1, 0.7])
def test_term_at_any_moment_leaves_a_plan_or_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, system: str, moment: float
) -> None:
    is_plan_or_line(capsys, tmp_path, system, signal.SIGTERM, moment)


@pytest.mark.thorough
@pytest.mark.parametrize("system", QUESTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_signals_at_random_moments_leave_a_plan_or_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, system: str, seed: int
) -> None:
    chance = random.Random(f"{system} {seed}")
    is_plan_or_line(capsys, tmp_path, system, chance.choice(NUMBERS), chance.random())


def is_plan_or_line(
    capsys: pytest.CaptureFixture[str], folder: Path, system: str, number: signal.Signals, moment: float
) -> None:
    """A signal at a moment of a solve, as a share of its time: what is left and said."""
    question, name, duration_s = QUESTIONS[system]
    plan = folder / name
    found = signalled(number, moment * duration_s, "solve", system, *question, "-o", str(plan))
    assert "Traceback" not in found.err
    assert list(folder.iterdir()) == ([plan] if found.code == 0 else [])
    if found.code == 0:
        assert run(capsys, "check", str(plan))[0] == 0
    elif found.code == 4:
        assert "gapless: no plan: no solution; it was interrupted" in found.err
    else:
        assert (found.code, found.err) == (128 + number, "gapless: interrupted; no half-written file is left\n")


MODEL = """
from torch import nn, randn

def plain():
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers), (randn(4096, 64),), lambda found: found.sum(), ()
"""


@pytest.mark.thorough("sweep", "run", "2.0")
@pytest.mark.parametrize("moment", [0.3, 2.0])
@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("advise compression --profile gpt2 --ranks 64 --bandwidth 10Gbps --latency 10us", signal.SIGTERM),
        ("sweep monet --graph vgg16 --batch 176 --budgets 7GiB,8GiB --time-limit 5 -o out", signal.SIGHUP),
        ("sweep taccl --topology ndv2 --nodes 2 --sizes 1KB,64KB --time-limit 5 -o out", signal.SIGINT),
        pytest.param("run monet --model MODEL:plain --budget 0.7x --steps 1", signal.SIGTERM, marks=needs_torch),
    ],
)
def test_other_commands_that_search_take_the_same_path(
    tmp_path: Path, words: str, number: signal.Signals, moment: float
) -> None:
    if words.startswith("run"):
        (tmp_path / "model.py").write_text(MODEL)
        words = words.replace("MODEL", str(tmp_path / "model.py"))
    found = signalled(number, moment, *words.replace("-o out", f"-o {tmp_path / 'out'}").split())
    assert "Traceback" not in found.err
    is_left = (found.code, found.err) == (128 + number, "gapless: interrupted; no half-written file is left\n")
    assert is_left or found.code in (0, 4), found
    assert is_left or found.code == 0 or "leaves at once" in found.err, found
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.thorough(but=("check", "report"))
@pytest.mark.parametrize(
    "words",
    ["check PLAN", "show PLAN", "list sketches", "export PLAN --format perfetto -o trace.json"],
)
def test_commands_without_a_search_leave_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str
) -> None:
    plan = tmp_path / "plan.json"
    assert run(capsys, *FUSE, "-o", str(plan))[0] == 0
    arguments = [word.replace("PLAN", str(plan)) for word in words.split()]
    if "-o" in arguments:
        arguments[-1] = str(tmp_path / arguments[-1])
    for number, after_s in zip(NUMBERS, (0.0, 0.1, 0.3), strict=True):
        found = signalled(number, after_s, *arguments)
        is_done = found.code == 0 and "interrupted" not in found.err
        is_left = (found.code, found.err) == (128 + number, "gapless: interrupted; no half-written file is left\n")
        assert is_done or is_left, found
        assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.thorough("report")
@pytest.mark.parametrize("words", ["report PLAN -o report.html", "plot PLAN -o plan.svg"])
def test_pages_and_pictures_leave_out_what_is_not_finished(tmp_path: Path, words: str) -> None:
    plan = tmp_path / "plan.json"
    assert ended(spawn(*FUSE, "-o", str(plan))).code == 0
    arguments = [word.replace("PLAN", str(plan)) for word in words.split()]
    arguments[-1] = str(tmp_path / arguments[-1])
    for number, after_s in zip(NUMBERS, (0.0, 0.1, 0.3), strict=True):
        found = signalled(number, after_s, *arguments)
        is_left = (found.code, found.err) == (128 + number, "gapless: interrupted; no half-written file is left\n")
        assert is_left or found.code in (0, 4), found
        assert found.code != 4 or "leaves at once" in found.err, found
        assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_time_limit_holds_for_a_solver_that_does_not_listen(tmp_path: Path) -> None:
    process = begun(*DEAF, "--time-limit", "1", "--json", "-o", str(tmp_path / "plan.json"))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out)["stop_reason"] == "time_limit"


def test_a_signal_while_the_plan_is_written_waits_for_it(
    heard: None, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Result.save

    def interrupted(result: Result, path: str) -> None:
        signal.raise_signal(signal.SIGTERM)
        write(result, path)

    monkeypatch.setattr(Result, "save", interrupted)
    code, _, err = run(capfd, *FUSE, "-o", str(tmp_path / "plan.json"))
    assert code == 0
    assert "writing what was found; a second signal leaves at once" in err
    assert run(capfd, "check", str(tmp_path / "plan.json"))[0] == 0


def test_a_command_that_a_program_calls_leaves_its_signals_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "build_parser", interrupted)
    assert run(capsys, *FUSE) == (130, "", "gapless: interrupted; no half-written file is left\n")


# -- full disks and memories -------------------------------------------------------------------------------------------


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on a disk that is full by the time that something is written; the temporary folder is on another."""
    folder, elsewhere = tmp_path / "full", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    open_file = Path.open

    class Half(io.FileIO):
        def writelines(self, pieces: Iterable[bytes]) -> None:
            self.write(next(iter(pieces))[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.name))

    def opened(path: Path, mode: str = "r", *how: Any, **named: Any) -> Any:
        is_written = path.parent == folder and "b" in mode and "r" not in mode
        return Half(path, mode.replace("b", "")) if is_written else open_file(path, mode, *how, **named)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(atomic.tempfile, "tempdir", str(elsewhere))
    return folder


def test_a_disk_that_is_full_at_the_end_loses_no_plan(capsys: pytest.CaptureFixture[str], full: Path) -> None:
    code, out, err = run(capsys, *FUSE, "--json", "-o", str(full / "plan.json"))
    where = json.loads(out)["plan"]
    assert Path(where).is_relative_to(full.parent / "elsewhere")
    assert f"error: cannot write {full / 'plan.json'}: No space left on device; it is in {where}\n" in err
    assert code == 2
    assert list(full.iterdir()) == []
    assert run(capsys, "check", where)[0] == 0


def test_where_no_disk_has_room_the_first_one_is_named(
    capsys: pytest.CaptureFixture[str], full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic.tempfile, "mkdtemp", lambda prefix: str(full))
    code, _, err = run(capsys, *FUSE, "--quiet", "-o", str(full / "plan.json"))
    assert (code, list(full.iterdir())) == (2, [])
    assert err == (f"gapless: error: cannot write {full / 'plan.json'}: No space left on device; choose another path\n")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), OutOfMemoryError("a worker: out of memory"), RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_too_little_memory_is_one_line_that_says_what_needs_less(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*anything: object) -> None:
        raise error

    monkeypatch.setattr("gapless.encodings.cupcake.methods.in_order.solve_joint", fails)
    code, out, err = run(capsys, *FUSE, "--json")
    assert (code, json.loads(out)["stop_reason"]) == (0, "out_of_memory"), "the best baseline had been offered by then"
    assert "gapless: out of memory; less is needed with a smaller most_labels in --parameters\n" in err
    monkeypatch.setattr("gapless.encodings.cupcake.solve.baselines_of", fails)
    code, _, err = run(capsys, *FUSE, "--quiet")
    assert code == 4
    assert err == (
        "gapless: no plan: no solution; memory ran out\n"
        "gapless: out of memory; less is needed with a smaller most_labels in --parameters\n"
    )
    monkeypatch.setattr(commands, "build_parser", fails)
    assert run(capsys, *FUSE) == (
        4, "", "gapless: error: out of memory; less is needed with --threads 1, or with a smaller question\n"
    )  # fmt: skip


class Prompt(Incumbents[Result]):
    """Keeps every better plan before the solve goes on."""

    def __init__(self, keep: Callable[[Result], None] | None, interval_s: float) -> None:
        super().__init__(keep, 0.0)

    def offer(self, cost: float, make: Callable[[], Result]) -> None:
        super().offer(cost, make)
        end_s = time.monotonic() + PATIENCE_S
        while self._kept_cost > self._cost:
            assert time.monotonic() < end_s, "a plan that was offered is not kept"
            time.sleep(0.001)


@pytest.mark.thorough("taccl", "cupcake")
@pytest.mark.parametrize("system", ["cupcake", "monet", "taccl"])
def test_a_long_solve_leaves_its_best_plan_so_far_where_the_last_one_is_to_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    question, name, _ = QUESTIONS[system]
    written: list[float] = []
    save = Result.save

    def noted(result: Result, path: str) -> None:
        save(result, path)
        assert check(read_plan(path).schedule).valid
        written.append(result.solution.objective or 0.0)

    monkeypatch.setattr("gapless.recipe.Incumbents", Prompt)
    monkeypatch.setattr(Result, "save", noted)
    assert run(capsys, "solve", system, *question, "--quiet", "-o", str(tmp_path / name))[0] == 0
    assert len(written) > 1
    assert written == sorted(written, reverse=True)
