"""Options that name the ring on which gradients are communicated, by numbers or by machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.errors import InputError

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.profiles.gradients.communication import RingNetwork

__all__ = ["add_network_options", "read_network"]

_DEFAULT_LATENCY_S = 10e-6


def add_network_options(group: Any) -> None:
    """The options, for `read_network`."""
    group.add_argument("--ranks", type=shared.Whole(2, 10**6), metavar="N", help="workers in a ring")
    group.add_argument("--bandwidth", type=shared.bandwidth, metavar="B", help="out of a rank: 10Gbps, 1.25GB/s")
    group.add_argument("--latency", type=shared.duration, metavar="T", help="of one step of the ring (default 10us)")
    group.add_argument(
        "--topology", metavar="NAME", help="or a ring through a topology's ranks, such as ndv2 or torus:4x4"
    )
    group.add_argument("--nodes", type=shared.Whole(1, 10**6), metavar="N", help="number of its nodes (default 1)")


def read_network(arguments: argparse.Namespace) -> RingNetwork:
    """The ring that the options name, by numbers or by machine."""
    from gapless.profiles.gradients.communication import RingNetwork, ring_network
    from gapless.topologies.files import load_topology

    numbers = {name: getattr(arguments, name) for name in ("ranks", "bandwidth", "latency")}
    if arguments.topology is None:
        if arguments.nodes is not None:
            raise InputError("--nodes goes with --topology")
        for name in ("ranks", "bandwidth"):
            if numbers[name] is None:
                raise InputError(f"give --{name}, or --topology NAME (`gapless list topologies`)")
        latency_s = _DEFAULT_LATENCY_S if arguments.latency is None else arguments.latency
        return RingNetwork(arguments.ranks, arguments.bandwidth, latency_s)
    for name, value in numbers.items():
        if value is not None:
            raise InputError(f"give --topology or --{name}, not both")
    return ring_network(load_topology(arguments.topology, arguments.nodes))
