"""Options that name the ring on which gradients are communicated, by numbers or by machine."""

from __future__ import annotations

from typing import Any

from gapless.cli import arguments as shared

__all__ = ["add_network_options"]


def add_network_options(group: Any) -> None:
    """The options; in Python they are arguments of the same names."""
    group.add_argument("--ranks", type=shared.Whole(2, 10**6), metavar="N", help="workers in a ring")
    group.add_argument("--bandwidth", type=shared.bandwidth, metavar="B", help="out of a rank: 10Gbps, 1.25GB/s")
    group.add_argument("--latency", type=shared.duration, metavar="T", help="of one step of the ring (default 10us)")
    group.add_argument(
        "--topology", metavar="NAME", help="or a ring through a topology's ranks, such as ndv2 or torus:4x4"
    )
    group.add_argument("--nodes", type=shared.Whole(1, 10**6), metavar="N", help="number of its nodes (default 1)")
