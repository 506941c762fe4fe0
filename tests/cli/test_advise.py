"""`gapless advise`: what it prints, its JSON object, and how it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from calls import run

from gapless.encodings.cupcake import advice
from gapless.profiles.gradients.named import load_fusion_profile
from gapless.profiles.gradients.profile_file import write_fusion_profile

COMPRESSION = ["advise", "compression", "--profile", "vgg16", "--ranks", "16", "--bandwidth", "10Gbps"]
WHAT_IF = ["advise", "what-if", "--profile", "resnet101", "--ranks", "64", "--bandwidth", "10Gbps"]


def test_every_compressor_has_a_line_below_the_plain_buckets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *COMPRESSION)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.match(r" *compressor +plan +groups +iteration +scaling +time saved +pays below$", lines[0])
    assert re.match(r" *none +buckets of \d+ MB", lines[1])
    names = [line.split()[0] for line in lines[2:-1]]
    assert names == [
        "none", "fp16", "bf16", "rand-k", "topk", "ms-topk", "dgc", "ef-signsgd", "onebit", "qsgd", "terngrad",
        "powersgd",
    ]  # fmt: skip
    assert re.match(r"best: rand-k in its best fusion, saves \d+\.\d % of a step$", lines[-1])


def test_json_is_one_object_with_a_row_for_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *COMPRESSION, "--latency", "20us", "--compressor", "dgc,none,dgc", "--json")
    data = json.loads(out)
    assert code == 0
    assert {"problem", "profile", "device", "ranks", "bandwidth_bytes_per_s", "latency_s", "version"} <= set(data)
    assert (data["ranks"], data["bandwidth_bytes_per_s"], data["latency_s"]) == (16, 1.25e9, pytest.approx(2e-5))
    assert [row["compressor"] for row in data["rows"]] == ["none", "dgc", "none"]
    plain, dgc, none = data["rows"]
    assert plain["plan"].startswith("buckets of ")
    assert dgc["plan"] == none["plan"] == "best fusion"
    assert dgc["collective"] == "all-gather"
    assert dgc["pays"] == "below"
    assert dgc["crossover_bytes_per_s"] > 0
    assert none["pays"] is None
    assert data["best"]["iteration_s"] == min(row["iteration_s"] for row in data["rows"])
    for row in data["rows"]:
        assert row["scaling"] == pytest.approx(data["compute_s"] / row["iteration_s"])
        assert row["time_saved"] == pytest.approx(1 - row["iteration_s"] / plain["iteration_s"])
        assert row["groups"][0][0] == 0
        assert row["groups"][-1][1] == 31


def test_a_time_limit_that_is_long_enough_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*COMPRESSION, "--compressor", "fp16,dgc"]
    assert run(capsys, *arguments, "--time-limit", "1000") == run(capsys, *arguments)


def test_what_there_was_no_time_for_is_named_and_ends_with_4(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = advice.advise

    def stopped(*values: Any) -> advice.Advice:
        values[-1].stop.set()
        return asked(*values)

    monkeypatch.setattr(advice, "advise", stopped)
    code, out, err = run(capsys, *COMPRESSION, "--compressor", "fp16,dgc", "--time-limit", "1000")
    assert (code, err) == (4, "gapless: left out for want of time: fp16, dgc\n")
    assert out.splitlines()[1].split()[0] == "none"


def test_profile_may_be_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_fusion_profile(tmp_path / "mine.json", load_fusion_profile("vgg16"))
    arguments = [*COMPRESSION, "--compressor", "dgc", "--json"]
    named = json.loads(run(capsys, *arguments)[1])
    arguments[arguments.index("vgg16")] = str(tmp_path / "mine.json")
    assert json.loads(run(capsys, *arguments)[1]) == named


def test_faster_device_encodes_faster(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*COMPRESSION, "--compressor", "powersgd", "--json"]
    slow, fast = (json.loads(run(capsys, *arguments, "--device", device)[1]) for device in ("v100", "h100"))
    assert fast["rows"][1]["iteration_s"] < slow["rows"][1]["iteration_s"]
    assert fast["rows"][0] == slow["rows"][0]


def test_network_may_be_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["advise", "compression", "--profile", "vgg16", "--compressor", "fp16", "--json"]
    code, out, _ = run(capsys, *arguments, "--topology", "ndv2", "--nodes", "2")
    data = json.loads(out)
    assert (code, data["ranks"], data["ranks_per_node"]) == (0, 16, 8)
    assert data["bandwidth_bytes_per_s"] == pytest.approx(1e6 / 106e-6)
    flat = json.loads(run(capsys, *arguments, "--topology", "ndv2", "--nodes", "2", "--levels", "1")[1])
    assert (flat["ranks"], flat["ranks_per_node"]) == (16, 1)
    assert data["rows"][0]["iteration_s"] < flat["rows"][0]["iteration_s"]


@pytest.mark.parametrize("arguments", [COMPRESSION, [*WHAT_IF, "--figure", "batch"]])
def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(capsys, *arguments, "--quiet", "--compressor", "dgc") == (0, "", "")


@pytest.mark.parametrize(
    ("figure", "columns", "count"),
    [
        ("bandwidth", ["bandwidth", "uncompressed", "compressed", "time saved"], 10),
        ("batch", ["batch factor", "uncompressed", "compressed", "time saved"], 5),
        ("compute", ["speed", "uncompressed", "compressed", "time saved"], 7),
        ("tradeoff", ["speed", "penalty", "ratio", "uncompressed", "compressed", "time saved"], 12),
        ("ratio", ["batch factor", "bandwidth", "required ratio", "scaling"], 5),
    ],
)
def test_every_figure_is_a_table(
    capsys: pytest.CaptureFixture[str], figure: str, columns: list[str], count: int
) -> None:
    code, out, _ = run(capsys, *WHAT_IF, "--figure", figure)
    lines = out.splitlines()
    assert code == 0
    assert re.split(r"  +", lines[0].strip()) == columns
    if figure != "ratio":
        assert re.match(r"powersgd pays below \d+\.\d+ Gb/s$", lines.pop())
    assert len(lines) == 1 + count
    data = json.loads(run(capsys, *WHAT_IF, "--figure", figure, "--json")[1])
    assert len(data["rows"]) == count
    assert data["figure"] == figure


def test_ratio_that_does_not_exist_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *WHAT_IF, "--figure", "ratio", "--latency", "1ms", "--json")
    assert code == 0
    assert json.loads(out)["rows"][0]["required_ratio"] is None


BAD_INPUT = [
    ([*COMPRESSION[:-2]], r"bandwidth: must be given, or a topology"),
    (["advise", "compression", "--profile", "vgg16", "--bandwidth", "1Gbps"], r"ranks: must be given, or a topology"),
    ([*COMPRESSION[:-1], "10Gb"], r"--bandwidth: must be a number and a unit such as 10Gbps \(bits\)"),
    ([*COMPRESSION, "--latency", "10"], r"--latency: must be a number and a unit such as 10us"),
    ([*COMPRESSION, "--ranks", "1"], r"--ranks: must be a whole number in 2\.\."),
    ([*COMPRESSION, "--compressor", "gdc"], r"compressor: must be one of .*, got 'gdc'; did you mean 'dgc'"),
    ([*COMPRESSION, "--device", "v10"], r"device: must be one of .*, got 'v10'; did you mean 'v100'"),
    ([*COMPRESSION, "--profile", "resnet5"], r"profile: must be a file or one of .*; did you mean 'resnet50'"),
    ([*COMPRESSION, "--profile", "absent.json"], r"cannot read absent\.json: No such file"),
    ([*COMPRESSION, "--topology", "ndv2"], r"ranks: give it or topology, not both"),
    ([*COMPRESSION, "--nodes", "2"], r"nodes: goes with topology"),
    (["advise", "compression", "--profile", "vgg16", "--topology", "ndv"], r"topology: must be one of .*, got 'ndv'"),
    ([*WHAT_IF, "--figure", "size"], r"--figure: must be one of bandwidth, .*, got 'size'"),
    (WHAT_IF, r"the following arguments are required: --figure"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=[case[1][:40] for case in BAD_INPUT])
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert err.count("\n") == 1
