"""`gapless advise`: what it prints, its JSON object, and how it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from calls import run

from gapless.encodings.cupcake.commands import advice
from gapless.profiles.compressors.compressor import ERRORS
from gapless.profiles.compressors.grammar import compressor_names
from gapless.profiles.gradients.named import load_fusion_profile
from gapless.profiles.gradients.profile_file import write_fusion_profile

COMPRESSION = ["advise", "compression", "--profile", "vgg16", "--ranks", "16", "--bandwidth", "10Gbps"]
WHAT_IF = ["advise", "what-if", "--profile", "resnet101", "--ranks", "64", "--bandwidth", "10Gbps"]


def test_every_compressor_has_a_line_below_the_plain_buckets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *COMPRESSION)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    titles = "error compressor plan groups compressed iteration scaling time_saved steps gathered pays_below range"
    assert re.split(r"  +", lines[0].strip()) == [title.replace("_", " ") for title in titles.split()]
    assert re.match(r" *exact +none +buckets of \d+ MB", lines[1])
    rows = [line.split()[:2] for line in lines[2:] if re.match(r" *\w+  ", line)]
    assert sorted(name for _, name in rows) == sorted(compressor_names())
    assert [error for error, _ in rows] == sorted((error for error, _ in rows), key=list(ERRORS).index)
    classes = [line.partition(",")[0] for line in lines if any(line.startswith(f"{error}, ") for error in ERRORS)]
    assert classes == list(dict.fromkeys(error for error, _ in rows))
    assert lines[-4].startswith("pays below: all compressed, at batch 32, with the range over 0.1 to 10 times the")
    assert lines[-3].startswith("steps: times as many as with plain gradients, all compressed, on a small GPT")
    assert re.match(r"no other has a shorter step and fewer steps: rand-k \(\d+ ms, 2.92\), ", lines[-2])
    assert re.match(r"best: \S+ in its best plan, saves \d+\.\d % of a step", lines[-1])
    assert not lines[-1].startswith("best: rand-k")  # its steps are shortest, and it takes three times as many


def test_json_is_one_object_with_a_row_for_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *COMPRESSION, "--latency", "20us", "--compressor", "dgc,none,dgc", "--json")
    data = json.loads(out)
    assert code == 0
    assert {"problem", "profile", "device", "ranks", "bandwidth_bytes_per_s", "latency_s", "version"} <= set(data)
    assert (data["ranks"], data["bandwidth_bytes_per_s"], data["latency_s"]) == (16, 1.25e9, pytest.approx(2e-5))
    assert [row["compressor"] for row in data["rows"]] == ["none", "none", "dgc"]
    plain, none, dgc = data["rows"]
    assert plain["plan"].startswith("buckets of ")
    assert dgc["plan"] == none["plan"] == "best plan"
    assert dgc["collective"] == "all-gather"
    assert dgc["pays"] == "below"
    assert dgc["crossover_bytes_per_s"] > 0
    assert none["pays"] is None
    assert [end["pays"] for end in dgc["range"]] == ["below", "below"]
    assert (data["batch"], data["best_by_error"]) == (32, {"exact": "none", "feedback": "dgc"})
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
    assert out.splitlines()[1].split()[:2] == ["exact", "none"]


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
        ("batch", ["batch", "uncompressed", "compressed", "time saved", "pays below", "range"], 5),
        ("compute", ["speed", "uncompressed", "compressed", "time saved", "pays below", "range"], 7),
        (
            "tradeoff",
            ["encode speed", "penalty", "ratio", "uncompressed", "compressed", "time saved", "pays below", "range"],
            12,
        ),
        ("ratio", ["batch", "required ratio", "scaling"], 5),
        ("contention", ["contention", "uncompressed", "compressed", "time saved", "beside", "pays below", "range"], 5),
    ],
)
def test_every_figure_is_a_table(
    capsys: pytest.CaptureFixture[str], figure: str, columns: list[str], count: int
) -> None:
    code, out, _ = run(capsys, *WHAT_IF, "--figure", figure)
    lines = out.splitlines()
    assert code == 0
    assert re.split(r"  +", lines[0].strip()) == columns
    said = [line for line in lines[1 + count :] if not line.startswith("range of what powersgd pays below: latencies")]
    assert said == ([] if "batch" in columns else ["all at batch 32"])
    data = json.loads(run(capsys, *WHAT_IF, "--figure", figure, "--json")[1])
    assert len(data["rows"]) == count
    assert (data["figure"], data["batch"], data["plot"]) == (figure, 32, None)


@pytest.mark.parametrize(("asked", "batch"), [("64", 64), ("0.5x", 16)])
def test_one_batch_that_is_asked_for_is_said(capsys: pytest.CaptureFixture[str], asked: str, batch: int) -> None:
    question = [*WHAT_IF, "--figure", "latency", "--batch", asked, "--latency", "10us"]
    assert f"all at batch {batch}\n" in run(capsys, *question)[1]
    assert json.loads(run(capsys, *question, "--json")[1])["batch"] == batch


def test_axes_are_lists_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--figure", "bandwidth", "--bucket", "10MB,25MB", "--gamma", "1.04,1.1", "--batch", "0.5x,64"]
    code, out, _ = run(capsys, *WHAT_IF, *asked, "--latency", "1us", "--json")
    data = json.loads(out)
    assert (code, len(data["rows"])) == (0, 8)
    assert data["axes"] == ["batch", "gamma", "bucket_bytes", "bandwidth_bytes_per_s"]
    assert {row["bucket_bytes"] for row in data["rows"]} == {10_000_000, 25_000_000}
    assert {row["batch"] for row in data["rows"]} == {16, 64}


def test_a_what_if_and_the_compressors_are_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, asked in (("what", [*WHAT_IF, "--figure", "ranks"]), ("which", [*COMPRESSION, "--compressor", "dgc"])):
        path = tmp_path / f"{name}.svg"
        code, out, err = run(capsys, *asked, "--plot", str(path), "--json")
        assert (code, err, json.loads(out)["plot"]) == (0, "", str(path))
        assert "<svg" in path.read_text()


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
    ([*WHAT_IF, "--figure", "ranks", "--gamma", "0.9"], r"--gamma: must be a number >= 1 and <= 100, got '0\.9'"),
    ([*WHAT_IF, "--figure", "ranks", "--batch", "x"], r"--batch: must be a number > 0"),
    ([*WHAT_IF, "--figure", "ranks", "--aggregation", "rings"], r"--aggregation: must be one of ring, tree, server"),
    pytest.param(
        [*WHAT_IF, "--figure", "ranks", "--plot", "f.txt"],
        r"a plot's file must end in \.pdf, \.png or \.svg",
        id="plot",
    ),
    ([*COMPRESSION, "--error", "none"], r"--error: must be one of exact, rounded, unbiased, feedback, unknown"),
    ([*COMPRESSION, "--memory", "0"], r"--memory: must be at least 1 byte"),
    ([*COMPRESSION, "--ranks-per-node", "4"], r"--inner-bandwidth: must be given with --ranks-per-node"),
    (WHAT_IF, r"the following arguments are required: --figure"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD_INPUT, ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert err.count("\n") == 1
