"""Network namespaces: one for each rank and one for the fabric between them, made, named and removed (root, Linux).

The fabric holds a veth pair with a token bucket for each queue. A bandwidth is that of payload: the token buckets also
let pass what TCP adds to 1448 bytes, 66 bytes of headers. Queues are short, as a NIC's are: a connection has at most
32 KiB in them, so that what answers doesn't wait for long behind data of the other direction, and nothing is ever
dropped. Nothing leads out of the namespaces: there is no route, no address and no cable to anything else.

Names hold the id of the process that made them, so that what a killed process has left behind is found.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gapless.emulation.queues import paths_of, queues_of
from gapless.errors import RunError
from gapless.topologies.topology import Topology

__all__ = [
    "PREFIX", "address", "build", "namespaces", "pids", "rank_namespace", "remove", "remove_left_over",
    "why_no_cluster",
]  # fmt: skip

PREFIX = "gapless-emulated-"
_PAYLOAD, _FRAME = 1448, 1514
"""Bytes of TCP's largest segment on Ethernet, without and with its headers (with time stamps)."""
_LARGEST_SEND = 16384
"""Bytes that the network stack hands on at once, which a token bucket lets pass as a whole."""
_BURST_S = 0.002
_MAC = "02:00:00:00:00:01"
"""Of both ends of each cable, so that nobody has to ask for it."""
_TOOLS = ("ip", "tc")

_SETTINGS = (
    "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1",
    "net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0", "net.ipv4.tcp_no_metrics_save=1",
    f"net.ipv4.tcp_limit_output_bytes={2 * _LARGEST_SEND}",
    # Nothing is lost, and nothing may be sent twice because it waits in a queue, or a processor is late.
    "net.ipv4.tcp_rto_min_us=5000000", "net.ipv4.tcp_early_retrans=0", "net.ipv4.tcp_recovery=0",
    "net.ipv4.tcp_reordering=127",
)  # fmt: skip
"""Of every namespace."""


def why_no_cluster() -> str | None:
    """Why no cluster can be emulated here, None if one can."""
    if sys.platform != "linux":
        return "emulated clusters need Linux"
    if os.geteuid() != 0:
        return "emulated clusters need root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"emulated clusters need the command {missing[0]} (iproute2)"
    name = f"{PREFIX}{os.getpid()}-try"
    try:
        _printed(["ip", "netns", "add", name])
        _batch("ip", name, ["link add e0 type veth peer name e1"])
        _batch("tc", name, [_bucket("e0", 1e6), *_forwarding("e0", {(0, 1): "e0"})])
    except RunError as error:
        return f"emulated clusters need what fails here: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


def rank_namespace(name: str, rank: int) -> str:
    """The namespace of a rank of the cluster of that name."""
    return f"{name}-r{rank}"


def address(rank: int) -> str:
    """A rank's address, which only the other ranks can reach."""
    return f"10.99.{rank // 250}.{rank % 250 + 1}"


def namespaces() -> list[str]:
    """The namespaces of all emulated clusters of this machine."""
    listed = _printed(["ip", "netns", "list"]).splitlines()
    return sorted(line.split()[0] for line in listed if line.startswith(PREFIX))


def pids(namespace: str) -> list[int]:
    """The processes in a namespace."""
    return [int(word) for word in _printed(["ip", "netns", "pids", namespace]).split()]


def remove_left_over() -> None:
    """Remove, with their processes, the clusters of processes that are gone."""
    remove(one for one in namespaces() if not Path(f"/proc/{one.removeprefix(PREFIX).split('-')[0]}").exists())


def remove(names: Iterable[str]) -> None:
    """Remove namespaces with all processes in them."""
    for name in names:
        for pid in pids(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _printed(["ip", "netns", "del", name])


def build(topology: Topology, name: str) -> None:
    """Make the namespaces, the queues, and the routes through them. Raises `RunError` with what `ip` or `tc` says."""
    rates, _ = queues_of(topology)
    paths = paths_of(topology)
    fabric, ranks = f"{name}-fabric", range(topology.device_count)
    for namespace in (fabric, *(rank_namespace(name, rank) for rank in ranks)):
        _printed(["ip", "netns", "add", namespace])
        _printed(["ip", "netns", "exec", namespace, "sysctl", "-q", "-w", *_SETTINGS])
    used = sorted({queue for path in paths.values() for queue in path})
    ends = [(f"p{rank}", "eth0", rank_namespace(name, rank)) for rank in ranks]
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
        _batch("ip", rank_namespace(name, rank), [
            "link set lo up", f"link set eth0 arp off gso_max_size {_LARGEST_SEND} up",
            f"address add {address(rank)}/32 dev eth0",
            *(f"route add {address(other)}/32 dev eth0" for other in ranks if other != rank),
        ])  # fmt: skip


def _routes(paths: dict[tuple[int, int], list[int]]) -> list[str]:
    """Where the fabric sends what leaves a queue: by the rank that it is from, and the one that it is for."""
    found: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    for (source, target), path in paths.items():
        places = [f"p{source}", *(f"q{queue}out" for queue in path)]
        for place, goes_to in zip(places, [*(f"q{queue}" for queue in path), f"p{target}"], strict=True):
            found[place][source, target] = goes_to
    return [line for place, goes_to in found.items() for line in _forwarding(place, goes_to)]


def _forwarding(place: str, goes_to: dict[tuple[int, int], str]) -> list[str]:
    """Below the network stack: its own forwarding lets go of the sender, who would then fill the queue."""
    return [f"qdisc add dev {place} ingress"] + [
        f"filter add dev {place} parent ffff: protocol ip u32 match ip src {address(source)}/32"
        f" match ip dst {address(target)}/32 action mirred egress redirect dev {device}"
        for (source, target), device in goes_to.items()
    ]


def _bucket(device: str, bytes_per_s: float) -> str:
    """The token bucket of a queue whose payload is to have this bandwidth."""
    burst = max(2 * _LARGEST_SEND, int(bytes_per_s * _BURST_S))
    bits = int(8 * bytes_per_s * _FRAME / _PAYLOAD)
    return f"qdisc add dev {device} root tbf rate {bits}bit burst {burst} limit 256mb"


def _batch(tool: str, namespace: str, lines: list[str]) -> None:
    _printed([tool, "-n", namespace, "-batch", "-"], "\n".join(lines))


def _printed(command: Sequence[str], lines: str = "") -> str:
    """What a command prints. Raises `RunError` with what it says where it fails."""
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
