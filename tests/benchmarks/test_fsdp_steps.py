"""Steps of FSDP2 by plans, predicted and measured on emulated wires, beside FSDP2's default.

`pytest tests/benchmarks/test_fsdp_steps.py --tables FOLDER` writes the table of docs/how-to/run-fsdp.md. Measured steps
depend on what else the machine does. What is asserted is that gradients have the bits of FSDP2's default, collectives
the plan's order, and memory what is predicted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main
from gapless.profiles.pipelines.profile import PipelineProfile, write_pipeline_profile
from gapless.torch.pipeline.layers import load_layers

MODEL = "train:gpt,layers=6,hidden=64,sequence=32"
FORWARD_S, BACKWARD_S = (15e-6, *[215e-6] * 6, 40e-6), (35e-6, *[375e-6] * 6, 75e-6)
"""Of each layer, about what one core takes."""
CASES = {
    "2 ranks, 1 Gb/s, 900 KB": ("2", "1Gbps", "900KB", "fp32"),
    "2 ranks, 4 Gb/s, 900 KB": ("2", "4Gbps", "900KB", "fp32"),
    "2 ranks, 2 Gb/s, 600 KB, bf16": ("2", "2Gbps", "600KB", "bf16"),
    "4 ranks, 4 Gb/s, 900 KB": ("4", "4Gbps", "900KB", "fp32"),
    "4 ranks, 4 Gb/s, 3 MB": ("4", "4Gbps", "3MB", "fp32"),
    "4 ranks, 1 Gb/s, 3 MB": ("4", "1Gbps", "3MB", "fp32"),
    "2 nodes of 2, 1 Gb/s, 900 KB": ("4", "1Gbps", "900KB", "fp32"),
    "2 nodes of 2, 4 Gb/s, 900 KB": ("4", "4Gbps", "900KB", "fp32"),
}
NODES = ["--ranks-per-node", "2", "--inner-bandwidth", "8Gbps", "--inner-latency", "20us", "--state-bytes", "4"]
"""Of cases with nodes: bandwidth inside them is eight times as much; a rank trains by SGD, so that it holds a parameter
alone."""


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    layers = load_layers(MODEL).untied().layers
    sizes = np.array([4 * sum(each.numel() for each in layer.parameters()) for _, layer in layers], np.int64)
    none, names = np.zeros(len(layers), np.int64), tuple(name for name, _ in layers)
    times = np.array(FORWARD_S), np.zeros(len(layers)), np.array(BACKWARD_S)
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    write_pipeline_profile(path, PipelineProfile("small GPT", names, *times, sizes, sizes, none, none))
    return str(path)


@pytest.mark.usefixtures("takes_minutes")
@pytest.mark.parametrize("name", CASES)
def test_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, profile: str, tables: ResultTables
) -> None:
    ranks, bandwidth, memory, gather = CASES[name]
    plan = str(tmp_path / "plan.json")
    asked = ["--profile", profile, "--stored", "fp32", "--gather", gather, "--ranks", ranks, "--bandwidth", bandwidth]
    if name.startswith("2 nodes"):
        asked += [*NODES, "--sharding", "full,secondary,hybrid"]
    assert main(["solve", "fsdp", *asked, "--latency", "100us", "--memory", memory, "--quiet", "-o", plan]) == 0
    capsys.readouterr()
    running = ["--model", MODEL, "--dilation", "40", "--repeats", "3", "--json"]
    assert main(["run", "fsdp", "--plan", plan, *running]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    ours, default = found["rows"][:2]
    assert found["valid"]
    table = tables.table("fsdp_steps", "Steps of FSDP2, predicted and measured")
    table.add(
        name,
        predicted=_ms(ours["predicted_s"]), measured=_ms(ours["measured_s"]),
        default=_ms(default["predicted_s"]), default_measured=_ms(default["measured_s"]),
        faster=f"{default['measured_s'] / ours['measured_s']:.2f}",
    )  # fmt: skip


def _ms(duration_s: float) -> str:
    return f"{1e3 * duration_s:.2f} ms"
