"""A cluster on one machine: a network namespace for each rank, joined by queues of limited bandwidth (root, Linux).

    with emulated_cluster(topology) as cluster:
        cluster.topology        # what is emulated: `topology` with its bandwidths times `cluster.scale`
        ended = cluster.run([sys.executable, "-m", "gapless", "run", "taccl", "--plan", path], timeout_s=60)
        ended[0].code, ended[0].out     # of rank 0; out: what it printed, stdout and stderr together

Every process finds what torchrun would give it: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and the name of
its only interface in GLOO_SOCKET_IFNAME. `start` is `run` without the wait, for tests that end a rank early; `pids` and
`namespaces` say what is still there. Tests that need a cluster carry the mark `needs_cluster`.

One namespace more, the fabric, holds a queue (a veth pair with a token bucket) for each exclusive resource of the
topology, a NIC's side or a cable, and for each link that is slower than all that it holds. What a rank sends to another
passes the queues of the link between them, one after the other; ranks without a link reach each other along a shortest
path. Of parallel links the fastest is there. A bandwidth is that of payload: the token buckets also let pass what TCP
adds to 1448 bytes, 66 bytes of headers. Queues are short, as a NIC's are: a connection has at most 32 KiB in them, so
that what answers doesn't wait for long behind data of the other direction, and nothing is ever dropped. Latencies are
what this machine's own network stack makes of them; the token buckets add none. Nothing leads out of the namespaces:
there is no route, no address and no cable to anything else.

All is removed when the block is left, also by an exception, Ctrl-C, TERM or HUP. What a killed process has left behind
is found by its name, which holds that process's id, and removed when the next cluster is made.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from types import FrameType

import networkx as nx
import numpy as np
import pytest

from gapless.topologies.topology import Links, Topology

TOTAL_BYTES_PER_S = 100e6
"""What all ranks together can send at once, at most: some hundred megabytes a second keep two cores busy."""
ALPHA_S = 5e-4
"""About what a message between two idle processes costs here, whatever its size: the alpha of `cluster.topology`."""
PAYLOAD, FRAME = 1448, 1514
"""Bytes of TCP's largest segment on Ethernet, without and with its headers (with time stamps)."""
_PREFIX = "gapless-emulated-"
_PORT = 29500
_LARGEST_SEND = 16384
"""Bytes that the network stack hands on at once, which a token bucket lets pass as a whole."""
_BURST_S = 0.002
_MAC = "02:00:00:00:00:01"
"""Of both ends of each cable, so that nobody has to ask for it."""
_COUNT = count()


def why_no_cluster() -> str | None:
    """Why no cluster can be emulated here, None if one can."""
    if sys.platform != "linux":
        return "emulated clusters need Linux"
    if os.geteuid() != 0:
        return "emulated clusters need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"emulated clusters need the command {missing[0]} (iproute2)"
    name = f"{_PREFIX}{os.getpid()}-try"
    try:
        _told(["ip", "netns", "add", name])
        _batch("ip", name, ["link add e0 type veth peer name e1"])
        _batch("tc", name, [_bucket("e0", 1e6), *_forwarding("e0", {(0, 1): "e0"})])
    except RuntimeError as error:
        return f"emulated clusters need what fails here: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


@dataclass(frozen=True)
class Ended:
    """How a rank's process has ended; `code` is negative for a signal, as in `subprocess`."""

    code: int
    out: str


