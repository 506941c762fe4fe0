"""Twelve layers of GPT-2, a Llama and ViT, run by their plans on four processes, beside one process.

`pytest tests/benchmarks/test_sharded_steps.py --tables FOLDER` writes the table of docs/how-to/run-sharding.md. Bytes
and memory are counted, and so independent of the machine. What is asserted: losses and gradients are those of one
process, and each process sends the plan's bytes, also by the kernel's count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from extras import needs_transformers
from result_tables import ResultTables

FACTORIES = Path(__file__).resolve().parents[1] / "support" / "sharded_models.py"
LIMIT_S = 20.0
SHORT = "vit"


@pytest.mark.shortest(SHORT)
@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
@needs_transformers
@pytest.mark.usefixtures("keep_tables")
def test_steps_by_plans_are_those_of_one_process(name: str, tables: ResultTables, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    asked = ["--model", f"{FACTORIES}:{name}", "--mesh", "2x2", "--topology", "dgx-h100", "--time-limit", str(LIMIT_S)]
    _said("solve", "sharding", *asked, "-o", plan)
    found = _said("run", "sharding", "--plan", plan, "--repeats", "1")
    sent = max(found["sent_bytes"])
    tables.table("sharded_steps", "Twelve layers on four processes, beside one process").add(
        name, model=name, loss=f"{found['losses'][-1]:.4f}", loss_off=f"{found['loss_error']:.0e}",
        gradient_off=f"{found['error']:.0e}", sent_mb=round(sent / 1e6, 2),
        counted=round(max(found["socket_bytes"]) / sent, 3), collectives=found["collectives"],
        planned_peak_mb=round(found["planned_peak_bytes"] / 1e6, 1),
        peak_mb=round(max(found["alone_peak_bytes"]) / 1e6, 1),
    )  # fmt: skip
    assert found["valid"]


def _said(*words: str) -> dict:
    command = [sys.executable, "-m", "gapless", *words, "--json"]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)
