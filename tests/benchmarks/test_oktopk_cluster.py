"""Sparse allreduces measured on an emulated machine of two nodes with one cable each (root, Linux).

`pytest tests/benchmarks/test_oktopk_cluster.py -s` plans for the machine, runs the plan on eight processes beside TopkA
and gloo's dense allreduce, and prints what is predicted and measured. What is asserted: the sums have the bits of the
dense sum, and each rank receives the plan's words. Times count on a quiet machine only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from emulated_cluster import emulated_cluster, needs_cluster
from emulated_machines import one_cable
from result_tables import ResultTables

import gapless

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")


@needs_cluster
@pytest.mark.usefixtures("takes_minutes")
def test_a_sparse_allreduce_between_nodes(tmp_path: Path, tables: ResultTables) -> None:
    table = tables.table("oktopk-cluster", "A sparse allreduce on an emulated machine")
    indices, plan = "clustered:elements=2000000,steps=1,seed=1", str(tmp_path / "plan.json")
    with emulated_cluster(one_cable(2, 4)) as cluster:
        gapless.oktopk.solve(indices, topology=cluster.topology, density=0.01).save(plan)
        words = ["run", "oktopk", "--plan", plan, "--indices", indices, "--repeats", "3", "--json", "--quiet"]
        ended = cluster.run([sys.executable, "-m", "gapless", *words], 600)
    assert ended[0].code == 0, ended[0].out
    found = json.loads(ended[0].out)
    assert found["valid"]
    table.add("2 x 4", predicted_s=found["predicted_s"], **{f"{key}_s": s for key, s in found["measured_s"].items()})
