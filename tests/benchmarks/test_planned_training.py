"""A small GPT trained on emulated clusters: gradients summed by a plan beside gloo's own sums (root, Linux).

`pytest tests/benchmarks/test_planned_training.py -s` prints what a step takes with each, as a median, and the losses,
which must be equal but for rounding.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from emulated_cluster import emulated_cluster, needs_cluster
from emulated_machines import one_cable
from emulated_ranks import TIMEOUT_S, command
from result_tables import ResultTables

import gapless
from gapless.encodings.taccl import Chunked
from gapless.options import SolveOptions

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

MODEL = "train:gpt,layers=2,hidden=128,sequence=16"
GRADIENT_BYTES = 1_740_000
"""About what the model's gradients are: one bucket."""
BYTES_PER_S = 20e6
"""What all ranks together can send at once: a step then takes longer to send than to compute."""


@needs_cluster
@pytest.mark.usefixtures("takes_minutes")
@pytest.mark.parametrize(("nodes", "ranks"), [(2, 2), (2, 4)])
def test_a_plan_trains_as_gloo_does(tmp_path: Path, tables: ResultTables, nodes: int, ranks: int) -> None:
    table = tables.table("planned_training", "A small GPT on emulated clusters")
    with emulated_cluster(one_cable(nodes, ranks), BYTES_PER_S) as cluster:
        plan = tmp_path / "plan.json"
        problem = Chunked.of(cluster.topology, "allreduce", GRADIENT_BYTES)
        gapless.solve(problem, SolveOptions(gap=0.05, time_limit_s=60)).save(str(plan))
        words, environment = command(plan, 1)
        words += ["--model", MODEL, "--steps", "12", "--quiet"]
        ended = cluster.run(words, TIMEOUT_S, environment)
    assert ended[0].code == 0, ended[0].out
    found = json.loads(ended[0].out.splitlines()[-1])
    assert found["apart"] < 1e-5
    assert found["plan_losses"][-1] < found["plan_losses"][0]
    table.add(
        f"{nodes} x {ranks}", predicted_s=found["allreduce_predicted_s"], plan_step_s=found["plan_step_s"],
        gloo_step_s=found["library_step_s"], faster=found["library_step_s"] / found["plan_step_s"],
        first=found["plan_losses"][0], last=found["plan_losses"][-1], apart=found["apart"],
    )  # fmt: skip
