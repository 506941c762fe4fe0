"""`gapless solve oktopk` and `gapless advise sparse`: what they print, what is refused, pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calls import run

import gapless
from gapless.io.plan import read_plan
from gapless.profiles.sparsity.index_file import find_index_sets, write_index_sets
from gapless.profiles.sparsity.index_sets import index_sets

SOLVE = ["solve", "oktopk", "--indices", "drifting:elements=4000,steps=4", "--ranks", "4", "--density", "0.02"]
ADVISE = ["advise", "sparse", "--indices", "drifting:elements=4000,steps=3", "--ranks", "4"]


def test_a_plan_says_its_regions_and_replays(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    code, out, _ = run(capsys, *SOLVE, "--held-out", "1", "--json", "-o", str(path))
    answer = json.loads(out)
    assert code == 0
    assert answer["valid"]
    assert answer["objective_s"] == pytest.approx(answer["makespan_s"]) == max(answer["step_s"])
    assert answer["bound_s"] <= answer["objective_s"]
    assert len(answer["cuts"]) == 5
    assert sorted(answer["owners"]) == [0, 1, 2, 3]
    assert answer["method"] == "robust"
    assert set(answer["later_ratio"]) == {"plan", "averaged", "even"}
    assert answer["words"]["plan"] >= answer["words"]["least with these overlaps"]
    code, out, _ = run(capsys, "show", str(path))
    assert code == 0
    assert "new boundaries every" in out
    assert "least with these overlaps" in out
    assert run(capsys, "check", str(path))[0] == 0


def test_the_worst_step_is_the_one_in_the_schedule_and_the_mean_is_of_all() -> None:
    worst = gapless.oktopk.solve("clustered:elements=3000,steps=3", ranks=4, density=0.02, method="exact")
    assert worst.report is not None
    assert worst.report.makespan_s == pytest.approx(max(worst.details["step_s"]))
    assert worst.details["replayed_steps"] == [int(np.argmax(worst.details["step_s"]))]
    mean = gapless.oktopk.solve(
        "clustered:elements=3000,steps=3", ranks=4, density=0.02, method="exact", objective="mean"
    )
    assert mean.report is not None
    assert mean.report.makespan_s == pytest.approx(sum(mean.details["step_s"]))
    assert mean.details["replayed_steps"] == [0, 1, 2]


def test_auto_is_no_worse_than_any_method() -> None:
    asked = {"indices": "clustered:elements=3000,steps=2", "ranks": 6, "density": 0.02, "latency": 0.0}
    best = gapless.oktopk.solve(**asked)
    for method in ("averaged", "even", "exact", "joint"):
        other = gapless.oktopk.solve(**asked, method=method)
        assert best.solution.objective <= other.solution.objective * (1 + 1e-9)


def test_a_machine_with_routes_of_several_links() -> None:
    result = gapless.oktopk.solve("clustered:elements=3000,steps=1", density=0.02, topology="ring:5")
    assert result.valid
    assert result.problem.sets.ranks == 5


def test_recorded_sets_come_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "grads.npz"
    write_index_sets(path, find_index_sets("clustered:elements=3000,steps=2", 4, 0.02))
    code, out, _ = run(capsys, "solve", "oktopk", "--indices", str(path), "--density", "0.01", "--json")
    assert code == 0
    assert json.loads(out)["asked"]["density"] == 0.01
    code, _, err = run(capsys, "solve", "oktopk", "--indices", str(path), "--density", "0.5")
    assert code == 2
    assert "density: must be at most 0.02" in err
    write_index_sets(path, index_sets([[[0, 1], [1, 5]]], 9))
    code, _, err = run(capsys, "solve", "oktopk", "--indices", str(path), "--selection", "topk")
    assert code == 2
    assert "selection: topk needs values in the index sets" in err


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--indices", "clusterd"], "did you mean 'clustered'"),
        (["--indices", "none.npz"], "cannot read none.npz"),
        (["--indices", "uniform", "--ranks", "1"], "ranks: must be a whole number in 2..1024"),
        (["--indices", "uniform", "--ranks", "4", "--topology", "ndv2"], "choose nodes"),
        (["--indices", "uniform", "--bandwidth", "1Gbps", "--topology", "ndv2"], "bandwidth: goes without topology"),
        (["--indices", "uniform", "--nodes", "2"], "nodes: goes with topology"),
        (["--indices", "uniform:elements=900,steps=2", "--held-out", "2"], "held_out: must leave one of the 2 steps"),
        (["--indices", "uniform", "--density", "0"], "density: must be a number > 0"),
        (["--indices", "uniform", "--method", "exakt"], "did you mean 'exact'"),
    ],
)
def test_bad_questions_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], rule: str) -> None:
    code, out, err = run(capsys, "solve", "oktopk", *arguments)
    assert (code, out) == (2, "")
    assert rule.replace("_", "-") in err.replace("_", "-")
    assert len(err.splitlines()) == 1 or "usage" in err


def test_advice_has_a_line_a_density(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ADVISE, "--densities", "0.01,0.2", "--bandwidth", "100Mbps", "--latency", "1us")
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split()[0] == "20.0000%"
    assert lines[2].split()[0] == "1.0000%"
    assert any(line.startswith("a dense ring takes") for line in lines)
    assert any(line.startswith("new boundaries every") for line in lines)


def test_advice_finds_the_density_below_which_sparse_pays(capsys: pytest.CaptureFixture[str]) -> None:
    """At 90 % of the entries, with an index each, a dense ring takes less."""
    network = ["--bandwidth", "10Mbps", "--latency", "0s"]
    code, out, _ = run(capsys, *ADVISE, "--densities", "0.9,0.3,0.01", *network, "--selection", "all", "--json")
    answer = json.loads(out)
    assert code == 0
    high, _, low = answer["rows"]
    assert low["sparse_s"] < answer["dense_s"] < high["sparse_s"]
    assert 0.01 < answer["pays_below"] < 0.9
    assert 0 < low["fill_in"] < high["fill_in"] <= 1
    assert answer["drift"]["exact"][0] <= answer["drift"]["averaged"][0]


def test_advice_refuses_densities_that_were_not_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "grads.npz"
    write_index_sets(path, index_sets([[[0, 1], [1, 5]]], 9))
    code, _, err = run(capsys, "advise", "sparse", "--indices", str(path), "--densities", "0.1,0.2")
    assert code == 2
    assert "densities: several need values" in err


def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, picture = tmp_path / "plan.json", tmp_path / "out.svg"
    assert run(capsys, *SOLVE, "-o", str(plan))[0] == 0
    for kind in ("loads", "density"):
        assert run(capsys, "plot", str(plan), "--kind", kind, "-o", str(picture))[0] == 0
        assert picture.read_bytes().startswith(b"<?xml")
    assert run(capsys, *ADVISE, "--densities", "0.01", "--plot", str(picture))[0] == 0
    assert picture.read_bytes().startswith(b"<?xml")
    saved = read_plan(plan)
    assert saved.system == "oktopk"
