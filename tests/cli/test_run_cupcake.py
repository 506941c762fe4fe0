"""`gapless profile gradients`, `run cupcake` and `validate ddp`: what they print, what is refused, how ranks end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from extras import needs_torch

from gapless.cli.main import main

ROOT = Path(__file__).parents[2]
SMALL = "train:net,layers=2,width=8,batch=2,size=8,classes=40"
ROWS = ["plan", "DDP's default", "one bucket", "layer-wise", "compress all"]
"""In the order of the table."""

PARAMETERS = {
    "10.bias": 40, "10.weight": 40 * 32, "8.bias": 32, "8.weight": 32 * 8, "4.weight": 8, "4.bias": 8,
    "3.weight": 8 * 8 * 9, "1.weight": 8, "1.bias": 8, "0.weight": 8 * 3 * 9,
}  # fmt: skip
"""The small network's gradients in the order in which they become ready, with their entries."""


def written(folder: Path, **changes: object) -> str:
    """A profile of the small network with costs that don't vary, in which a mixed plan is best."""
    line = {"kind": "affine", "alpha_s": 5e-4, "beta_s_per_byte": 5e-7}
    coding = {"kind": "affine", "alpha_s": 2e-3, "beta_s_per_byte": 0.0}
    short = {"kind": "affine", "alpha_s": 5e-4, "beta_s_per_byte": 1e-8}
    profile = {
        "format": "gapless.fusion-profile", "version": 2, "name": "small", "forward_s": 0.003,
        "tensors": [{"name": name, "size_bytes": 4 * count, "backward_s": 4e-4} for name, count in PARAMETERS.items()],
        "modes": [
            {"name": "plain", "error": "exact", "communication": line},
            {"name": "topk:0.1", "error": "feedback", "communication": short, "encode": coding},
        ],
        **changes,
    }  # fmt: skip
    path = folder / "profile.json"
    path.write_text(json.dumps(profile))
    return str(path)


def solved(folder: Path, *options: str, **changes: object) -> str:
    plan = str(folder / "plan.json")
    assert main(["solve", "cupcake", "--profile", written(folder, **changes), "-o", plan, "--quiet", *options]) == 0
    return plan


def run(plan: str, *options: str, model: str = SMALL) -> int:
    return main(["run", "cupcake", "--plan", plan, "--model", model, "--repeats", "1", *options])


@needs_torch
def test_a_plan_runs_beside_its_rivals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = solved(tmp_path)
    modes = json.loads(Path(plan).read_text())["details"]["modes"]
    assert set(modes) == {"plain", "topk:0.1"}
    assert run(plan, "--json", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["emulated"], found["valid"]) == (2, "wire", True)
    assert [row["name"] for row in found["rows"]] == ROWS
    mixed, *plain, compressed = found["rows"]
    assert mixed["modes"] == modes
    assert all(row["buckets"] for row in found["rows"])
    assert all(row["is_exact"] and row["equal"] == row["gradients"] == 10 for row in plain)
    assert 0 < mixed["equal"] < 10
    assert compressed["equal"] == 0
    assert mixed["predicted_s"] == json.loads(Path(plan).read_text())["claim"]["objective_s"]
    assert mixed["predicted_s"] <= min(row["predicted_s"] for row in found["rows"])


@needs_torch
@pytest.mark.thorough
def test_gradients_in_another_order_than_the_plans_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [*PARAMETERS]
    tensors = [{"name": name, "size_bytes": 4 * PARAMETERS[name], "backward_s": 4e-4} for name in names]
    first, second = names.index("4.weight"), names.index("4.bias")
    tensors[first], tensors[second] = tensors[second], tensors[first]
    plan = solved(tmp_path, "--method", "layer-wise", "--modes", "plain", tensors=tensors)
    assert run(plan, "--quiet", "--emulate", "nothing") == 5
    err = capsys.readouterr().err
    assert "plan: DDP's buckets are others; gradients become ready in another order than the plan's: measure" in err


@needs_torch
def test_a_picture_of_a_training_needs_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(solved(tmp_path), "--plot", str(tmp_path / "loss.svg"), "--quiet") == 2
    assert "plot: goes with train, the number of steps to descend" in capsys.readouterr().err


