"""Plans on emulated clusters: what they end with, and that a rank that dies leaves nothing behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from emulated_cluster import Cluster, emulated_cluster, namespaces, needs_cluster
from emulated_machines import one_cable
from emulated_ranks import TIMEOUT_S, command, compared
from little import LITTLE

import gapless
from gapless.encodings.taccl import Chunked
from gapless.options import SolveOptions

pytestmark = needs_cluster


def solved(cluster: Cluster, size_bytes: int, path: Path) -> Path:
    problem = Chunked.of(cluster.topology, "allreduce", size_bytes)
    gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).save(str(path))
    return path


@pytest.mark.thorough
def test_a_plan_ends_right_on_two_nodes_with_one_cable_each(tmp_path: Path) -> None:
    with emulated_cluster(one_cable(2, 2)) as cluster:
        (found,) = compared(cluster, [solved(cluster, 64_000, tmp_path / "plan.json")], repeats=1)
    assert found.answer["wrong"] == 0
    assert len(found.answer["measured_times_s"]) == len(found.answer["library_times_s"]) == 1
    assert not [name for name in namespaces() if name.startswith(cluster.name)]


@pytest.mark.thorough
def test_a_rank_that_is_killed_ends_the_others_and_leaves_no_namespace(tmp_path: Path) -> None:
    with emulated_cluster(one_cable(2, 2), 1e7) as cluster:  # so slow that all are at it when one is killed
        words, environment = command(solved(cluster, 6_400_000, tmp_path / "plan.json"), 1)
        running = cluster.start([*(word for word in words if word != "--json"), "--wait", "20"], environment)
        while "running 4 processes" not in running.printed[0].read_text():
            assert running.processes[0].poll() is None, running.printed[0].read_text()
            time.sleep(0.05)
        running.processes[1].kill()
        codes = [ended.code for ended in running.wait(TIMEOUT_S)]
    assert codes[1] == -signal.SIGKILL
    assert 0 not in codes
    assert not [name for name in namespaces() if name.startswith(cluster.name)]
