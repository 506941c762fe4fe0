"""Emulated clusters: what passes which queue, nothing leads outside, and nothing is left behind, however they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from emulated_cluster import Cluster, emulated_cluster, namespaces, needs_cluster, pids, remove_left_over
from emulated_machines import one_cable, uneven_ring

pytestmark = needs_cluster

SEND = """
import os, socket, sys, time
source, target, size = map(int, sys.argv[1:4])
rank = int(os.environ["RANK"])
if rank == target:
    listener = socket.create_server(("", 5000))
    print("listens", flush=True)
    connection, (address, _) = listener.accept()
    received = 0
    while data := connection.recv(1 << 16):
        received += len(data)
    print(address, received)
elif rank == source:
    while True:
        try:
            connection = socket.create_connection((sys.argv[4], 5000))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)  # each refusal is bytes on the way, too
    connection.sendall(bytes(size))
    connection.close()
"""
WAIT = "import time; print('here', flush=True); time.sleep(600)"
TIMEOUT_S = 600.0


def carried(cluster: Cluster) -> Counter[str]:
    """Bytes that each queue has let pass."""
    told = subprocess.run(
        ["tc", "-n", f"{cluster.name}-fabric", "-s", "qdisc", "show"], capture_output=True, text=True, check=True
    ).stdout
    found = re.findall(r"tbf \S+ dev (\S+) root.*\n Sent (\d+) bytes", told)
    assert "dropped 0," in told
    assert not re.search(r"dropped [1-9]", told)
    return Counter({device: int(size) for device, size in found})


def send(cluster: Cluster, source: int, target: int, size: int) -> str:
    command = [sys.executable, "-c", SEND, str(source), str(target), str(size), cluster.address(target)]
    ended = cluster.run(command, TIMEOUT_S)
    assert [one.code for one in ended] == [0] * cluster.topology.device_count
    return ended[target].out


def test_what_is_sent_passes_the_cables_of_both_nodes_and_no_other() -> None:
    machine = one_cable(2, 2)
    with emulated_cluster(machine) as cluster:
        assert send(cluster, 0, 3, 10**6) == f"listens\n{cluster.address(0)} 1000000\n"
        link = next(link for link in machine.links if (link.source, link.target) == (0, 3))
        size = carried(cluster)
        busy = {name for name, count in size.items() if count > 10**6}
        assert busy == {f"q{resource}" for resource in link.resources}
        send(cluster, 0, 1, 10**6)
        size = carried(cluster) - size
        assert not any(size[name] for name in busy)


def test_without_a_link_ranks_reach_each_other_along_the_ring() -> None:
    with emulated_cluster(uneven_ring([2.0, 1.0, 4.0, 1.0])) as cluster:
        assert send(cluster, 0, 2, 10**6).endswith(" 1000000\n")
        assert sum(count > 10**6 for count in carried(cluster).values()) == 2


def test_bandwidths_keep_their_ratios() -> None:
    machine = one_cable(2, 2, [10, 5])
    with emulated_cluster(machine, 50e6) as cluster:
        ratio = machine.beta_s_per_byte / cluster.topology.beta_s_per_byte
        assert ratio == pytest.approx(np.full(len(machine.links), cluster.scale))


def test_nothing_leads_out() -> None:
    look = "import socket\ntry: socket.create_connection(('192.0.2.1', 80))\nexcept OSError as error: print(error)"
    with emulated_cluster(uneven_ring([1.0, 1.0])) as cluster:
        for ended in cluster.run([sys.executable, "-c", look], TIMEOUT_S):
            assert "unreachable" in ended.out


def test_ranks_find_what_torchrun_gives_them() -> None:
    look = "import os; print(*(os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR')))"
    with emulated_cluster(one_cable(2, 2)) as cluster:
        ended = cluster.run([sys.executable, "-c", look], TIMEOUT_S)
    told = [one.out.split() for one in ended]
    assert told == [[str(rank), str(rank % 2), "4", "10.99.0.1"] for rank in range(4)]


def test_a_rank_that_does_not_end_is_ended() -> None:
    with emulated_cluster(uneven_ring([1.0, 1.0])) as cluster:
        running = cluster.start([sys.executable, "-c", WAIT])
        with pytest.raises(TimeoutError, match=r"ranks \[0, 1\]: no end within 0.5 s"):
            running.wait(0.5)
        assert not any(pids(cluster.namespace(rank)) for rank in range(2))


def test_an_error_leaves_no_namespace_and_no_process() -> None:
    with pytest.raises(ZeroDivisionError), emulated_cluster(uneven_ring([1.0, 1.0])) as cluster:  # noqa: PT012
        running = cluster.start([sys.executable, "-c", WAIT])
        raise ZeroDivisionError
    assert [process.wait(TIMEOUT_S) for process in running.processes] == [-signal.SIGKILL] * 2
    assert not [name for name in namespaces() if name.startswith(cluster.name)]


HOLD = """
import signal, sys
from emulated_cluster import emulated_cluster
from emulated_machines import uneven_ring
signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells switch off for jobs in the background
with emulated_cluster(uneven_ring([1.0, 1.0])) as cluster:
    running = cluster.start([sys.executable, "-c", sys.argv[1]])
    print(cluster.name, flush=True)
    running.wait(600)
"""


@pytest.mark.thorough("15", "9")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_nothing_or_the_next_cluster_removes_it(number: signal.Signals) -> None:
    support = Path(__file__).parents[1] / "support"
    paths = os.pathsep.join([str(support), str(support.parents[1])])
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, WAIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode != 0
    left = [one for one in namespaces() if one.startswith(name)]
    inside = [pid for one in left for pid in pids(one)]
    assert len(left) == (3 if number == signal.SIGKILL else 0)
    remove_left_over()
    assert not [one for one in namespaces() if one.startswith(name)]
    end_s = time.monotonic() + TIMEOUT_S
    while any(Path(f"/proc/{pid}").exists() for pid in inside):
        assert time.monotonic() < end_s
        time.sleep(0.02)