@needs_torch
@pytest.mark.thorough
def test_all_train_to_a_loss_and_exact_ones_have_the_same_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = solved(tmp_path)
    assert run(plan, "--train", "16", "--rate", "0.05", "--json", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    plain = [row for row in found["rows"] if row["is_exact"]]
    for row in found["rows"]:
        assert len(row["losses"]) == len(row["train_s"]) == 16
        assert sum(row["losses"][-4:]) < sum(row["losses"][:4])
    for row in plain[1:]:
        assert row["losses"] == pytest.approx(plain[0]["losses"], rel=1e-3)
    curves = found["time_to_loss"]["curves"]
    assert [curve["name"] for curve in curves] == [*ROWS, "compress each"]
    for curve in curves:
        assert len(curve["looked_s"]) == len(curve["held_out"]) == len(curve["accuracy"]) == 16
        assert curve["looked_s"] == curve["seconds"]
        assert all(0 <= share <= 1 for share in curve["accuracy"])
    assert curves[1]["held_out"] == pytest.approx(curves[3]["held_out"], rel=1e-3)
    assert max(curve["losses"][-1] for curve in curves) == found["time_to_loss"]["loss"]
    for row, curve in zip(found["rows"], curves, strict=True):
        assert curve["reached_s"] == pytest.approx(sum(row["train_s"][: curve["steps"]]))


@needs_torch
@pytest.mark.thorough
def test_in_two_levels_exact_gradients_are_those_of_one_but_for_rounding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(solved(tmp_path), "--ranks", "4", "--ranks-per-node", "2", "--json", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["rows"]] == ROWS
    for row in found["rows"]:
        assert row["buckets"]
        assert (row["error"] < 1e-10) == row["is_exact"]
    assert run(solved(tmp_path), "--ranks", "3", "--ranks-per-node", "2", "--quiet") == 2
    assert "ranks_per_node: must divide the 3 ranks, got 2" in capsys.readouterr().err


@needs_torch
@pytest.mark.thorough
def test_what_is_printed_says_what_is_emulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(solved(tmp_path), "--emulate", "step", "--dilation", "5", "--ranks", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0].strip() for line in lines[1:6]] == ROWS
    assert lines[6] == "buckets as planned: all of them"
    assert lines[7] == "1 steps of each in turns, 4 processes; wire and computation are emulated, 5 times as slow"


@pytest.mark.thorough
@needs_torch
def test_profiles_are_measured_printed_written_and_planned_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, plan, buckets = (str(tmp_path / name) for name in ("p.json", "plan.json", "b.json"))
    words = [
        "profile",
        "gradients",
        "--model",
        SMALL,
        "--hooks",
        "topk:0.1,powersgd:1",
        "--steps",
        "1",
        "--repeats",
        "1",
    ]
    assert main([*words, "--within", "0", "-o", profile, "--quiet"]) == 2
    assert "fitted costs must be within 0% of all that was measured, got" in capsys.readouterr().err
    assert not Path(profile).exists()
    words += ["--within", "1000"]  # one repetition, on whatever else the machine does
    assert main([*words, "--bandwidth", "100Mbps", "-o", profile, "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in found["modes"]] == ["plain", "topk:0.1", "powersgd:1"]
    tensors = json.loads(Path(profile).read_text())["tensors"]
    assert {tensor["name"]: tensor["size_bytes"] for tensor in tensors} == {
        name: 4 * count for name, count in PARAMETERS.items()
    }
    assert next(tensor["shape"] for tensor in tensors if tensor["name"] == "0.weight") == [8, 3, 3, 3]
    assert main(["solve", "cupcake", "--profile", profile, "-o", plan, "--quiet"]) == 0
    assert main(["export", plan, "--format", "ddp-buckets", "-o", buckets]) == 0
    modes = [bucket["mode"] for bucket in json.loads(Path(buckets).read_text())["buckets"]]
    assert modes == json.loads(Path(plan).read_text())["details"]["modes"]


@needs_torch
@pytest.mark.thorough
def test_predictions_are_held_against_what_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "ddp", "--model", SMALL, "--model", "train:gpt,layers=1,hidden=16", "--ranks", "1,2"]
    options = ["--bandwidth", "10Mbps", "--hooks", "fp16", "--steps", "1", "--repeats", "1", "--json", "--quiet"]
    assert main([*words, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(case["model"], case["ranks"]) for case in found["cases"]] == [
        (model, ranks) for model in (SMALL, "train:gpt,layers=1,hidden=16") for ranks in (1, 2)
    ]
    errors = sorted(error for case in found["cases"] for error in case["errors"])
    assert found["worst_error"] == errors[-1]
    assert errors[0] <= found["median_error"] <= errors[-1]
    assert found["valid"]


# -- what is refused ---------------------------------------------------------------------------------------------------

FACTORIES = """
import os, signal, sys, time
import torch
from gapless.torch.ddp.net import net

SMALL = dict(layers=2, width=8, batch=2, size=8, classes=40)

def made(what):
    if sys.argv[0].endswith("run_rank.py") and sys.argv[2] == "1":
        what()
    return net(**SMALL)

def killed():
    return made(lambda: os.kill(os.getpid(), signal.SIGKILL))

def failing():
    return made(lambda: 1 / 0)

def stuck():
    return made(lambda: time.sleep(10**6))

def empty():
    return torch.nn.ReLU(), torch.ones(2, 2), torch.nn.functional.mse_loss, torch.ones(2, 2)

def wider():
    return net(**{**SMALL, "classes": 41})

def elsewhere():
    model, *rest = net(**SMALL)
    return model.to("meta"), *rest
"""


def factory(folder: Path, name: str) -> str:
    (folder / "factories.py").write_text(FACTORIES)
    return f"{folder / 'factories.py'}:{name}"


def refused(capsys: pytest.CaptureFixture[str], code: int, message: str) -> None:
    """One line, exit code 2."""
    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith("gapless")
    assert err.count("\n") == 1
    assert message in err


@needs_torch
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("nowhere:net", [], "--model: nowhere:net can't be imported"),
        ("train:net,layers", [], "--model: options must be as in train:gpt,layers=4"),
        ("empty", [], "--model: must have a parameter that requires a gradient, got none"),
        ("elsewhere", [], "--model: ranks run on the CPU, over gloo, got parameters on meta"),
        ("wider", [], "parameter '10.weight': must have 5120 bytes as in the plan, got 5248"),
        (
            "train:net,layers=1,width=8",
            [],
            "parameter '5.weight': must be in the plan of 'small'; measure the model again",
        ),
        (SMALL, ["--dilation", "2"], "--dilation: goes with emulate step"),
        (SMALL, ["--loss", "2"], "--loss: goes with train, the number of steps to descend"),
    ],
)
def test_what_cannot_run_is_refused_before_any_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, options: list[str], message: str
) -> None:
    name = model if ":" in model else factory(tmp_path, model)
    refused(capsys, run(solved(tmp_path), "--quiet", *options, model=name), message)


