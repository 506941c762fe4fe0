"""Measure files: what they say, and what is wrong in one line that names the field."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from noisy_configurations import FILE, write_files

from gapless.errors import InputError
from gapless.sweeps.measured import read_measure_file
from gapless.sweeps.measured.measure_file import Metric, Runs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one, with a program and a measure file."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def test_configurations_are_the_combinations_and_commands_have_their_values_and_seeds() -> None:
    file = read_measure_file("measure.toml")
    titles = ["speed=100 memory=900", "speed=900 memory=900", "speed=500 memory=1000", "speed=500 memory=2000"]
    assert [one.title for one in file.configurations] == titles
    assert file.configurations[1].command(7) == [sys.executable, "noisy.py", "900", "900", "7"]
    assert (file.runs, file.time_out_s, file.seed, file.confidence) == (Runs(2, 4, 12), 600.0, 0, 0.95)


def test_left_out_counts_are_four_eight_times_and_all() -> None:
    Path("measure.toml").write_text(FILE.replace("first = 2\nmost = 4\nbudget = 12", ""))
    runs = read_measure_file("measure.toml").runs
    assert (runs, runs.rounds) == (Runs(4, 32, 128), 4)
    assert [runs.repeats(number) for number in range(4)] == [4, 8, 16, 32]


def test_the_rounds_reach_a_most_that_is_no_doubling() -> None:
    assert [Runs(3, 10, 99).repeats(number) for number in range(Runs(3, 10, 99).rounds)] == [3, 6, 10]


def test_toml_and_json_are_the_same_and_words_with_blanks_stay_one() -> None:
    command = '{python} noisy.py "{speed}" {memory} {seed}'
    grid = {"speed": ["a b", "c"], "memory": True}
    data = {
        "format": "gapless.measure", "version": 1, "command": command, "metrics": {"rate": {"path": "rate"}},
        "grid": [grid],
    }  # fmt: skip
    Path("a.json").write_text(json.dumps(data))
    assert [one.command(0)[2:4] for one in read_measure_file("a.json").configurations] == [
        ["a b", "true"],
        ["c", "true"],
    ]


def test_the_hash_changes_with_the_files_that_the_command_names_and_with_the_metrics() -> None:
    def hashes(text: str = FILE) -> list[str]:
        Path("measure.toml").write_text(text)
        return [one.hash for one in read_measure_file("measure.toml").configurations]

    before = hashes()
    assert hashes(FILE.replace("budget = 12", "budget = 11")) == before
    assert set(hashes(FILE.replace('"rate"', '"speed"'))).isdisjoint(before)
    Path("noisy.py").write_text("print(1)")
    assert set(hashes()).isdisjoint(before)


def test_values_are_kept_in_bytes_and_seconds_and_other_units_are_names() -> None:
    text = FILE.replace('unit = "queries/s"', 'unit = "ms"')
    Path("measure.toml").write_text(text)
    assert [(one.unit, one.scale) for one in read_measure_file("measure.toml").metrics] == [
        ("s", 1e-3),
        ("bytes", 1024),
    ]
    Path("measure.toml").write_text(FILE)
    assert read_measure_file("measure.toml").metrics[0] == Metric("throughput", "rate", "queries/s", 1.0)


def test_a_metric_is_found_along_its_path() -> None:
    data = {"runs": [{"time": 2}, {"time": 3.5}]}
    assert Metric("t", "runs.1.time", "s", 1e-3).of(data) == pytest.approx(0.0035)
    for path, message in [
        ("runs.2.time", "the JSON has nothing at 'runs.2.time'; it lacks '2'"),
        ("runs.0", "must be a finite number at 'runs.0', got {\"time\": 2}"),
        ("time", "it lacks 'time'"),
    ]:
        with pytest.raises(InputError) as raised:
            Metric("t", path, "", 1.0).of(data)
        assert message in str(raised.value)
    for value in ("2", True, None, float("nan"), 10**400):
        with pytest.raises(InputError, match="must be a finite number at 'a'"):
            Metric("t", "a", "", 1.0).of({"a": value})


BAD = [
    ('format = "gapless.measure"', "", "measure.toml: field 'format' is missing"),
    ("gapless.measure", "gapless.sweep", "this is a sweep, which sweep takes"),
    ("version = 1", "version = 2", "version: must be 1, got 2"),
    ("{python} noisy.py", "'{python} noisy.py", "command: must be a command as one types it, with quotation"),
    ("{python} noisy.py", "no-such-program", "command: must be a program that can be run, with its argum"),
    ("{speed}", "{sped}", "grid[0]: field 'sped' is missing: the command has {sped}; did you mean 'speed'?"),
    ("{speed}", "5", "grid[0]: field 'speed' is unknown: the command has no {speed}; add it to the command"),
    ("speed = [100, 900]", "speed = []", "speed: must be a text, a finite number, true or false, or a list"),
    ("speed = [100, 900]", "speed = [[1]]", "speed: must be a text, a finite number, true or false, or a list"),
    ("speed = [100, 900]", "speed = inf", "speed: must be a text, a finite number"),
    ("first = 2", "first = 1", "runs: first: must be a whole number in 2..100000, got 1"),
    ("most = 4", "most = 1", "runs: most: must be a whole number in 2..100000, got 1"),
    ("budget = 12", "budget = 7", "budget: must be >= 8, the first 2 runs of each of 4 configurations, got 7"),
    ("budget = 12", "bugdet = 12", "field 'bugdet' is unknown; did you mean 'budget'?"),
    ("[runs]", "[rnus]", "field 'rnus' is unknown; did you mean 'runs'?"),
    ('path = "rate", ', "", "metrics: throughput: field 'path' is missing"),
    ('path = "rate", ', 'path = "rate", scale = 3, ', "throughput: field 'scale' is unknown"),
    ("throughput =", '"a b" =', "a metric's name must be letters, digits and _, got 'a b'"),
    ("version = 1", "version = 1\ntime_out_s = 0", "time_out_s: must be a number > 0 and <= 1e+06, got 0"),
    ("version = 1", "version = 1\nconfidence = 1.0", "confidence: must be a number >= 0.5 and < 1, got 1.0"),
    ("version = 1", "version = 1\nseed = -1", "seed: must be a whole number in 0..2147483647, got -1"),
    ("speed = 500", f"speed = {list(range(300))}", "grid: must be at most 500 configurations, got more"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[message[:40] for *_, message in BAD])
def test_what_is_wrong_is_one_line_that_names_the_field(old: str, new: str, message: str) -> None:
    assert old in FILE
    Path("measure.toml").write_text(FILE.replace(old, new))
    with pytest.raises(InputError) as raised:
        read_measure_file("measure.toml")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_a_grid_or_a_metric_there_is_nothing_to_measure() -> None:
    head, grids = FILE.split("[[grid]]", 1)
    Path("measure.toml").write_text(head)
    with pytest.raises(InputError, match="field 'grid' is missing"):
        read_measure_file("measure.toml")
    Path("measure.toml").write_text(f"{head.split('[metrics]')[0]}[metrics]\n[[grid]]{grids}")
    with pytest.raises(InputError, match="must name at least one metric, such as throughput"):
        read_measure_file("measure.toml")
