"""Steps of pipelines, predicted and measured: by ranks that wait instead of computing, and by ranks that compute.

`pytest tests/benchmarks/test_pipeline_steps.py --tables FOLDER` writes the tables of docs/how-to/pipelines-torch.md.
The ratios are a measurement, and depend on what else the machine does: under `chrt -f 1` the ranks come first. What is
asserted is that the prediction is the plan's step, and what ran is the plan.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import gapless
from gapless.cli.main import main

OP = 40e-3
"""Seconds of an emulated op on the mean."""
SCHEDULES: dict[str, dict[str, Any]] = {
    "gpipe": {"method": "gpipe"},
    "1f1b": {"method": "1f1b"},
    "interleaved-1f1b": {"method": "interleaved-1f1b", "placement": "looped"},
    "zb-h1": {"method": "zb-h1"},
    "zb-v": {"method": "zb-v", "placement": "v"},
    "ours, 5 in flight": {"in_flight": 5},
}
MODEL = "train:gpt,layers=6,hidden=256,vocabulary=1024,sequence=256"
COMPUTED: dict[str, dict[str, str]] = {
    "gpipe": {"method": "gpipe", "backward": "whole"},
    "1f1b": {"method": "1f1b", "backward": "whole"},
    "zb-h1": {"method": "zb-h1"},
    "ours": {},
}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The JSON object of a command."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def row(found: dict[str, Any]) -> dict[str, str]:
    """What is printed of a step."""
    times = {name: f"{1e3 * found[f'{name}_s']:.0f} ms" for name in ("predicted", "measured")}
    return {**times, "ratio": f"{found['measured_s'] / found['predicted_s']:.3f}"}


@pytest.mark.usefixtures("takes_minutes")
@pytest.mark.parametrize("name", SCHEDULES)
def test_emulated_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, tables: ResultTables) -> None:
    plan = gapless.pipeline.solve("uniform:f=10,b=12,w=8", ranks=4, micro_batches=8, hop=2.0, **SCHEDULES[name])
    plan.save(tmp_path / "plan.json")
    common = ["run", "pipeline", "--ranks", "4", "--plan", str(tmp_path / "plan.json")]
    found = run(capsys, *common, "--emulate", "links", "--op", f"{OP}s", "--repeats", "3")
    busy_s = 8 * (10.0 + 12.0 + 8.0)  # of a rank: every schedule is of one scale by that
    assert found["predicted_s"] == pytest.approx(plan.report.makespan_s / busy_s * _busy_s(found, plan), rel=1e-9)
    assert found["measured_s"] >= found["predicted_s"]
    table = tables.table("pipeline_emulated", f"Four ranks that wait {1e3 * OP:.0f} ms an op, links too")
    table.add(name, **row(found), overhead=f"{1e6 * found['overhead_s']['median']:.0f} us")


def _busy_s(found: dict[str, Any], plan: Any) -> float:
    """How long a rank waits instead of computing, by the number of its ops."""
    ops = sum(len(line.split()) for line in plan.decision.order)
    return float(found["op_s"] * ops / 4)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the model, measured by two processes at once."""
    path = str(tmp_path_factory.mktemp("profile") / "profile.json")
    words = ["profile", "pipeline", "--model", MODEL, "--processes", "2", "--repeats", "15", "-o", path, "--quiet"]
    assert main(words) == 0
    return path


@pytest.mark.usefixtures("takes_minutes")
@pytest.mark.parametrize("name", COMPUTED)
def test_computed_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, profile: str, tables: ResultTables
) -> None:
    plan = gapless.pipeline.solve(profile, ranks=2, micro_batches=8, bandwidth="10Gbps", **COMPUTED[name])
    plan.save(tmp_path / "plan.json")
    found = run(capsys, "run", "pipeline", "--model", MODEL, "--ranks", "2", "--plan", str(tmp_path / "plan.json"),
                "--repeats", "9")  # fmt: skip
    assert found["planned_s"] == pytest.approx(plan.report.makespan_s, rel=1e-9)
    assert found["equal"] == found["gradients"]
    table = tables.table("pipeline_computed", "Two ranks that compute, a thread each")
    table.add(name, planned=f"{1e3 * found['planned_s']:.0f} ms", **row(found))
