"""Calls in a process of its own: whatever ends it, and whenever, the caller hears of it and waits for nothing."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from broken_work import is_deaf, prints, raises, sleeps, sleeps_then_sends, waits_for_stop
from spawned import PATIENCE_S, goes

from gapless.errors import GaplessError, InputError, OutOfMemoryError, SolverError
from gapless.processes.jobs import Job, Jobs
from gapless.processes.workers import Worker, call_in_worker

posix = pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")


def outcome(news: queue.SimpleQueue[Worker[bytes]], what: str) -> tuple[Worker[bytes], bytes | GaplessError]:
    try:
        worker = news.get(timeout=PATIENCE_S)
    except queue.Empty:
        pytest.fail(f"{what}: the worker neither answered nor ended within {PATIENCE_S:g} s")
    return worker, worker.outcome


@posix
@pytest.mark.thorough("200")
@pytest.mark.parametrize("count", [16, 200])
def test_workers_killed_at_random_moments_all_end(count: int) -> None:
    chance, ends = random.Random(13), {"answered": 0, "killed": 0}
    for round_number in range(count // 8):
        news: queue.SimpleQueue[Worker[bytes]] = queue.SimpleQueue()
        work = partial(sleeps_then_sends, sleep_s=0.02, size_bytes=chance.choice([0, 100_000, 20_000_000]))
        workers = [Worker(work, f"worker {number}", news) for number in range(8)]
        moments = sorted((chance.uniform(0.0, 0.5), worker) for worker in workers)
        begin_s = time.monotonic()
        for moment_s, worker in moments:
            time.sleep(max(begin_s + moment_s - time.monotonic(), 0.0))
            with suppress(ProcessLookupError):  # it has ended
                os.kill(worker.pid, signal.SIGKILL)
        for _ in workers:
            worker, found = outcome(news, f"round {round_number}")
            if isinstance(found, SolverError):
                assert str(found) == f"{worker.name}: its process crashed with exit code -9"
                ends["killed"] += 1
            else:
                assert found == bytes(len(found))  # type: ignore[arg-type]
                ends["answered"] += 1
    assert sum(ends.values()) == count
    assert min(ends.values()) > 0, ends


@posix
def test_jobs_killed_at_random_moments_are_outcomes_and_close_ends_the_rest() -> None:
    chance, jobs = random.Random(7), Jobs[str]()
    for place in range(6):
        jobs.start(Job(place, f"job {place}", waits_for_stop))
    workers = list(jobs._at_work)  # noqa: SLF001
    for worker in workers[:3]:
        time.sleep(chance.uniform(0.0, 0.1))
        os.kill(worker.pid, signal.SIGKILL)
    found: dict[int, str | GaplessError] = {}
    end_s = time.monotonic() + PATIENCE_S
    while len(found) < 3 and time.monotonic() < end_s:
        found.update(jobs.outcomes())
    assert sorted(found) == [0, 1, 2]
    jobs.close()
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def test_jobs_that_are_asked_to_stop_hand_over_what_they_have_and_deaf_ones_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.processes.jobs.STOP_S", 5.0)
    jobs: Jobs[str | None] = Jobs()
    jobs.start(Job(0, "good", waits_for_stop))
    jobs.start(Job(1, "deaf", is_deaf))
    jobs.stop()  # before they have come to life: the request waits for them
    found: dict[int, str | GaplessError | None] = {}
    while jobs.running:
        found.update(jobs.outcomes())
    assert found[0] == "stopped"
    assert str(found[1]) == "deaf: did not stop within 5 s, and was killed"


@posix
def test_a_stopped_process_keeps_nobody_waiting() -> None:
    news: queue.SimpleQueue[Worker[str]] = queue.SimpleQueue()
    worker = Worker(waits_for_stop, "frozen", news)
    os.kill(worker.pid, signal.SIGSTOP)  # hears nothing, reads nothing, ends nothing
    worker.stop()
    worker.kill()
    worker.join()
    assert isinstance(worker.outcome, SolverError)


def test_a_call_gives_its_value_and_may_print() -> None:
    assert call_in_worker(prints, 21) == 42


@posix
def test_a_call_is_killed_when_its_time_is_up_with_all_that_it_started(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        call_in_worker(sleeps, 600, str(path), limit_s=3.0)
    assert goes(int(path.read_text())), "what the call had started outlives it"


def test_a_call_ends_when_somebody_says_stop() -> None:
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    with pytest.raises(TimeoutError):
        call_in_worker(sleeps, 600, stop=stop)
    timer.join()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is Python's own, whatever this process was started with."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_call_says_stop(tmp_path: Path) -> None:
    stop, path = threading.Event(), tmp_path / "pid"

    def press_once_it_is_at_work() -> None:
        while not path.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    presser = threading.Thread(target=press_once_it_is_at_work)
    presser.start()
    with pytest.raises(TimeoutError):
        call_in_worker(sleeps, 600, str(path), stop=stop)
    presser.join()
    assert stop.is_set()


def test_what_goes_wrong_in_a_call_is_one_line_here() -> None:
    with pytest.raises(InputError, match=r"^--size: must be > 0, got 0$"):
        call_in_worker(raises, "input")
    with pytest.raises(MemoryError) as found:
        call_in_worker(raises, "memory")
    assert isinstance(found.value, OutOfMemoryError)
    with pytest.raises(SolverError, match=r"^raises: failed with KeyError: 'no such thing'$"):
        call_in_worker(raises, "other")
    with pytest.raises(SolverError, match=r"^raises: its process crashed with exit code 7$"):
        call_in_worker(raises, "exit")
    with pytest.raises(SolverError, match=r"^raises: its answer can't be sent: TypeError: "):
        call_in_worker(raises, "lock")


CALLER = """
import os, queue, sys
from broken_work import is_deaf
from gapless.processes.workers import Worker
worker = Worker(is_deaf, "left alone", queue.SimpleQueue())
print(worker.pid, flush=True)
sys.stdin.read(1)
os._exit(1)
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, None], ids=["killed", "left"])
def test_workers_end_with_their_caller(number: int | None) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": paths()}
    )
    assert caller.stdin is not None
    assert caller.stdout is not None
    worker = int(caller.stdout.readline())
    if number is None:
        caller.stdin.write(b"x")
    else:
        caller.send_signal(number)
    caller.communicate(timeout=PATIENCE_S)
    assert goes(worker), "the worker outlives its caller"


def paths() -> str:
    """Where the caller finds gapless and what it has done."""
    return os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")])


SCRIPT = """
from broken_work import prints
from gapless.processes.workers import call_in_worker
print(call_in_worker(prints, 1), "once")
"""


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        env={"PYTHONPATH": paths()},
    )  # fmt: skip
    assert done.stdout == "2 once\n"


def test_what_only_a_script_knows_cannot_be_handed_over(tmp_path: Path) -> None:
    text = "from gapless.processes.workers import call_in_worker\ndef mine(): pass\ncall_in_worker(mine)\n"
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={"PYTHONPATH": paths()},
    )  # fmt: skip
    assert "SolverError: what a process of its own is handed must come from a module that it can import" in done.stderr
