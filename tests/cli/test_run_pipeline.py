"""`gapless run pipeline` and `gapless profile`: what they print, their JSON objects, what is refused, how ranks end."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from extras import needs_torch
from pipeline_plans import baseline_plan, errors_table, gpt_profile

from gapless.checker import check
from gapless.cli.main import main
from gapless.errors import RunError
from gapless.io.plan import SavedPlan, write_plan

SMALL = "train:gpt,hidden=32,sequence=16"
TWO: dict[str, Any] = {"ranks": 2, "micro_batches": 3, "profile": gpt_profile(2, (16, 32))}


def saved(folder: Path, plan: SavedPlan) -> str:
    write_plan(folder / "plan.json", plan)
    return str(folder / "plan.json")


def run(plan: str, *options: str, model: str = SMALL, ranks: int = 2) -> int:
    return main(["run", "pipeline", "--model", model, "--ranks", str(ranks), "--plan", plan, *options])


@needs_torch
def test_a_plan_runs_and_says_what_was_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(tmp_path, baseline_plan("zb-h1", **TWO)), "--form", "communication") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step +predicted .*, measured .* \(median of 5\), [\d.e-]+ of it", lines.pop())
    number = r"[\d,]+"
    kept = rf"kept bytes       {number} {number} at most, by autograd; by the plan's profile {number} {number}"
    assert re.fullmatch(kept, lines.pop(4))
    assert lines == [
        "ran              2 processes, 2 stages, 3 micro-batches",
        "gradients        29 of 29 bit-equal to one process",
        "losses           3 of 3 bit-equal to one process",
        "in flight        2 2 at most, once a stage: the replay's",
        "sent bytes       6144 6144: the plan's",
    ]


@needs_torch
@pytest.mark.thorough
def test_a_compressed_plan_says_the_measured_error_beside_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modes = {"compression": errors_table("rank 2"), "error_budget": 0.02, "hop_modes": {(0, 1): 1, (0, 2): 1}}
    assert run(saved(tmp_path, baseline_plan("1f1b", **TWO, **modes)), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compressed_hops"] == 2
    assert found["sent_bytes"] == found["planned_sent_bytes"] == [6144, 2048 + 2 * 4 * 2 * (16 + 32)]
    assert 0 < found["error"] < 1
    assert found["ledger"] == pytest.approx({"hops": 2 * 0.01 / 3, "all": 2 * 0.01 / 3, "budget": 0.02})


@needs_torch
def test_ranks_that_wait_instead_of_computing_say_the_predicted_step_and_the_measured_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = baseline_plan("zb-h1", **TWO)
    plan = saved(tmp_path, made)
    words = ["run", "pipeline", "--emulate", "links", "--op", "1ms", "--repeats", "2", "--ranks", "2", "--plan", plan]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["op_s"] == pytest.approx(1e-3)
    assert found["predicted_s"] == pytest.approx(1e-3 * check(made.schedule).makespan_s / 20)  # seconds an op
    assert found["measured_s"] >= found["predicted_s"]
    assert found["ratio"] == found["measured_s"] / found["predicted_s"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--emulate", "links", "--model", SMALL], "--model: must be left out where computing is emulated"),
        (["--emulate", "compute", "--steps", "3"], "--steps: must be left out where computing is emulated"),
        ([], "--model: must be given, unless computing is emulated"),
    ],
)
@needs_torch
def test_a_model_is_for_ranks_that_compute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    plan = saved(tmp_path, baseline_plan("1f1b", **TWO))
    assert main(["run", "pipeline", "--ranks", "2", "--plan", plan, *options]) == 2
    assert message in capsys.readouterr().err


ENDING = """
import os, signal, sys, time
from gapless.torch.pipeline.gpt import gpt

def made(what):
    if sys.argv[0].endswith("processes.py") and sys.argv[2] == "1":
        what()
    return gpt(layers=2, hidden=32, sequence=16, micro_batches=3)

def killed():
    return made(lambda: os.kill(os.getpid(), signal.SIGKILL))

def failing():
    return made(lambda: 1 / 0)

def elsewhere():
    model, *rest = gpt(layers=2, hidden=32, sequence=16, micro_batches=3)
    return model.to("meta"), *rest

def stuck():
    return made(lambda: time.sleep(10**6))
