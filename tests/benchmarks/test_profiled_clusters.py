"""Machines that `gapless profile links` finds, held against the emulated clusters that they are (root, Linux).

`pytest tests/benchmarks/test_profiled_clusters.py -s` makes random clusters of 2 or 3 nodes of 2 to 4 ranks from
network namespaces, with NICs that ranks share, one of them slow in every other cluster, and ports, buses or nothing to
share inside of the nodes; and profiles each from inside, without a word on what it is. `--cases N`: so many of them.
What is asserted: 19 of 20 structures are recovered, with every beta within 10 %. Latencies of the namespaces are not
emulated: what is printed is by how much two profiles of the same cluster differ in alpha, for the first clusters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulated_cluster import Cluster, emulated_cluster, needs_cluster
from random_machines import random_machine
from recovered import Recovered, recovered
from result_tables import ResultTables

from gapless.topologies.files import read_machine
from gapless.topologies.topology import Topology

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

TWICE = 3
"""So many clusters are profiled twice."""


def profiled(cluster: Cluster, path: Path, limit_s: float) -> tuple[Topology, list[int]]:
    """The machine that the ranks find, and the rank that each of its ranks is."""
    words = ["profile", "links", "--time-limit", str(limit_s), "--quiet", "-o", str(path)]
    ended = cluster.run([sys.executable, "-m", "gapless", *words], 3 * limit_s + 60)
    assert ended[0].code == 0, ended[0].out
    return read_machine(path), json.loads(path.read_text())["measured"]["order"]


def alpha_apart(first: Topology, second: Topology) -> float:
    """By how much latencies differ; inf for other links."""
    if len(first.links) != len(second.links):
        return np.inf
    return float(np.abs(first.alpha_s / second.alpha_s - 1).max())


@needs_cluster
@pytest.mark.usefixtures("takes_minutes")
def test_random_emulated_clusters_are_recovered(
    tmp_path: Path, pytestconfig: pytest.Config, tables: ResultTables, limit_s: Callable[[float], float]
) -> None:
    count = pytestconfig.getoption("--cases")
    table = tables.table("profiled-clusters", "Machines that were profiled")
    found: list[Recovered] = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        truth = random_machine(rng, (2, 3), (2, 4), slower=(1.5, 3), slow=(1.5, 2.5)).topology()
        with emulated_cluster(truth) as cluster:
            machine, order = profiled(cluster, tmp_path / "machine.json", limit_s(120))
            found.append(recovered(cluster.topology, machine, order))
            again = profiled(cluster, tmp_path / "again.json", limit_s(120))[0] if seed < TWICE < count else machine
        tables = json.loads((tmp_path / "machine.json").read_text())["measured"]["congestion"]
        table.add(
            str(seed), nodes=truth.node_count, ranks=truth.device_count, same=found[-1].same,
            beta_off=found[-1].beta_off, tables=sum(map(len, tables.values())), alpha_apart=alpha_apart(machine, again),
        )  # fmt: skip
    right = [each for each in found if each.same and each.beta_off < 0.1]
    print(f"{len(right)} of {count} recovered; beta off by {max(each.beta_off for each in found):.1%} at most")
    assert len(right) >= 0.95 * count
