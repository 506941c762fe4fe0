"""`gapless run sharding`: what is compared, what is refused, and whole runs in processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from extras import needs_torch

import gapless
from gapless.cli.main import main
from gapless.encodings.sharding.execution.question import RunQuestion
from gapless.profiles.layouts.layouts import MeshLayouts

GPT = "train:gpt,layers=1,hidden=16,heads=4,vocabulary=32,sequence=8,micro_batch=8"


def _data(both: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """What is said of two ranks, `both` with some changes, the second with more."""
    from gapless.encodings.sharding.execution.running import found_data
    from gapless.torch.sharding.execution.ranks import RankFound

    sent = (("all_gather", 0, 600), ("all_reduce", 0, 400))
    rank = RankFound(
        losses=(2.0, 1.0), expected_losses=(2.0, 1.00001), error=1e-6, furthest="the gradient of w", planned_bytes=sent,
        sent_bytes=sent, socket_bytes=1500, messages=2, given_bytes=10, state_bytes=20, step_bytes=40,
        step_s=(3.0, 1.0, 2.0), alone_s=0.5, alone_bytes=30, planned_wire_s=0.1, predicted_wire_s=0.25,
    )  # fmt: skip
    rank, question = replace(rank, **(both or {})), RunQuestion(plan="plan.json")
    return found_data(question, MeshLayouts((2,), "", ()), (rank, replace(rank, **changes)), 55)


@needs_torch
def test_what_is_equal_is_valid_and_what_takes_longest_counts() -> None:
    data = _data(step_s=(1.0, 4.0, 2.0), step_bytes=50, alone_s=0.75)
    assert data["valid"]
    assert data["measured_s"] == 3.0
    assert data["predicted_s"] == 1.0
    assert (data["peak_bytes"], data["alone_peak_bytes"], data["planned_peak_bytes"]) == ([70, 80], [60, 60], 55)
    assert data["loss_error"] == pytest.approx(1e-5, rel=1e-3)


@needs_torch
@pytest.mark.parametrize(("socket_bytes", "is_well"), [(0, True), (256, True), (257, False)])
def test_of_a_plan_that_sends_nothing_barriers_alone_are_counted(socket_bytes: int, is_well: bool) -> None:
    nothing = {"planned_bytes": (), "sent_bytes": (), "messages": 0, "socket_bytes": socket_bytes}
    data = _data(nothing, **nothing)
    assert data["checks"]["counted"] == data["valid"] == is_well


@needs_torch
@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("losses", {"losses": (2.0, 1.1)}),
        ("losses", {"losses": (float("nan"), 1.0)}),
        ("gradients", {"error": 0.01}),
        ("sent", {"sent_bytes": (("all_gather", 0, 601), ("all_reduce", 0, 400))}),
        ("counted", {"socket_bytes": 999}),
        ("counted", {"socket_bytes": 10_000}),
    ],
)
def test_what_one_rank_finds_otherwise_is_not_valid(check: str, changes: dict[str, Any]) -> None:
    data = _data(**changes)
    assert not data["valid"]
    assert [name for name, is_well in data["checks"].items() if not is_well] == [check]


def _solved(folder: Path, mesh: str, method: str, model: str = GPT) -> str:
    path = folder / "plan.json"
    plan = gapless.sharding.solve(model=model, mesh=mesh, topology="dgx-h100", method=method, time_limit=5.0)
    plan.save(path)
    return str(path)


@needs_torch
def test_what_cannot_run_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = tmp_path / "instance.json"
    gapless.sharding.solve("drawn:nodes=5,choices=2").save(instance)
    model = _solved(tmp_path, "2", "ddp")
    for plan, options, said in (
        (str(instance), (), "run takes the plan of a model, got one of an instance"),
        (model, ("--processes", "4"), "processes: must be those of the plan's mesh, 2, got 4"),
        (model, ("--latency", "1ms"), "latency: is of the wire; give bandwidth too"),
        (model, ("--bandwidth", "1MB/s,2MB/s"), "bandwidth: must be one, or one for each of 1 axes, got 2"),
    ):
        assert main(["run", "sharding", "--plan", plan, *options]) == 2
        line = capsys.readouterr().err
        assert said in line
        assert line.count("\n") == 1


@needs_torch
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mesh", "method"),
    [("2x2", "best"), ("2x2", "fsdp"), ("2x2", "megatron"), ("4", "fsdp"), ("8", "fsdp"), ("2x4", "megatron_fsdp")],
)
def test_steps_in_processes_are_those_of_one_process(
    mesh: str, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _solved(tmp_path, mesh, method)
    capsys.readouterr()
    assert main(["run", "sharding", "--plan", plan, "--repeats", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checks"] == dict.fromkeys(("losses", "gradients", "sent", "counted"), True)
    assert found["processes"] == len(found["peak_bytes"]) == len(found["sent_bytes"])
    assert max(found["alone_peak_bytes"]) < 1.5 * found["planned_peak_bytes"]


@needs_torch
@pytest.mark.thorough
def test_an_emulated_wire_holds_processes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = _solved(tmp_path, "2x2", "ddp")
    capsys.readouterr()
    wire = ["--bandwidth", "40kB/s,400kB/s", "--latency", "10ms"]
    assert main(["run", "sharding", "--plan", plan, "--repeats", "1", "--json", *wire]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured_s"] >= found["predicted_s"] - found["alone_s"]
