"""`gapless solve cupcake`, and what can be done with its plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calls import exit_code
from fusion_instances import known_instance, random_instance

from gapless.cli.main import main
from gapless.profiles.gradients.profile_file import write_fusion_profile


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    write_fusion_profile(path, known_instance())
    return str(path)


def _solved(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["solve", "cupcake", *arguments, "--json", "--quiet"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_json_object_has_the_groups_and_the_step_time(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = _solved(capsys, "--profile", profile)
    assert found["groups"] == [[0, 1], [2, 2], [3, 4], [5, 5], [6, 6]]
    assert found["objective_s"] == found["bound_s"] == pytest.approx(4.2615e-3)
    assert found["makespan_s"] == pytest.approx(found["objective_s"], rel=1e-9)
    assert (found["status"], found["valid"], found["gap"]) == ("optimal", True, 0.0)
    assert found["baselines_s"]["layer-wise"] == pytest.approx(5.2615e-3)


def test_a_plan_is_checked_shown_and_exported(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, buckets = str(tmp_path / "plan.json"), tmp_path / "buckets.json"
    assert main(["solve", "cupcake", "--profile", profile, "-o", plan, "--quiet"]) == 0
    assert main(["check", plan]) == 0
    assert main(["show", plan]) == 0
    shown = capsys.readouterr().out
    assert "t3 .. t4" in shown
    assert "layer-wise" in shown
    assert main(["export", plan, "--format", "ddp-buckets", "-o", str(buckets)]) == 0
    assert len(json.loads(buckets.read_text())["bucket_cap_mb_list"]) == 5


def test_a_second_run_replaces_the_plan_with_an_equal_one(profile: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    texts = []
    for _ in range(2):
        assert main(["solve", "cupcake", "--profile", profile, "-o", str(plan), "--quiet"]) == 0
        texts.append([line for line in plan.read_text().splitlines() if not line.startswith(' "run"')])
    assert texts[0] == texts[1]


def test_a_shipped_profile_takes_other_costs(capsys: pytest.CaptureFixture[str]) -> None:
    own = _solved(capsys, "--profile", "resnet50")
    network = ["--ranks", "64", "--bandwidth", "10Gbps"]
    other = _solved(capsys, "--profile", "resnet50", "--compressor", "powersgd", *network)
    assert own["objective_s"] != other["objective_s"]


def test_a_summary_names_the_costs_that_were_taken(capsys: pytest.CaptureFixture[str]) -> None:
    network = ["--ranks", "64", "--bandwidth", "10Gbps"]
    assert main(["solve", "cupcake", "--profile", "gpt2", "--compressor", "fp16", *network]) == 0
    shown = capsys.readouterr().out
    assert "costs: plain by ring all-reduce; fp16" in shown
    assert "dgc" not in shown
    assert "objective" not in shown.splitlines()[0]


@pytest.mark.parametrize("method", ["pareto", "milp", "algorithm1", "layer-wise", "one-group", "buckets", "even-split"])
def test_every_method_gives_a_plan(profile: str, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = _solved(capsys, "--profile", profile, "--method", method)
    assert found["valid"]
    assert found["objective_s"] >= 4.2615e-3 * (1 - 1e-9)


NETWORK = ["--ranks", "8", "--bandwidth", "2Gbps"]


def test_modes_are_chosen_by_group_and_shown_with_the_papers_question_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, modes = str(tmp_path / "plan.json"), ["--modes", "plain,topk,powersgd:4"]
    found = _solved(capsys, "--profile", "vgg16", *modes, *NETWORK, "-o", plan)
    assert (found["status"], found["valid"]) == ("optimal", True)
    assert found["objective_s"] <= min(found["baselines_s"].values())
    assert set(found["modes"]) <= {"plain", "topk", "powersgd:4"}
    assert len(found["modes"]) == len(found["groups"])
    assert main(["show", plan]) == 0
    shown = capsys.readouterr().out
    assert "fusion-only" in shown
    assert "topk feedback" in shown


def test_the_papers_question_compresses_every_group_and_decodes_before(capsys: pytest.CaptureFixture[str]) -> None:
    paper = _solved(capsys, "--profile", "resnet50", "--modes", "compress", "--decode", "before")
    after = _solved(capsys, "--profile", "resnet50", "--modes", "compress")
    every = _solved(capsys, "--profile", "resnet50")
    assert set(paper["modes"]) == set(after["modes"]) == {"dgc"}
    assert paper["decode_s"] == 0 < after["decode_s"]
    assert every["objective_s"] < after["objective_s"] < paper["objective_s"]
    priced = _solved(capsys, "--profile", "resnet50", "--modes", "compress", "--compressor", "onebit", *NETWORK)
    assert set(priced["modes"]) == {"onebit"}


def test_a_large_gradient_may_be_sent_in_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    whole, cut = (_solved(capsys, "--profile", "vgg16", *pieces) for pieces in ([], ["--pieces", "16MiB"]))
    assert cut["status"] == "optimal"
    assert cut["objective_s"] < 0.95 * whole["objective_s"]


def test_a_class_of_error_leaves_out_what_is_worse(capsys: pytest.CaptureFixture[str]) -> None:
    found = _solved(capsys, "--profile", "vgg16", "--modes", "plain,fp16,topk", "--error", "rounded", *NETWORK)
    assert set(found["modes"]) <= {"plain", "fp16"}
    assert "fp16" in found["modes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "resnet-50"], "profile: must be a file or one of"),
        (["--profile", "nowhere.json"], "cannot read nowhere.json"),
        (["--profile", "resnet50", "--method", "parto"], "did you mean 'pareto'?"),
        (["--profile", "resnet50", "--modes", "compress", "--decode", "before", "--method", "affine"], "needs affine"),
        (["--profile", "resnet50", "--method", "algorithm1"], "add --modes compress --decode before"),
        (["--profile", "resnet50", "--modes", "plain", "--method", "selective"], "needs the mode plain and one that"),
        (["--profile", "resnet50", "--modes", "plain,dcg"], "modes: must be one of plain, dgc, got 'dcg'"),
        (
            ["--profile", "resnet50", "--modes", "compress", "--error", "exact"],
            "has none of error class exact or better",
        ),
        (["--profile", "resnet50", "--modes", "compress", *NETWORK], "ranks: goes with compressor"),
        (["--profile", "resnet50", "--pieces", "0"], "pieces"),
        (["--profile", "resnet50", "--modes", "plain,topk", "--compressor", "dgc", *NETWORK], "not both"),
        (["--profile", "resnet50", "--ranks", "8"], "ranks: goes with compressor"),
        (
            ["--profile", "resnet50", "--compressor", "dcg", "--ranks", "8", "--bandwidth", "1Gbps"],
            "did you mean 'dgc'",
        ),
        (["--profile", "resnet50", "--compressor", "dgc"], "ranks: must be given, or a topology"),
        (["--profile", "resnet50", "-o", "nowhere/plan.json"], "nowhere/plan.json"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("solve", "cupcake", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensors": []}, "tensors must hold at least one"),
        ({"forward_s": -1}, "forward_s: must be a number >= 0, got -1"),
        ({"compresion": {}}, "field 'compresion' is unknown"),
        (
            {
                "modes": [
                    {"name": "a", "error": "exact", "communication": {"kind": "points", "points": [[2, 1], [1, 1]]}}
                ]
            },
            "bytes must rise",
        ),
    ],
)
def test_a_broken_profile_is_named_with_its_field(
    profile: str, change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(Path(profile).read_text()) | change
    Path(profile).write_text(json.dumps(data))
    assert main(["solve", "cupcake", "--profile", profile]) == 2
    error = capsys.readouterr().err
    assert profile in error
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_where_the_papers_search_scores_nothing_a_baseline_stands_in(tmp_path: Path) -> None:
    """With one gradient there is one fusion, which Algorithm 1 as printed never scores."""
    path, plan = tmp_path / "one.json", tmp_path / "plan.json"
    write_fusion_profile(path, random_instance(np.random.default_rng(0), "affine", most=1))
    assert main(["solve", "cupcake", "--profile", str(path), "--method", "algorithm1", "-o", str(plan)]) == 0
    details = json.loads(plan.read_text())["details"]
    assert details["search_finished"]
    assert details["instead"] in details["baselines_s"]
