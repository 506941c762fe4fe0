"""`gapless solve monet`: plans, objectives, impossible budgets and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from calls import run
from powered_training import fast_or_frugal, with_power

from gapless.profiles.training.graph_file import write_training_graph

MONET = ["solve", "monet", "--graph", "vgg16", "--batch", "16", "--gap", "0.1", "--time-limit", "60"]


def test_monet_plan_is_written_replayed_and_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    code, out, _ = run(capsys, *MONET, "--budget", "0.7x", "--json", "--quiet", "-o", str(plan))
    data = json.loads(out)
    assert code == 0
    assert data["valid"] is True
    assert data["makespan_s"] == pytest.approx(data["objective_s"])
    assert data["bound_s"] <= data["objective_s"]
    assert run(capsys, "check", str(plan), "--quiet")[0] == 0
    code, out, _ = run(capsys, "show", str(plan))
    assert code == 0
    assert "recompute" in out
    assert "% of the budget" in out


def test_the_replay_of_a_plan_that_offloads_says_host(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    asked = ("--graph", "unet", "--batch", "2", "--budget", "0.4x", "--offload", "12GB/s", "--method", "offload-all")
    assert run(capsys, "solve", "monet", *asked, "-o", plan)[0] == 0
    for command in ("check", "show"):
        out = run(capsys, command, plan)[1]
        assert re.search(r"peak memory [\d.]+ GB on host\n", out), out


def test_energy_is_minimised_printed_and_saved_in_joules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    write_training_graph(graph, fast_or_frugal())
    arguments = ["solve", "monet", "--graph", str(graph), "--budget", "1000B", "--objective", "energy"]
    code, out, err = run(capsys, *arguments, "--json", "-o", str(plan))
    data = json.loads(out)
    assert code == 0
    assert (data["asked"]["objective"], data["status"]) == ("energy", "optimal")
    assert (data["energy_j"], data["makespan_s"]) == pytest.approx((160.0, 8.0))
    assert data["objective_j"] == pytest.approx(data["energy_j"])
    assert data["bound_j"] == pytest.approx(160.0, rel=1e-5)
    assert not {"objective_s", "bound_s", "unlimited_s", "forward_s"} & set(data)
    assert re.search(r"incumbent +160 J +bound +160 J", err)
    assert json.loads(run(capsys, "check", str(plan), "--json")[1])["energy_j"] == data["energy_j"]
    code, out, _ = run(capsys, *arguments)
    for line in (r"objective +energy", r"makespan +8 s", r"energy +160 J", r"bound +160 J"):
        assert re.search(line, out), out
    code, out, _ = run(capsys, "show", str(plan))
    assert code == 0
    for line in (r"objective +160 J", r"recompute +0 J", r"makespan 8 s, energy 160 J, peak"):
        assert re.search(line, out), out


def test_time_stays_the_objective_and_tells_the_energy_where_it_is_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_training_graph(tmp_path / "graph.json", fast_or_frugal())
    write_training_graph(tmp_path / "unknown.json", with_power(fast_or_frugal(), lambda impl: None))
    for name, energy_j in (("graph", 300.0), ("unknown", None)):
        arguments = ["--graph", str(tmp_path / f"{name}.json"), "--budget", "1000B", "--json", "--quiet"]
        data = json.loads(run(capsys, "solve", "monet", *arguments)[1])
        assert (data["asked"]["objective"], data.get("energy_j")) == ("time", energy_j)
        assert data["makespan_s"] == pytest.approx(4.0)
        assert data["bound_s"] <= data["objective_s"]


def test_energy_of_a_graph_without_powers_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "graph.json"
    write_training_graph(path, with_power(fast_or_frugal(), lambda impl: None))
    arguments = ["solve", "monet", "--graph", str(path), "--budget", "9B", "--objective", "energy"]
    code, out, err = run(capsys, *arguments, "--quiet", "-o", str(tmp_path / "plan.json"))
    assert (code, out) == (2, "")
    assert re.fullmatch(r"gapless: error: objective 'energy': every implementation must have power_w, .*\n", err), err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.thorough
def test_impossible_memory_budget_names_the_least_possible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, *MONET, "--budget", "100MB", "--quiet", "-o", str(tmp_path / "plan.json"))
    assert code == 3
    assert "infeasible" in err
    assert re.search(r"every plan needs at least [\d,]+ bytes .*proven; a plan was found for", err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--graph", "vgg16", "--budget", "8GiB"], r"--batch: must be given: vgg16 is built for any batch size"),
        (["--graph", "missing.json", "--budget", "8GiB"], r"cannot read missing.json"),
        (["--graph", "missing.json", "--batch", "8", "--budget", "8GiB"], r"go with a named network"),
        (["--graph", "vgg16", "--batch", "8", "--budget", "8XB"], r"--budget: must be a number and a unit"),
        (["--graph", "vgg16", "--batch", "8", "--budget", "80%"], r"got '80%'; a share is written 0.8x"),
        (["--graph", "vgg16", "--batch", "8", "--budget", "-1x"], r"--budget"),
        (
            ["--graph", "vgg16", "--batch", "8", "--budget", "1x", "--objective", "power"],
            r"must be one of time, energy, got 'power'",
        ),
        (["--graph", "vgg16", "--batch", "8", "--device", "p1000", "--budget", "8GiB"], r"p100"),
    ],
)
def test_bad_monet_input_gets_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, _, err = run(capsys, "solve", "monet", *arguments, "--quiet")
    assert code == 2
    assert re.search(message, err), err
    assert err.count("\n") == 1
