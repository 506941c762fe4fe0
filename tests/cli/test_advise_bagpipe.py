"""`gapless advise bagpipe` and the options of traces and clusters: what is printed, the JSON object, refusals."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pytest
from calls import run

from gapless.cli.clusters import add_cluster_options, read_cluster_options
from gapless.cli.traces import add_trace_options, read_trace_options
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.errors import InputError
from gapless.profiles.traces.trace import Trace

SMALL = [
    "advise", "bagpipe", "--trace", "zipf", "--table-rows", "3000,500", "--examples", "6400", "--batch-size", "64",
    "--trainers", "2",
]  # fmt: skip


def test_designs_are_printed_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL, "--lookahead", "10")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.match(r"lookahead 10, cache \d+ rows, [\d.]+ KB, 60 batches planned; per iteration:$", lines[0])
    assert [line.split()[0] for line in lines[2:6]] == ["replicated", "partitioned", "lrpp", "lrpp-delayed"]
    assert re.match(r"best: lrpp.*; without embedding access [\d.]+ ms$", lines[6])


def test_a_cache_size_tunes_the_lookahead(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (*SMALL, "--cache-size", "150KB", "--fetch-latency", "100ms", "--forward", "1ms", "--backward", "2ms")
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
        (["--cache-rows", "9", "--cache-size", "1MB"], "give --cache-rows or --cache-size, not both"),
        (["--cache-size", "10"], "--cache-size: must hold a row of 192 bytes, got 10"),
        (["--cache-rows", "9"], r"cache_rows must hold the distinct ids of a batch; batch 0 has \d+, got 9"),
        (["--design", "lrp"], "design: must be one of replicated, .*, got 'lrp'; did you mean"),
        (["--objective", "cost"], "objective: must be one of paper, fetches, max-load, got 'cost'"),
        (["--model", "dlmr"], "model: must be one of .*, got 'dlmr'; did you mean"),
        (["--columns", "a"], r"--columns goes with a .csv or .csv.gz file, got --trace zipf"),
        (["--hot-share", "0.5"], "--hot-share goes with skew, got --trace zipf"),
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


# -- options -----------------------------------------------------------------------------------------------------------


def named_trace(*arguments: str) -> Trace:
    parser = argparse.ArgumentParser()
    add_trace_options(parser)
    return read_trace_options(parser.parse_args(["--trace", *arguments]))


def test_generators_have_the_tables_of_criteo_kaggle_by_default() -> None:
    for name in ("criteo-like", "zipf", "skew"):
        trace = named_trace(name)
        assert (trace.table_count, trace.examples) == (26, 39_200_000)
        assert sum(trace.table_rows or ()) == 33_762_577
    assert named_trace("zipf", "--exponent", "2.5", "--table-rows", "7,8").name == "zipf-2.5"
    assert named_trace("skew", "--hot-share", "0.9", "--examples", "5").name == "skew-0.9"
    first, other = (next(named_trace("zipf", "--trace-seed", seed).batches(5)) for seed in ("0", "1"))
    assert not np.array_equal(first, other)


def test_files_are_read_by_their_ending(tmp_path: Path) -> None:
    ids = np.arange(12).reshape(6, 2)
    np.save(tmp_path / "t.npy", ids)
    np.savez(tmp_path / "t.npz", ids=ids, other=ids + 1)
    (tmp_path / "t.csv").write_text("a,b,c\n" + "".join(f"{a},{b},x\n" for a, b in ids))
    assert next(named_trace(str(tmp_path / "t.npy")).batches(6)).tolist() == ids.tolist()
    assert next(named_trace(str(tmp_path / "t.npz"), "--array", "ids").batches(6)).tolist() == ids.tolist()
    csv = named_trace(str(tmp_path / "t.csv"), "--columns", "b,a", "--string-columns", "a")
    assert csv.table_names == ("b", "a")
    assert next(csv.batches(6)).tolist() == [[b, rank] for rank, (_, b) in enumerate(ids.tolist())]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["criteo-lik"], "--trace: must be one of criteo-like, zipf, skew, or .*, got 'criteo-lik'; did you mean"),
        (["t.parquet"], "a file ending in .npy, .npz, .csv or .csv.gz, got 't.parquet'"),
        (["none.npy"], "none.npy"),
        (["t.npy", "--examples", "5"], "--examples goes with criteo-like or zipf or skew, got --trace t.npy"),
        (["t.npy", "--array", "a"], "--array goes with a .npz file, got --trace t.npy"),
        (["criteo-like", "--table-rows", "5"], "--table-rows goes with zipf or skew, got --trace criteo-like"),
    ],
)  # fmt: skip
def test_bad_traces_are_named(arguments: list[str], rule: str) -> None:
    with pytest.raises(InputError, match=rule.replace("--", r"\-\-")):
        named_trace(*arguments)


def test_cluster_options_set_fields_of_the_cluster() -> None:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    assert read_cluster_options(parser.parse_args([]), 8) == Cluster(8)
    chosen = ["--dimension", "16", "--server-bandwidth", "100Gbps", "--fetch-latency", "2.7s", "--control", "0"]
    cluster = read_cluster_options(parser.parse_args([*chosen, "--model", "deepfm", "--forward", "1ms"]), 4)
    assert (cluster.trainers, cluster.row_bytes, cluster.server_bytes_per_s) == (4, 64, 12.5e9)
    assert (cluster.fetch_latency_s, cluster.control_s, cluster.forward_s) == (2.7, 0, 1e-3)
    assert (cluster.dense_bytes, cluster.backward_s) == (4 * 33_851_283, 30.7e-3)
