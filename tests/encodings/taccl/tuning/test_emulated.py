"""`gapless tune` on an emulated cluster of unlike nodes: from the links to an installed selector."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from emulated_cluster import emulated_cluster, namespaces, needs_cluster
from emulated_machines import one_cable
from emulated_ranks import TIMEOUT_S

from gapless.io.formats.tuned_file import TABLE, read_selector, read_table

pytestmark = needs_cluster

CELLS = ("--collectives", "allreduce", "--sizes", "16KB")
EFFORT = ("--repeats", "3", "--profile-time", "60", "--time-limit", "70", "--wait", "60s")


@pytest.mark.thorough
def test_ranks_of_a_cluster_with_unlike_cables_agree_on_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    command = [sys.executable, "-m", "gapless", "tune", *CELLS, *EFFORT, "-o", str(folder)]
    with emulated_cluster(one_cable(2, 2, (12.5, 25))) as cluster:
        ended = cluster.run(command, TIMEOUT_S)
    assert [one.code for one in ended] == [0] * 4, ended[0].out
    table, selector = read_table(folder / TABLE), read_selector(folder)
    (row,) = table.rows
    assert (row.collective, row.ranks, table.ranks) == ("allreduce", (0, 1, 2, 3), 4)
    assert row.winner == selector.plan_for("allreduce", row.ranks, row.size_bytes)
    assert row.winner is None or (row.ratio or 1.0) < 1 - row.noise
    assert (folder / "topology.json").is_file()
    assert not [name for name in namespaces() if name.startswith(cluster.name)]
