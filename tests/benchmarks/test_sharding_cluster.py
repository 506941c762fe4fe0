"""Planned layouts on an emulated cluster: a step predicted beside measured. Needs root on Linux.

`pytest tests/benchmarks/test_sharding_cluster.py --tables FOLDER` plans a GPT for two nodes of two ranks, with one
cable a node, in published layouts and in the searched ones. The training runs among four processes, each in a network
namespace. Predicted is processor time without collectives, and what the plan says that collectives take. What is
asserted: losses and gradients are those of one process, each rank sends the plan's bytes, and where the machine is
quiet the prediction is within a quarter of what is measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from emulated_cluster import emulated_cluster, needs_cluster
from emulated_machines import one_cable
from emulated_ranks import TIMEOUT_S, command
from result_tables import ResultTables

import gapless
from gapless.emulation import lone_transfer

pytestmark = needs_cluster

MODEL = "train:gpt,layers=4,hidden=256,heads=8,vocabulary=512,sequence=64,micro_batch=16"
METHODS = ("best", "ddp", "fsdp", "hsdp", "megatron")
BYTES_PER_S = 100e6
"""What all ranks together can send at once."""
LIMIT_S = 10.0
_NEAR = 0.25


@pytest.mark.usefixtures("keep_tables", "takes_minutes")
@pytest.mark.parametrize("method", METHODS)
def test_a_planned_step_takes_what_is_predicted(method: str, tmp_path: Path, tables: ResultTables) -> None:
    path = tmp_path / "plan.json"
    with emulated_cluster(one_cable(2, 2), BYTES_PER_S) as cluster:
        plan = gapless.sharding.solve(
            model=MODEL, mesh="2x2", topology=cluster.topology, method=method, time_limit=LIMIT_S
        )
        plan.save(path)
        _, environment = command(path, 1)
        words = [sys.executable, "-m", "gapless", "run", "sharding", "--plan", str(path), "--model", MODEL]
        words += ["--repeats", "3", "--json"]
        before = lone_transfer(cluster)
        ended = cluster.run(words, TIMEOUT_S, environment)
        is_quiet = max(abs(before - 1), abs(lone_transfer(cluster) - 1)) < 0.05
    assert ended[0].code == 0, ended[0].out
    answer = json.loads(ended[0].out[ended[0].out.index("{") :])
    predicted_s, measured_s = answer["alone_s"] + answer["planned_wire_s"], answer["measured_s"]
    tables.table("sharding-cluster", "Planned layouts on an emulated cluster").add(
        method, layouts=method, sent_mb=round(max(answer["sent_bytes"]) / 1e6, 2), collectives=answer["collectives"],
        compute_s=round(answer["alone_s"], 3), predicted_s=round(predicted_s, 3), measured_s=round(measured_s, 3),
        predicted_over_measured=round(predicted_s / measured_s, 3), error=f"{answer['error']:.0e}",
        planned_peak_mb=round(answer["planned_peak_bytes"] / 1e6, 1),
        peak_mb=round(max(answer["alone_peak_bytes"]) / 1e6, 1), quiet="yes" if is_quiet else "no",
    )  # fmt: skip
    assert answer["valid"]
    if is_quiet:
        assert abs(predicted_s / measured_s - 1) <= _NEAR