"""


@needs_torch
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("killed", "rank 1: its process was killed by signal 9; the others were ended"),
        ("failing", "rank 1: ZeroDivisionError: division by zero"),
        ("stuck", "rank 0: no message from another rank within the time that it may wait"),
    ],
)
def test_a_rank_that_does_not_come_through_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factory: str, message: str
) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    plan = saved(tmp_path, baseline_plan("1f1b", **TWO))
    assert run(plan, "--wait", "10s", "--quiet", model=f"{tmp_path / 'ending.py'}:{factory}") == 2
    found = capsys.readouterr()
    assert found.err.startswith(f"gapless: error: {message}")
    assert found.err.count("\n") == 1


@needs_torch
def test_ranks_that_are_stopped_leave_no_process(tmp_path: Path) -> None:
    from gapless.torch.pipeline.run import prepared
    from gapless.torch.processes import run_processes

    stop = threading.Event()
    stop.set()
    with pytest.raises(RunError, match="the ranks were stopped before they were done"):
        run_processes(prepared, tmp_path, 2, 60.0, stop)
    held = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in held


@needs_torch
@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({}, {"ranks": 3}, "--ranks: {plan} is a plan for 2 ranks, got 3"),
        ({}, {"model": "train:gpt,layers=5"}, "--model: the plan is for 4 layers, train:gpt,layers=5 has 7"),
        ({}, {"model": "{folder}/ending.py:elsewhere"}, "--model: ranks run on the CPU, over gloo, got"),
        ({}, {"model": "nowhere:gpt"}, "--model: nowhere:gpt can't be imported"),
        (
            {"compression": errors_table("quarter"), "error_budget": 1.0, "hop_modes": {(0, 0): 1}}, {},
            "mode: must be one of none, fp16, bf16",
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_any_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    plan = saved(tmp_path, baseline_plan("1f1b", **TWO, **values))
    options = {key: value.format(folder=tmp_path) if key == "model" else value for key, value in options.items()}
    assert run(plan, "--quiet", **options) == 2
    assert f"gapless: error: {message.format(plan=plan)}" in capsys.readouterr().err


def test_a_plan_that_does_not_replay_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Path(saved(tmp_path, baseline_plan("1f1b", **TWO)))
    data = json.loads(plan.read_text())
    data["schedule"]["end_s"][-1] += 1.0
    data["schedule"]["start_s"][-1] -= 100.0
    plan.write_text(json.dumps(data))
    assert run(str(plan)) == 5
    assert "not run: " in capsys.readouterr().out


def test_a_plan_of_another_system_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "taccl", "--topology", "ring:4", "--collective", "allgather", "--size", "1MB", "-o",
                 str(tmp_path / "p.json"), "--quiet", "--time-limit", "5"]) == 0  # fmt: skip
    assert run(str(tmp_path / "p.json")) == 2
    assert "run takes a plan of pipeline, got one of taccl" in capsys.readouterr().err


@needs_torch
def test_profiles_are_measured_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, layers, errors = f"{SMALL},layers=2", str(tmp_path / "p.json"), str(tmp_path / "e.json")
    assert main(["profile", "pipeline", "--model", model, "--repeats", "1", "-o", layers]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["layer", "embedding", "layer1", "layer2", "head", "measured", "I"]
    assert main(["profile", "pipeline", "--model", model, "--processes", "2", "--repeats", "1", "-o", layers]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].endswith("medians of 1 in 2 processes at once")
    assert lines[-1].startswith("I and W apart take ")
    assert all("0 s" not in line for line in lines[2:-2]), "the embedding alone has no gradient of its input"
    assert main(["profile", "compression-error", "--model", model, "--micro-batches", "2", "--modes", "rank 2,float16",
                 "--repeats", "1", "--depths", "2", "-o", errors, "--json"]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["modes"] == ["rank 2", "float16"]
    assert main(["solve", "pipeline", "--profile", layers, "--ranks", "2", "--micro-batches", "4", "--bandwidth",
                 "1Gbps", "--compression", errors, "--error-budget", "0.1", "--quiet"]) == 0  # fmt: skip


@needs_torch
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--modes", "rank 2,half"], "mode: must be one of none, fp16"),
        (["--modes", "rank 11"], "sends no less than the plain gradient"),
        (["--micro-batches", "2", "--model", "train:gpt,micro_batch=1,micro_batches=3"], "the batch of 3 must divide"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    words = ["profile", "compression-error", "--model", SMALL, "--repeats", "1", "-o", str(tmp_path / "e.json")]
    assert main([*words, *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "e.json").exists()