@needs_torch
def test_a_mode_without_a_hook_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cost = {"kind": "affine", "alpha_s": 1e-3, "beta_s_per_byte": 1e-8}
    plan = solved(tmp_path, modes=[{"name": "gzip", "error": "unbiased", "communication": cost}])
    refused(capsys, run(plan, "--quiet"), "mode: must be one of none, fp16")


@needs_torch
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hooks", "topk,half"], "mode: must be one of none, fp16"),
        (["--latency", "1ms"], "--latency: goes with bandwidth"),
        (["--model", "train:net,size=1"], "--model: size must be 4 at least for 6 layers"),
        (["-o", "nowhere/p.json"], "nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    path = str(tmp_path / "p.json")
    refused(capsys, main(["profile", "gradients", "--model", SMALL, "-o", path, "--quiet", *options]), message)
    assert not Path(path).exists()


@pytest.mark.parametrize("words", ["run cupcake --plan p.json", "profile gradients -o p.json"])
def test_no_ranks_are_refused(capsys: pytest.CaptureFixture[str], words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--model", SMALL, "--ranks", "0"])
    refused(capsys, int(str(ended.value)), "--ranks: must be a whole number in 1..1024, got '0'")


def test_a_plan_of_another_system_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "p.json")
    question = ["--topology", "ring:4", "--collective", "allgather", "--size", "1MB", "--time-limit", "5"]
    assert main(["solve", "taccl", *question, "-o", plan, "--quiet"]) == 0
    refused(capsys, run(plan), "run takes a plan of cupcake, got one of taccl")


def test_a_plan_that_does_not_replay_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Path(solved(tmp_path))
    data = json.loads(plan.read_text())
    data["schedule"]["end_s"][-1] += 1.0
    data["schedule"]["start_s"][-1] -= 100.0
    plan.write_text(json.dumps(data))
    assert run(str(plan)) == 5
    assert "not run: " in capsys.readouterr().out


# -- how ranks end -----------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("killed", "rank 1: its process was killed by signal 9; the others were ended"),
        ("failing", "rank 1: ZeroDivisionError: division by zero"),
        ("stuck", "rank 0: no message from another rank within the time that it may wait"),
    ],
)
def test_a_rank_that_does_not_come_through_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    code = run(solved(tmp_path), "--wait", "10s", "--quiet", model=factory(tmp_path, name))
    refused(capsys, code, message)


@needs_torch
@pytest.mark.thorough
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    words = ["run", "cupcake", "--plan", solved(tmp_path), "--model", factory(tmp_path, "stuck")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-m", "gapless", *words], stderr=subprocess.PIPE, text=True,
                               env=environment, cwd=tmp_path)  # fmt: skip
    while not list(tmp_path.glob("gapless-ranks-*/store")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 2
    assert said.splitlines()[-1] == "gapless: error: the ranks were stopped before they were done"
    assert not list(tmp_path.glob("gapless-ranks-*"))
    held = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in held
