"""GPT-2, Llama-like and ViT blocks on meshes of a DGX-H100: planned in a minute of a core, beside published layouts.

`pytest tests/benchmarks/test_sharded_models.py --tables FOLDER` writes the table of docs/how-to/shard-your-model.md.
Costs are nanoseconds of a predicted step, and so independent of the machine; seconds are the processor's.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from extras import needs_transformers
from result_tables import ResultTables

from gapless.profiles.layouts.published import BASELINES

FACTORIES = Path(__file__).resolve().parents[1] / "support" / "sharded_models.py"
TITLE = "Twelve layers of width 256, batch 8: a step in microseconds, beside published layouts under the same costs"
MOST_CPU_S, LIMIT_S = 60.0, 40.0
NS_PER_US = 1000
SHORT = "gpt2-2x2-roomy"


@pytest.mark.shortest(SHORT)
@pytest.mark.parametrize("memory", ["80GB", "least"], ids=["roomy", "tight"])
@pytest.mark.parametrize("mesh", ["2x2", "2x4"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
@needs_transformers
@pytest.mark.usefixtures("keep_tables")
def test_plans_are_never_worse_than_published_layouts(
    name: str, mesh: str, memory: str, tables: ResultTables, limit_s: Callable[[float], float], tmp_path: Path
) -> None:
    key = f"{name} {mesh} {memory}"
    if memory == "least":  # of the published layouts, only the leanest fits
        rows = _baselines(_planned(name, mesh, "80GB", 1.0, tmp_path))
        memory = str(min(rows[name][1] for name in BASELINES if name in rows) + 1)
    before_s = _cpu_s()
    found = _planned(name, mesh, memory, limit_s(LIMIT_S), tmp_path)
    spent_s, rows = _cpu_s() - before_s, _baselines(found)
    limit = found["saved"]["problem"]["usage_limit_bytes"]
    fitting = {each: step_us for each, (step_us, peak) in rows.items() if peak <= limit}
    objective = found["objective"]
    assert fitting
    assert all(objective <= round(step_us * NS_PER_US) for step_us in fitting.values())
    bound, gap = found["bound"], found["gap"]  # None where the shortest form's limit ends presolve
    assert bound is None or bound <= objective
    assert spent_s <= MOST_CPU_S
    cells = {each: f"{step_us:,.0f}" if each in fitting else "-" for each, (step_us, _) in rows.items()}
    tables.table("sharded_models", TITLE).add(
        key, model=name, mesh=mesh, memory=f"{limit / 1e6:,.0f} MB", **cells,
        gapless=f"{objective / NS_PER_US:,.0f}", bound="-" if bound is None else f"{bound / NS_PER_US:,.0f}",
        gap="-" if gap is None else f"{100 * gap:.1f} %", status=found["status"], cpu_s=round(spent_s),
    )  # fmt: skip


def _planned(name: str, mesh: str, memory: str, limit_s: float, folder: Path) -> dict:
    plan = folder / "plan.json"
    words = ["--model", f"{FACTORIES}:{name}", "--mesh", mesh, "--topology", "dgx-h100", "--memory", memory]
    command = [
        *(sys.executable, "-m", "gapless", "solve", "sharding", *words, "--json", "--quiet", "-o", str(plan)),
        *("--time-limit", f"{limit_s:g}", "--threads", "1"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {**json.loads(done.stdout), "saved": json.loads(plan.read_text())}


def _baselines(found: dict) -> dict[str, tuple[float, int]]:
    """Step in microseconds and peak in bytes, by name."""
    rows = found["saved"]["details"]["baselines"]
    return {row["name"]: (row["step_s"] * 1e6, row["peak_bytes"]) for row in rows}


def _cpu_s() -> float:
    """Of all that was started here and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
