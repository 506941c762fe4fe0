"""`gapless run bagpipe`: what it prints, its JSON object, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calls import exit_code
from extras import needs_torch

from gapless.cli.main import main

SMALL = (
    "--trace", "zipf", "--table-rows", "50,9,300", "--trainers", "2", "--batch-size", "16", "--batches", "6",
    "--lookahead", "2",
)  # fmt: skip


@needs_torch
def test_a_trace_is_planned_and_trained_as_planned(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--pooling-factors", "1,3,2", "--optimizer", "rowwise-adagrad", "--shares", "3,1")
    assert main(["run", "bagpipe", *SMALL, *options, "--design", "lrpp-delayed"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("plan, lrpp-delayed ")
    assert lines[1].endswith("  0")
    assert lines[2] == "6 batches of dlrm, 2 trainers; links and passes are emulated"
    assert lines[3].startswith("losses 0.")
    assert lines[4].endswith(" written: as planned")


@needs_torch
@pytest.mark.thorough
def test_the_json_object_holds_what_was_planned_and_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).integers(0, 70, (100, 2)))
    trace = ("--trace", str(tmp_path / "t.npy"), "--trainers", "3", "--batch-size", "16", "--cache-rows", "150")
    assert main(["run", "bagpipe", *trace, "--optimizer", "adam", "--step-size", "0.01", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["rows"]
    assert row["fetched_rows"]["planned"] == row["fetched_rows"]["moved"] > 0
    assert max(row["row_error"], row["dense_error"], row["loss_error"]) < 1e-4
    assert found["batches"] == len(found["losses"]) == 7


@needs_torch
@pytest.mark.thorough
def test_a_killed_trainer_is_replaced_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--trainers", "3", "--kill-trainer", "1", "--at-batch", "4", "--model", "deepfm")
    assert main(["run", "bagpipe", *SMALL, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("  0")
    assert lines[2] == "6 batches of deepfm, 3 trainers; nothing is emulated"
    assert lines[4] == "lost trainer 1 in batch 4; all go back to batch 2, 2 again"


@needs_torch
@pytest.mark.thorough
def test_training_goes_on_from_a_checkpoint_with_more_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--checkpoint", str(tmp_path), "--checkpoint-every", "2", "--json", "--quiet")
    found = []
    for more in ((), ("--restore", "--batches", "8")):
        assert main(["run", "bagpipe", *SMALL, *options, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["losses"] == found[1]["losses"][:6]
    assert (found[0]["restored_after"], found[1]["restored_after"]) == (None, 3)
    assert [each["valid"] for each in found] == [True, True]


@needs_torch
def test_a_plan_is_carried_out_beside_other_designs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run.npz")
    assert main(["solve", "bagpipe", *SMALL, "--design", "lrpp-fine-grained", "-o", path, "--quiet"]) == 0
    beside = ("--beside", "on-demand,table-wise", "--emulate", "instants")
    assert main(["run", "bagpipe", "--plan", path, *beside, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["valid"]
    assert [row["name"] for row in found["rows"]] == ["plan", "on-demand", "table-wise"]
    assert [row["values_apart"] for row in found["rows"]] == [0, 0, None]
    for row in found["rows"]:
        assert row["emulated_s"] == pytest.approx(row["predicted_s"], rel=0.01)
        assert len(row["steps"]["emulated_s"]) == found["batches"] == 6


@needs_torch
def test_a_plan_has_its_own_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("run", "bagpipe", "--plan", str(tmp_path / "run.npz"), *SMALL, "--quiet") == 2
    assert "--trace: goes without --plan, which has its own, got 'zipf'" in capsys.readouterr().err
    assert exit_code("run", "bagpipe", "--trace", "zipf", "--trainers", "2", "--quiet") == 2
    assert "--batch-size: must be given, or a --plan that has it" in capsys.readouterr().err


@needs_torch
@pytest.mark.thorough("table-rows")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shares", "3,2,1"), "--shares: must be one per trainer, 2 in all, got 3"),
        (("--optimizer", "adagard"), "did you mean 'adagrad'?"),
        (("--step-size", "0"), "--step-size: must be a number > 0, got '0'"),
        (("--trainers", "17"), "--trainers: must be at most the 16 examples of a batch, got 17"),
        (
            ("--table-rows", "9999999", "--checkpoint", "."),
            "--table-rows: times the dimension must be at most 134,217,728 values, got",
        ),
        (("--kill-trainer", "2"), "--kill-trainer: must be one of at least two, in 0..1, got 2 of 2"),
        (("--kill-trainer", "1", "--at-batch", "6"), "--at-batch: must be a batch that is trained, 0..5, got 6"),
        (("--kill-trainer", "1", "--design", "partitioned"), "--kill-trainer: goes with the designs replicated, lrpp,"),
        (("--kill-trainer", "1", "--beside", "lfu"), "--beside: goes without --kill-trainer and --checkpoint"),
        (("--restore",), "--restore: needs the folder of a checkpoint; give --checkpoint FOLDER"),
        (("--restore", "--checkpoint", "."), "checkpoint.json: must be a checkpoint, got FileNotFoundError"),
        (("--cache-rows", "3"), "cache_rows must hold the distinct ids of a batch"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("run", "bagpipe", *SMALL, *options, "--quiet") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
