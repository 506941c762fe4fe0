"""Runs carried out on emulated links, predicted and measured, beside other designs of the same batches.

`pytest tests/benchmarks/test_bagpipe_execution.py --tables FOLDER` writes the table of docs/bagpipe.md. Measured times
depend on what else the machine does; what is asserted of them is in no other unit than that of the prediction: that
they aren't shorter. Tables have the bits, or the values within rounding, that they must, and emulated times are the
predicted ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main

BESIDE = ("on-demand", "lfu", "partitioned", "lrpp-delayed", "table-wise")
CASES = {
    "wide-and-deep 10Gbps": ("25Gbps", "200"),
    "wide-and-deep 5Gbps": ("12.5Gbps", "100"),
    "wide-and-deep 1Gbps": ("2.5Gbps", "25"),
}
"""Of a model and a link: the server's link, and how many times as slow everything runs."""


@pytest.mark.usefixtures("takes_minutes")
@pytest.mark.parametrize("name", CASES)
def test_carried_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, tables: ResultTables) -> None:
    (model, bandwidth), (server, dilation), path = name.split(), CASES[name], str(tmp_path / "run.npz")
    size = ("--trainers", "4", "--batch-size", "2048", "--lookahead", "10", "--batches", "12")
    links = ("--model", model, "--trainer-bandwidth", bandwidth, "--server-bandwidth", server)
    assert main(["solve", "bagpipe", "--trace", "criteo-like", *size, *links, "-o", path, "--quiet"]) == 0
    capsys.readouterr()
    running = ("--beside", ",".join(BESIDE), "--dilation", dilation, "--json", "--quiet")
    assert main(["run", "bagpipe", "--plan", path, *running]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["valid"]
    own = found["rows"][0]
    table = tables.table("bagpipe-execution", "Runs carried out, predicted and measured")
    for row in found["rows"]:
        assert row["emulated_s"] == pytest.approx(row["predicted_s"], rel=0.01)
        assert row["measured_s"] >= 0.99 * row["predicted_s"]
        table.add(
            f"{name} {row['name']}", predicted=_ms(row["predicted_s"]), measured=_ms(row["measured_s"]),
            of_the_plan=f"{row['measured_s'] / own['measured_s']:.2f}",
        )  # fmt: skip


def _ms(duration_s: float) -> str:
    return f"{1e3 * duration_s:.1f} ms"
