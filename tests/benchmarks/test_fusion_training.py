"""Two small models trained with a measured plan, plain and compressed rivals: loss and held-out accuracy by second.

`pytest tests/benchmarks/test_fusion_training.py -s` measures each model's gradients in two processes, plans for a wire
of 200 Mb/s, and trains by `gapless run cupcake --train`, with emulated computation and wire. What is asserted: buckets
and exact gradients are the plan's, and fusions that lose nothing have the same losses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main

MODELS = {
    "convolutional": ("train:net,width=32,classes=100,batch=32,size=8", 0.1),
    "transformer": ("train:gpt,hidden=128,layers=2,micro_batch=4", 0.3),
}
SMALL = "train:net,layers=2,width=8,batch=2,size=8,classes=10"
WIRE = ["--bandwidth", "200Mbps", "--latency", "50us"]


@pytest.mark.parametrize("model", list(MODELS))
def test_exact_fusions_lose_alike(
    model: str, tmp_path: Path, sized: Callable[[Any, Any], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    name, rate = sized(MODELS[model], (SMALL, 0.05))
    profile, plan = str(tmp_path / "profile.json"), str(tmp_path / "plan.json")
    measure = ["profile", "gradients", "--model", name, "--hooks", "topk:0.02", "--within", "1000", *WIRE]
    assert main([*measure, "--repeats", sized("9", "1"), "-o", profile, "--quiet"]) == 0
    assert main(["solve", "cupcake", "--profile", profile, "-o", plan, "--quiet"]) == 0
    capsys.readouterr()
    how = [
        "--emulate",
        "step",
        "--dilation",
        sized("4", "1"),
        "--train",
        sized("160", "4"),
        "--batches",
        sized("16", "2"),
    ]
    command = ["run", "cupcake", "--plan", plan, "--model", name, "--repeats", "3", "--rate", str(rate), *how]
    assert main([*command, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    curves = {curve["name"]: curve for curve in found["time_to_loss"]["curves"]}
    for curve in curves.values():
        print(curve["name"], curve["reached_s"], curve["losses"][-1], curve["held_out"][-1], curve["accuracy"][-1])
    exact = [row for row in found["rows"] if row["is_exact"]]
    assert found["valid"]
    for row in exact[1:]:
        assert row["losses"] == pytest.approx(exact[0]["losses"], rel=1e-2)