@dataclass(frozen=True)
class Running:
    """The processes of a command, one a rank, and the files that they print to."""

    processes: tuple[subprocess.Popen[bytes], ...]
    printed: tuple[Path, ...]

    def wait(self, timeout_s: float) -> list[Ended]:
        """How all have ended. Raises `TimeoutError` with what they printed where one doesn't within the time."""
        end_s = time.monotonic() + timeout_s
        while any(process.poll() is None for process in self.processes):
            if time.monotonic() > end_s:
                open_ = [rank for rank, process in enumerate(self.processes) if process.poll() is None]
                told = "\n".join(f"rank {rank}: {path.read_text()}" for rank, path in enumerate(self.printed))
                self.kill()
                raise TimeoutError(f"ranks {open_}: no end within {timeout_s:g} s\n{told}")
            time.sleep(0.02)
        pairs = zip(self.processes, self.printed, strict=True)
        return [Ended(process.returncode, path.read_text("utf-8")) for process, path in pairs]

    def kill(self) -> None:
        """End those that still run."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@dataclass(frozen=True)
class Cluster:
    """A cluster that is there. `scale`: its bandwidths over those that were asked for."""

    topology: Topology
    scale: float
    name: str
    folder: Path

    def namespace(self, rank: int) -> str:
        """The name of a rank's network namespace."""
        return f"{self.name}-r{rank}"

    def address(self, rank: int) -> str:
        """A rank's address, which only the other ranks can reach."""
        return _address(rank)

    def bytes_per_s(self, source: int, target: int) -> float:
        """The bandwidth from one rank to another."""
        rates, _ = _queues(self.topology)
        return min(rates[queue] for queue in _paths(self.topology)[source, target])

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Running:
        """The same command for every rank, each in its namespace."""
        processes, printed, number = [], [], next(_COUNT)
        ranks = self.topology.device_count
        for rank in range(ranks):
            node_ranks = self.topology.ranks_of_node(self.topology.node_of_device[rank])
            given = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": node_ranks.index(rank),
                     "LOCAL_WORLD_SIZE": len(node_ranks), "MASTER_ADDR": _address(0), "MASTER_PORT": _PORT,
                     "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1}  # fmt: skip
            path = self.folder / f"{number}-rank{rank}"
            with path.open("wb") as output:
                processes.append(subprocess.Popen(
                    ["ip", "netns", "exec", self.namespace(rank), *command], stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output, env={**os.environ, **{key: str(value) for key, value in given.items()},
                                        **(environment or {})}, start_new_session=True))  # fmt: skip
            printed.append(path)
        return Running(tuple(processes), tuple(printed))

    def run(
        self, command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> list[Ended]:
        """Start the command for every rank, wait until all have ended; no process is left then."""
        running = self.start(command, environment)
        try:
            return running.wait(timeout_s)
        finally:
            running.kill()


@contextmanager
def emulated_cluster(topology: Topology, total_bytes_per_s: float = TOTAL_BYTES_PER_S) -> Iterator[Cluster]:
    """A cluster like a topology, with its bandwidths scaled so that all ranks send at most so much at once.

    Raises `RuntimeError` with what `ip` or `tc` says where they fail.
    """
    remove_left_over()
    scale = total_bytes_per_s / _sent_at_once(topology)
    scaled = _scaled(topology, scale)
    name = f"{_PREFIX}{os.getpid()}-{next(_COUNT)}"
    with _ended_by_signals(), tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        try:
            _build(scaled, name)
            yield Cluster(scaled, scale, name, Path(folder))
        finally:
            _remove(one for one in namespaces() if one.startswith(f"{name}-"))


def namespaces() -> list[str]:
    """The namespaces of all emulated clusters of this machine."""
    listed = _told(["ip", "netns", "list"]).splitlines()
    return sorted(line.split()[0] for line in listed if line.startswith(_PREFIX))


def pids(namespace: str) -> list[int]:
    """The processes in a namespace."""
    return [int(word) for word in _told(["ip", "netns", "pids", namespace]).split()]


def remove_left_over() -> None:
    """Remove, with their processes, the clusters of processes that are gone."""
    _remove(one for one in namespaces() if not Path(f"/proc/{one.removeprefix(_PREFIX).split('-')[0]}").exists())


def _remove(names: Iterator[str]) -> None:
    for name in names:
        for pid in pids(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _told(["ip", "netns", "del", name])


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """TERM and HUP unwind the block, as Ctrl-C does; in the main thread, which is the one that gets signals."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    with suppress(ValueError):
        before = {number: signal.signal(number, unwind) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _queues(topology: Topology) -> tuple[list[float], list[list[int]]]:
    """Bandwidths of all queues, bytes/s; and for each link those that it passes.

    A resource's queue is as fast as the fastest link that holds it. A link that is slower than all that it holds, or
    holds nothing, has one of its own besides.
    """
    with np.errstate(divide="ignore"):
        rate = 1 / topology.beta_s_per_byte
    of_resource = np.zeros(len(topology.resources))
    np.maximum.at(of_resource, topology.held, rate[topology.held_by])
    rates, passed = of_resource.tolist(), list[list[int]]()
    for link, own in enumerate(rate.tolist()):
        held = topology.held[topology.held_start[link] : topology.held_start[link + 1]].tolist()
        if not held or own < min(rates[resource] for resource in held):
            held = [len(rates), *held]
            rates.append(own)
        passed.append([queue for queue in held if rates[queue] < np.inf])
    return rates, passed


def _sent_at_once(topology: Topology) -> float:
    """Bytes per second that all ranks send at once, if each link is only held up by the first queue that it passes."""
    rates, passed = _queues(topology)
    return sum(rates[queue] for queue in {queues[0] for queues in passed if queues})


def _scaled(topology: Topology, scale: float) -> Topology:
    links = topology.columns
    alpha_s = np.full(len(links), ALPHA_S)
    beta = links.beta_s_per_byte / scale
    return replace(topology, links=Links(links.source, links.target, alpha_s, beta, links.held_start, links.held))


def _paths(topology: Topology) -> dict[tuple[int, int], list[int]]:
    """For each pair of ranks, the queues from one to the other, each at most once."""
    _, passed = _queues(topology)
    network = topology.to_networkx(1e6)
    paths = {}
    for source, targets in nx.all_pairs_dijkstra_path(network, weight="duration_s"):
        for target, ranks in targets.items():
            if source != target:
                hops = [(source, target)] if network.has_edge(source, target) else pairwise(ranks)
                links = (network.edges[hop]["link"] for hop in hops)
                paths[source, target] = list(dict.fromkeys(queue for link in links for queue in passed[link]))
    return paths


def _build(topology: Topology, name: str) -> None:
    """Make the namespaces, the queues, and the routes through them."""
    rates, _ = _queues(topology)
    paths = _paths(topology)
    fabric, ranks = f"{name}-fabric", range(topology.device_count)
    for namespace in (fabric, *(f"{name}-r{rank}" for rank in ranks)):
        _told(["ip", "netns", "add", namespace])
        _told(["ip", "netns", "exec", namespace, "sysctl", "-q", "-w", *_SETTINGS])
    used = sorted({queue for path in paths.values() for queue in path})
    ends = [(f"p{rank}", "eth0", f"{name}-r{rank}") for rank in ranks]
    ends += [(f"q{queue}", f"q{queue}out", fabric) for queue in used]
    _batch("ip", fabric, [
        line for near, far, where in ends for line in (
            f"link add {near} address {_MAC} type veth peer name {far} address {_MAC} netns {where}",
            f"link set {near} arp off up",
        )
    ])  # fmt: skip
    _batch("ip", fabric, [f"link set q{queue}out arp off up" for queue in used])
    _batch("tc", fabric, [_bucket(f"q{queue}", rates[queue]) for queue in used] + _routes(paths))
    for rank in ranks:
        _batch("ip", f"{name}-r{rank}", [
            "link set lo up", f"link set eth0 arp off gso_max_size {_LARGEST_SEND} up",
            f"address add {_address(rank)}/32 dev eth0",
            *(f"route add {_address(other)}/32 dev eth0" for other in ranks if other != rank),
        ])  # fmt: skip


def _routes(paths: dict[tuple[int, int], list[int]]) -> list[str]:
    """Where the fabric sends what comes out of a queue: by the rank that it is from, and the one that it is for."""
    found: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    for (source, target), path in paths.items():
        places = [f"p{source}", *(f"q{queue}out" for queue in path)]
        for place, goes_to in zip(places, [*(f"q{queue}" for queue in path), f"p{target}"], strict=True):
            found[place][source, target] = goes_to
    return [line for place, goes_to in found.items() for line in _forwarding(place, goes_to)]


def _forwarding(place: str, goes_to: dict[tuple[int, int], str]) -> list[str]:
    """Below the network stack: its own forwarding lets go of the sender, who would then fill the queue."""
    return [f"qdisc add dev {place} ingress"] + [
        f"filter add dev {place} parent ffff: protocol ip u32 match ip src {_address(source)}/32"
        f" match ip dst {_address(target)}/32 action mirred egress redirect dev {device}"
        for (source, target), device in goes_to.items()
    ]


_SETTINGS = (
    "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1",
    "net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0", "net.ipv4.tcp_no_metrics_save=1",
    f"net.ipv4.tcp_limit_output_bytes={2 * _LARGEST_SEND}",
    # Nothing is lost, and nothing may be sent twice because it waits in a queue, or a processor is late.
    "net.ipv4.tcp_rto_min_us=5000000", "net.ipv4.tcp_early_retrans=0", "net.ipv4.tcp_recovery=0",
    "net.ipv4.tcp_reordering=127",
)  # fmt: skip
"""Of every namespace."""


def _bucket(device: str, bytes_per_s: float) -> str:
    """The token bucket of a queue whose payload is to have this bandwidth."""
    burst = max(2 * _LARGEST_SEND, int(bytes_per_s * _BURST_S))
    bits = int(8 * bytes_per_s * FRAME / PAYLOAD)
    return f"qdisc add dev {device} root tbf rate {bits}bit burst {burst} limit 256mb"


def _address(rank: int) -> str:
    return f"10.99.{rank // 250}.{rank % 250 + 1}"


def _batch(tool: str, namespace: str, lines: list[str]) -> None:
    _told([tool, "-n", namespace, "-batch", "-"], "\n".join(lines))


def _told(command: Sequence[str], lines: str = "") -> str:
    """What a command prints. Raises `RuntimeError` with what it says where it fails."""
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


_REASON = why_no_cluster()
needs_cluster = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")
