"""Choosing among commands that are run: what is measured stays, and failures, time-outs and stops are answers."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from noisy_configurations import FILE, write_files

from gapless.errors import InputError
from gapless.sweeps.measured import Answer, choose, read_measure_file, read_question
from gapless.sweeps.measured.commands import Stopped, measured
from gapless.sweeps.measured.measure_file import Metric

RATE = [Metric("rate", "rate", "", 1.0)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one, with a program and a measure file."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def asked(limits: tuple[str, ...] = ("memory<=1MiB",), workers: int = 1, stop: threading.Event | None = None) -> Answer:
    file = read_measure_file("measure.toml")
    return choose(file, read_question(file.metrics, "max:throughput", limits), "out", workers, stop=stop)


def test_the_best_that_keeps_the_limit_is_chosen_and_the_table_says_why() -> None:
    answer = asked()
    assert [row["standing"] for row in answer.rows] == ["worse", "chosen", "worse", "infeasible"]
    assert (answer.verdict.status, answer.new_runs) == ("decided", 8)
    row = answer.rows[1]
    assert row["metrics"]["memory"] == {"mean": 900 * 1024, "low": 900 * 1024, "high": 900 * 1024}
    assert row["metrics"]["throughput"]["low"] < 900 < row["metrics"]["throughput"]["high"]
    table = json.loads(Path("out/summary.json").read_text())
    assert table["rows"] == answer.rows
    assert table["answer"]["chosen"] == {"hash": row["hash"], "fields": {"speed": 900, "memory": 900}}
    head, *lines = Path("out/summary.csv").read_text().splitlines()
    assert head.startswith("hash,fields.speed,fields.memory,standing,repeats,throughput.mean,throughput.low")
    assert len(lines) == 4


def test_what_is_known_is_not_measured_again_and_the_answer_is_the_same() -> None:
    first, again = asked(), asked()
    assert (again.new_runs, again.rows) == (0, first.rows)
    other = asked(())
    assert other.new_runs < other.data["runs"]


def test_half_a_line_of_a_killed_process_is_measured_again() -> None:
    asked()
    log = Path("out/measurements.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    assert asked().new_runs == 1
    assert sorted(log.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_a_log_of_another_machine_or_no_log_is_refused() -> None:
    asked()
    log = Path("out/measurements.jsonl")
    head, _, rest = log.read_text().partition("\n")
    log.write_text(json.dumps({**json.loads(head), "machine": "another"}) + "\n" + rest)
    with pytest.raises(InputError, match="measurements of two machines don't mix; choose another folder"):
        asked()
    log.write_text("{}\n")
    with pytest.raises(InputError, match="line 1: field 'format' is missing"):
        asked()
    log.write_text(head + "\nno line\n")
    with pytest.raises(InputError, match="line 2: not JSON"):
        asked()


def test_a_new_metric_or_a_changed_program_is_measured_anew() -> None:
    assert asked().new_runs == 8
    Path("measure.toml").write_text(FILE.replace("[runs]", 'other = { path = "rate" }\n[runs]'))
    assert asked().new_runs == 8


def test_a_configuration_that_fails_is_out_and_tried_again_next_time() -> None:
    Path("measure.toml").write_text(FILE.replace("speed = [100, 900]", 'speed = [100, "fast"]'))
    for _ in range(2):
        answer = asked()
        assert answer.rows[1]["standing"] == "failed"
        assert answer.rows[1]["error"].startswith("it ended with exit code 1: ValueError: could not convert")
        assert answer.data["chosen"]["fields"] == {"speed": 500, "memory": 1000}
        assert answer.new_runs >= 2


def test_several_at_once_give_the_same_measurements() -> None:
    alone = asked()
    Path("out/measurements.jsonl").unlink()
    assert asked(workers=2).rows == alone.rows


def test_a_stop_keeps_what_is_measured() -> None:
    stop = threading.Event()
    file = read_measure_file("measure.toml")
    question = read_question(file.metrics, "max:throughput")
    first = choose(file, question, "out", on_progress=lambda progress: stop.set(), stop=stop)
    assert first.race.stop_reason == "interrupted"
    assert 1 <= first.new_runs < 8  # the next run begins before the news of the last one is heard
    again = choose(file, question, "out")
    assert (again.race.stop_reason, again.verdict.chosen) == ("finished", 1)
    assert again.new_runs == again.data["runs"] - first.new_runs


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


OUTCOMES = [
    ("print('[1, 2]')", "metric 'rate': the JSON has nothing at 'rate'"),
    ("print('no JSON')", "must print JSON, at least as its last line, got 'no JSON'"),
    ("", "must print JSON, at least as its last line, got ''"),
    ("import sys; sys.exit(3)", "it ended with exit code 3: nothing on stderr says why"),
    ("print('[' * 100000)", "must print JSON"),
    ("import os; os.kill(os.getpid(), 9)", "it ended with exit code -9"),
]


@pytest.mark.parametrize(("program", "message"), OUTCOMES, ids=[message[:40] for _, message in OUTCOMES])
def test_a_run_without_its_numbers_says_why(program: str, message: str) -> None:
    found = measured(python(program), RATE, 60.0, threading.Event())
    assert isinstance(found, str)
    assert found.startswith(message)


def test_json_over_several_lines_or_in_the_last_one_is_read() -> None:
    for program in ("print('{\\n\"rate\":\\n 3}')", "print('hello'); print('{\"rate\": 3}'); print()"):
        found = measured(python(program), RATE, 60.0, threading.Event())
        assert not isinstance(found, str)
        assert found.tolist() == [3.0]


def test_a_program_that_is_not_there_is_a_failure() -> None:
    found = measured(["./no-such-program"], RATE, 60.0, threading.Event())
    assert found == "cannot run './no-such-program': No such file or directory"


def test_a_run_that_takes_too_long_is_killed_with_all_that_it_started() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    assert (
        measured(python(program), RATE, 0.3, threading.Event())
        == "it took longer than time_out_s, 0.3 s, and was killed"
    )


def test_a_run_is_killed_once_somebody_says_stop() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        measured(python("import time; time.sleep(600)"), RATE, 600.0, stop)
