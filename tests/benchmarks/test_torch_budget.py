"""The model of docs/comparisons/memory.md in three budgets: plans keep them, beside PyTorch's own memory budget.

`pytest tests/benchmarks/test_torch_budget.py --tables FOLDER`, a minute of processor time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks
from result_tables import ResultTables

from gapless.cli.main import main

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

TITLE = "Peaks above parameters and inputs (MB) of a small language model without dropout"


@pytest.mark.parametrize("budget", ["0.8x", "0.5x", "0.4x"])
@pytest.mark.usefixtures("takes_minutes", "keep_tables")
def test_plans_keep_their_budget_with_eagers_bits(
    budget: str,
    tables: ResultTables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs" / "comparisons" / "memory.md").read_text(encoding="utf-8")
    (model,) = (block.text for block in blocks(page) if block.mark == "file: train.py")
    (tmp_path / "train.py").write_text(model, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["run", "monet", "--model", "train.py:small", "--budget", budget, "--steps", "1", "--json", "--quiet"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    peaks = {method["name"]: method["peak_bytes"] for method in answer["methods"]}
    (theirs,) = (name for name in peaks if name.startswith("activation_memory_budget"))
    tables.table("torch_budget", TITLE).add(
        budget,
        budget_mb=round(answer["budget_bytes"] / 1e6, 1),
        eager=round(peaks["eager"] / 1e6, 2),
        per_block=round(peaks["checkpoint per block"] / 1e6, 2),
        share=float(theirs.split()[-1]),
        pytorch=round(peaks[theirs] / 1e6, 2),
        plan=round(peaks["gapless"] / 1e6, 2),
    )
    assert peaks["gapless"] <= answer["budget_bytes"]
