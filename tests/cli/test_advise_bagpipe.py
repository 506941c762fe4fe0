"""`gapless advise bagpipe`: what is printed, the JSON object, refusals."""

from __future__ import annotations

import json
import re

import pytest
from calls import run

from gapless.encodings.bagpipe.question import DESIGNS

SMALL = [
    "advise", "bagpipe", "--trace", "zipf", "--table-rows", "3000,500", "--examples", "6400", "--batch-size", "64",
    "--trainers", "2",
]  # fmt: skip


def test_designs_are_printed_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL, "--lookahead", "10")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.match(r"lookahead 10, cache \d+ rows, [\d.]+ KB, 60 batches planned; per iteration:$", lines[0])
    assert [line.split()[0] for line in lines[2:7]] == list(DESIGNS)
    assert re.match(r"best: lrpp.*; without embedding access [\d.]+ ms$", lines[7])


def test_a_cache_size_tunes_the_lookahead(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        *SMALL,
        "--examples",
        "3200",
        "--cache-size",
        "150KB",
        "--fetch-latency",
        "100ms",
        "--forward",
        "1ms",
        "--backward",
        "2ms",
    )
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["lookahead", "cache", "rows", "cache", "stall", "iteration"]
    assert any(re.match(r"lookahead: \d+ of those tried \(\d+ fits at start-up", line) for line in lines)
    code, out, _ = run(capsys, *arguments, "--json")
    data = json.loads(out)
    tuning = data["tuning"]
    assert tuning["cache_rows"] == 150_000 // 192
    assert tuning["tried"][-1]["lookahead"] == tuning["settled_lookahead"] <= tuning["rule_lookahead"]
    assert data["lookahead"] == tuning["chosen_lookahead"]
    assert all(entry["cache_rows"] <= tuning["cache_rows"] for entry in tuning["tried"])
    fastest = min(entry["iteration_s"] for entry in tuning["tried"])
    assert data["iteration_s"] <= 1.01 * fastest


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL, "--lookahead", "5", "--batches", "20", "--dimension", "16", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (data["problem"], data["trace"], data["trainers"], data["batch_size"]) == ("bagpipe", "zipf-1", 2, 64)
    assert (data["lookahead"], data["batches"], data["cluster"]["row_bytes"]) == (5, 20, 64)
    assert data["cache_bytes"] == 64 * data["cache_rows"]
    assert "tuning" not in data
    rows = {entry["design"]: entry for entry in data["designs"]}
    assert rows["lrpp"]["iteration_vs_lrpp"] == 1
    assert rows["replicated"]["critical_rows"] > rows["lrpp"]["critical_rows"] > rows["lrpp-delayed"]["critical_rows"]
    assert rows["lrpp"]["critical_bytes"] == pytest.approx(64 * rows["lrpp"]["critical_rows"])


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *SMALL, "--lookahead", "2", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--cache-rows", "9", "--cache-size", "1MB"], "--cache-rows: give it or cache_size, not both"),
        (["--cache-size", "10"], "--cache-size: must hold a row of 192 bytes, got 10"),
        (["--cache-rows", "9"], r"cache_rows must hold the distinct ids of a batch; batch 0 has \d+, got 9"),
        (["--design", "lrp"], "design: must be one of replicated, .*, got 'lrp'; did you mean"),
        (["--objective", "cost"], r"objective: must be one of auto, .*, time, got 'cost'"),
        (["--model", "dlmr"], "model: must be one of .*, got 'dlmr'; did you mean"),
        (["--columns", "a"], r"columns: goes with a .csv or .csv.gz file, got trace zipf"),
        (["--hot-share", "0.5"], "--hot-share: goes with skew, got trace zipf"),
        (["--exponent", "6"], "the exponent must be in 1..5, got 6"),
        (["--latency", "10"], "--latency: must be a number and a unit"),
        (["--table-rows", "5,x"], "--table-rows: must be a whole number in 1.*, got 'x'"),
    ],
)  # fmt: skip
def test_bad_questions_get_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], rule: str) -> None:
    code, out, err = run(capsys, *SMALL, *arguments)
    assert (code, out) == (2, "")
    assert re.search(rule.replace("--", r"\-\-"), err), err
    assert len(err.splitlines()) == 1
