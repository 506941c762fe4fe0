"""Cluster: the machine that a recommendation model is trained on, as far as a plan's times depend on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.traces.recommendation import FLOAT_BYTES, DenseModel, named_dense_model
from gapless.profiles.traces.row_optimizers import state_values

__all__ = ["Cluster", "find_cluster", "model_cluster"]

Amount = TypeVar("Amount", float, NDArray[np.float64])
"""One number, or one per batch."""


@dataclass(frozen=True)
class Cluster:
    """Trainers, embedding servers and the network between them; a dense model's times on one trainer.

    `trainer_bytes_per_s`, `server_bytes_per_s`: a trainer's network, and that of all servers together, each way.
    `latency_s`: of one message. `fetch_latency_s`: from asking the servers for a batch's rows to the first of them;
    requests for several batches may be under way. `row_bytes`: of an embedding and of what the optimiser keeps
    beside it, `state_bytes` of them: both are fetched, cached and written back, gradients have no state.
    `forward_s`, `backward_s`: of one trainer's examples of a batch. `dense_bytes`: the gradients that are
    all-reduced after each batch. `control_s`: what a partitioned cache adds to a batch for its buffers, many
    connections and for tracking where rows are.

    The defaults are the paper's: p3.2xlarge trainers at 10 Gb/s, one c5.18xlarge server at 25 Gb/s, dimension 48 in
    fp32, the dense part of DLRM, 80-90 ms of control for 16,384 examples on 8 trainers. Forward and backward pass (one
    to two) are what is left of the 30 ms that DLRM takes without embedding access once 8 trainers have all-reduced its
    gradients. The fetch latency isn't reported: times of 536 and 289 ms at L = 5 and 10 (Table 5.3) are a round trip of
    2.7-2.9 s shared by L batches, which is their software's, so the default is none.
    Raises `InputError` for numbers that are negative or not finite, and bandwidths that are zero.
    """

    trainers: int
    servers: int = 1
    trainer_bytes_per_s: float = 10e9 / 8
    server_bytes_per_s: float = 25e9 / 8
    latency_s: float = 50e-6
    row_bytes: int = 192
    forward_s: float = 4.2e-3
    backward_s: float = 8.5e-3
    dense_bytes: int = 4 * 2_962_289
    fetch_latency_s: float = 0.0
    control_s: float = 85e-3
    state_bytes: int = 0

    def __post_init__(self) -> None:
        for title in ("trainers", "servers", "row_bytes"):
            if getattr(self, title) < 1:
                raise InputError(f"cluster: {title} must be >= 1, got {getattr(self, title)}")
        for title in ("trainer_bytes_per_s", "server_bytes_per_s"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"cluster: {title} must be finite and > 0, got {value}")
        if not 0 <= self.state_bytes < self.row_bytes:
            rule = f"cluster: state_bytes must be >= 0 and below the {self.row_bytes} bytes of a row"
            raise InputError(f"{rule}, got {self.state_bytes}")
        for title in ("latency_s", "forward_s", "backward_s", "dense_bytes", "fetch_latency_s", "control_s"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"cluster: {title} must be finite and >= 0, got {value}")

    @property
    def gradient_bytes(self) -> int:
        """Of a row's gradient, and of its values without the optimiser's state: what trainers exchange."""
        return self.row_bytes - self.state_bytes

    @property
    def ideal_s(self) -> float:
        """A batch without embedding access: forward and backward pass, and the all-reduce of the dense gradients."""
        return self.forward_s + self.backward_s + self.all_reduce_s(float(self.dense_bytes))

    def all_reduce_s(self, size_bytes: Amount) -> Amount:
        """Around a ring of all trainers: 2 (p - 1) messages of a p-th each."""
        hops = 2 * (self.trainers - 1)
        per_byte_s = 1 / self.trainers / self.trainer_bytes_per_s
        return (size_bytes > 0) * (hops * (self.latency_s + size_bytes * per_byte_s))

    def server_s(self, rows: Amount, most_rows: Amount | None = None) -> Amount:
        """Rows between the servers and all trainers; `most_rows` of them are the busiest trainer's, a p-th if None."""
        most = rows / self.trainers if most_rows is None else most_rows
        served_s = rows * (self.row_bytes / self.server_bytes_per_s)
        slower_s: Amount = np.maximum(served_s, most * (self.row_bytes / self.trainer_bytes_per_s))
        return (rows > 0) * (self.latency_s + slower_s)

    def peer_s(self, most_rows: Amount) -> Amount:
        """Rows between trainers, of which the busiest sends or receives so many."""
        return (most_rows > 0) * (self.latency_s + most_rows * (self.gradient_bytes / self.trainer_bytes_per_s))


_PASSES_S = {"deepfm": (15.3e-3, 30.7e-3)}
"""Forward and backward pass, one to two, of what Figure 5.14 gives an iteration without embedding access (236 ms for
DeepFM) once 8 trainers at 10 Gb/s have all-reduced the gradients. It is 50 times what arithmetic in proportion to
DLRM's would give: its linear layer has a weight per row of the tables."""


def model_cluster(cluster: Cluster, model: DenseModel) -> Cluster:
    """The cluster with another model's dense part, and that model's passes where the text reports them."""
    forward_s, backward_s = _PASSES_S.get(model.name, (cluster.forward_s, cluster.backward_s))
    return replace(cluster, forward_s=forward_s, backward_s=backward_s, dense_bytes=model.size_bytes)


def find_cluster(
    trainers: int,
    *,
    model: str | DenseModel = "dlrm",
    dimension: int = 48,
    optimizer: str = "sgd",
    trainer_bandwidth: float | None = None,
    server_bandwidth: float | None = None,
    latency: float | None = None,
    fetch_latency: float | None = None,
    forward: float | None = None,
    backward: float | None = None,
    control: float | None = None,
) -> Cluster:
    """The cluster that a dense model's training takes place on; what is given goes before what the model says.

    `dimension`: fp32 values of a row. `optimizer`: of the rows, one of `OPTIMIZERS`. Bandwidths in bytes a second,
    times in seconds, as the fields of `Cluster`.
    """
    given: dict[str, Any] = {
        "trainer_bytes_per_s": trainer_bandwidth, "server_bytes_per_s": server_bandwidth, "latency_s": latency,
        "fetch_latency_s": fetch_latency, "forward_s": forward, "backward_s": backward, "control_s": control,
    }  # fmt: skip
    dense = model if isinstance(model, DenseModel) else named_dense_model(model)
    state = state_values(optimizer, dimension)
    row_bytes, state_bytes = (dimension + state) * FLOAT_BYTES, state * FLOAT_BYTES
    cluster = model_cluster(Cluster(trainers, row_bytes=row_bytes, state_bytes=state_bytes), dense)
    return replace(cluster, **{name: value for name, value in given.items() if value is not None})
