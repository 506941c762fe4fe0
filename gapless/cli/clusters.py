"""Options that describe the machine a recommendation model is trained on."""

from __future__ import annotations

from typing import Any

from gapless.cli import arguments as shared

__all__ = ["add_cluster_options"]


def add_cluster_options(group: Any) -> None:
    """Add the options; in Python they are arguments of the same names."""
    group.add_argument("--model", metavar="NAME", help="dense part: dlrm (default), deepfm, ...")
    group.add_argument(
        "--dimension", type=shared.Whole(1, 10**6), metavar="D", help="fp32 values of a row (default 48)"
    )
    group.add_argument("--trainer-bandwidth", type=shared.bandwidth, metavar="B", help="of each (default 10Gbps)")
    group.add_argument(
        "--server-bandwidth", type=shared.bandwidth, metavar="B", help="of all together (default 25Gbps)"
    )
    group.add_argument("--latency", type=shared.duration, metavar="T", help="of a message (default 50us)")
    group.add_argument(
        "--fetch-latency", type=shared.duration, metavar="T", help="from asking for rows to the first (default 0)"
    )
    group.add_argument(
        "--forward", type=shared.duration, metavar="T", help="pass of a batch (default 4.2ms, deepfm 15.3ms)"
    )
    group.add_argument(
        "--backward", type=shared.duration, metavar="T", help="pass of a batch (default 8.5ms, deepfm 30.7ms)"
    )
    group.add_argument(
        "--control", type=shared.duration, metavar="T", help="a partitioned cache's overhead a batch (default 85ms)"
    )
