"""Options that describe the machine a recommendation model is trained on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.bagpipe.cluster import Cluster

__all__ = ["add_cluster_options", "cluster_data", "read_cluster_options"]

_OPTIONS = {
    "trainer_bandwidth": "trainer_bytes_per_s", "server_bandwidth": "server_bytes_per_s", "latency": "latency_s",
    "fetch_latency": "fetch_latency_s", "forward": "forward_s", "backward": "backward_s", "control": "control_s",
}  # fmt: skip
"""The field of `Cluster` that an option sets."""

_VALUE_BYTES = 4


def add_cluster_options(group: Any) -> None:
    """Add the options; `read_cluster_options` reads them. The defaults are those of `Cluster`."""
    group.add_argument("--model", default="dlrm", metavar="NAME", help="dense part: dlrm (default), deepfm, ...")
    group.add_argument(
        "--dimension", type=shared.Whole(1, 10**6), default=48, metavar="D", help="fp32 values of a row (default 48)"
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


def read_cluster_options(arguments: argparse.Namespace, trainers: int) -> Cluster:
    """The cluster that the options describe; times that are given go before those of the model."""
    from dataclasses import replace

    from gapless.encodings.bagpipe.cluster import Cluster, model_cluster
    from gapless.profiles.traces.recommendation import named_dense_model

    plain = Cluster(trainers, row_bytes=arguments.dimension * _VALUE_BYTES)
    given = {field: getattr(arguments, option) for option, field in _OPTIONS.items()}
    chosen = {field: value for field, value in given.items() if value is not None}
    return replace(model_cluster(plain, named_dense_model(arguments.model)), **chosen)


def cluster_data(cluster: Cluster) -> dict[str, Any]:
    """The cluster for a JSON object."""
    from dataclasses import asdict

    return asdict(cluster)
