"""Cluster: the machine that a recommendation model is trained on, as far as a plan's times depend on it.

And how many examples of a batch each of its trainers takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.question import (
    LATENCY_S,
    PLACEMENTS,
    SERVER_BYTES_PER_S,
    TRAINER_BYTES_PER_S,
    TRAINER_FLOPS_PER_S,
    ClusterQuestion,
)
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.traces.recommendation import FLOAT_BYTES, DenseModel, named_dense_model
from gapless.profiles.traces.trace_question import state_values

__all__ = [
    "ALL_REDUCE_SHARE",
    "MEASURED_EXAMPLES",
    "Cluster",
    "capacities",
    "checked_capacities",
    "cluster_of",
    "model_cluster",
    "places_of",
]


Amount = TypeVar("Amount", float, NDArray[np.float64])
"""One number, or one per batch."""

MEASURED_EXAMPLES = 2048
"""Of a trainer in Figure 5.14: 16,384 on 8."""
ALL_REDUCE_SHARE = 0.8066
"""With `TRAINER_FLOPS_PER_S` the two unknowns of two measurements: iterations without embedding access take 30 ms with
DLRM and 236 ms with DeepFM on 8 trainers at 10 Gb/s (Figure 5.14), which are each model's arithmetic and the all-reduce
of its gradients. 27 % of a V100's peak in fp32, and 8.07 Gb/s."""


@dataclass(frozen=True)
class Cluster:
    """Trainers, embedding servers and the network between them; a dense model's times on one trainer.

    `trainer_bytes_per_s`, `server_bytes_per_s`: the network of a trainer and of a server, each way. Each server has a
    slice of every row's values, so that all carry the same. `placement`: where servers are, and what else their network
    carries. `apart`: on machines of their own, which trainers reach by an interface of its own; `same-network`: by the
    interface that carries the synchronisation too; `colocated`: a server in each trainer, whose slice needs no network.
    `latency_s`: of one message. `fetch_latency_s`: from asking the servers for a batch's rows to the first of them;
    requests for several batches may be under way. `row_bytes`: of an embedding and of what the optimiser keeps
    beside it, `state_bytes` of them: both are fetched, cached and written back, gradients have no state.
    `forward_s`, `backward_s`: of `pass_examples` examples on one trainer; of others in proportion. `dense_bytes`: the
    gradients that are all-reduced after each batch. `all_reduce_share`: of the trainers' bandwidth that an all-reduce
    reaches. `control_s`: what a batch takes beside its messages in the designs that send rows from trainer to trainer
    (`partitioned`, `lfu`, `lrpp-fine-grained`): buffers, many connections, tracking where rows are.

    The defaults are the paper's: p3.2xlarge trainers at 10 Gb/s, one c5.18xlarge server at 25 Gb/s, dimension 48 in
    fp32, the dense part of DLRM. The paper reports 80-90 ms of control for a partitioned cache; who sends what is
    planned ahead here, in every design, so that the default is none. The fetch latency isn't reported: times of 536 and
    289 ms at L = 5 and 10 (Table 5.3) are a round trip of 2.7-2.9 s shared by L batches, which is their software's, so
    the default is none.
    Raises `InputError` for numbers that are negative or not finite, bandwidths that are zero, and a share above 1.
    """

    trainers: int
    servers: int = 1
    trainer_bytes_per_s: float = TRAINER_BYTES_PER_S
    server_bytes_per_s: float = SERVER_BYTES_PER_S
    latency_s: float = LATENCY_S
    row_bytes: int = 192
    forward_s: float = 2 * 2_974_800 * MEASURED_EXAMPLES / TRAINER_FLOPS_PER_S
    backward_s: float = 4 * 2_974_800 * MEASURED_EXAMPLES / TRAINER_FLOPS_PER_S
    pass_examples: int = MEASURED_EXAMPLES
    dense_bytes: int = 4 * 2_962_289
    all_reduce_share: float = ALL_REDUCE_SHARE
    fetch_latency_s: float = 0.0
    control_s: float = 0.0
    state_bytes: int = 0
    placement: str = "apart"

    def __post_init__(self) -> None:
        for title in ("trainers", "servers", "row_bytes", "pass_examples"):
            if getattr(self, title) < 1:
                raise InputError(f"cluster: {title} must be >= 1, got {getattr(self, title)}")
        check_known("placement", self.placement, PLACEMENTS)
        if self.placement == "colocated" and self.servers != self.trainers:
            raise InputError(f"cluster: colocated servers must be {self.trainers}, one a trainer, got {self.servers}")
        if not 0 < self.all_reduce_share <= 1:
            raise InputError(f"cluster: all_reduce_share must be above 0 and at most 1, got {self.all_reduce_share}")
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
        """A batch of `pass_examples` a trainer without embedding access: both passes, and the dense all-reduce."""
        return self.forward_s + self.backward_s + self.all_reduce_s(float(self.dense_bytes))

    def pass_s(self, examples: Amount) -> tuple[Amount, Amount]:
        """Forward and backward pass of so many examples on one trainer."""
        share = examples / self.pass_examples
        return self.forward_s * share, self.backward_s * share

    def all_reduce_s(self, size_bytes: Amount) -> Amount:
        """Around a ring of all trainers: 2 (p - 1) messages of a p-th each."""
        hops = 2 * (self.trainers - 1)
        per_byte_s = 1 / self.trainers / (self.trainer_bytes_per_s * self.all_reduce_share)
        return (size_bytes > 0) * (hops * (self.latency_s + size_bytes * per_byte_s))

    @property
    def server_byte_s(self) -> float:
        """A byte between a trainer and the servers, all of which carry their part of it at once.

        Of colocated servers each trainer's network carries what isn't its own slice, while others carry theirs.
        """
        if self.placement == "colocated":
            return (self.trainers - 1) / self.trainers / self.trainer_bytes_per_s
        return 1 / (self.servers * self.server_bytes_per_s)

    def server_s(self, rows: Amount, most_rows: Amount | None = None) -> Amount:
        """Rows between the servers and all trainers; `most_rows` of them are the busiest trainer's, a p-th if None.

        Of colocated servers, a trainer gets (p - 1) / p of its rows, and none sends more than the busiest gets.
        """
        most = rows / self.trainers if most_rows is None else most_rows
        if self.placement == "colocated":
            return (rows > 0) * (self.trainers > 1) * (self.latency_s + most * self.row_bytes * self.server_byte_s)
        served_s = rows * (self.row_bytes * self.server_byte_s)
        slower_s: Amount = np.maximum(served_s, most * (self.row_bytes / self.trainer_bytes_per_s))
        return (rows > 0) * (self.latency_s + slower_s)

    def peer_s(self, most_rows: Amount, row_bytes: int | None = None) -> Amount:
        """Rows between trainers, of which the busiest sends or receives so many: a planned all-to-all.

        What each trainer sends to each other one is known ahead, and all messages are under way at once. The exchange
        pays its latency once, then the bytes of its busiest trainer. `row_bytes`: of each row, gradients if None.
        """
        per_row_s = (self.gradient_bytes if row_bytes is None else row_bytes) / self.trainer_bytes_per_s
        return (most_rows > 0) * (self.latency_s + most_rows * per_row_s)


def model_cluster(cluster: Cluster, model: DenseModel, flops_per_s: float = TRAINER_FLOPS_PER_S) -> Cluster:
    """The cluster with another model's dense part, its passes as long as its arithmetic: one third is forward."""
    training_s = model.training_flops(cluster.pass_examples) / flops_per_s
    return replace(cluster, forward_s=training_s / 3, backward_s=training_s * 2 / 3, dense_bytes=model.size_bytes)


def cluster_of(asked: ClusterQuestion, trainers: int, batch_size: int | None = None) -> Cluster:
    """The cluster that is asked for; both passes are those of a trainer's part of a batch, or `MEASURED_EXAMPLES`."""
    examples = MEASURED_EXAMPLES if batch_size is None else -(-batch_size // trainers)
    servers = trainers if asked.placement == "colocated" and asked.servers is None else asked.servers
    given: dict[str, Any] = {
        "servers": servers, "placement": asked.placement,
        "trainer_bytes_per_s": asked.trainer_bandwidth, "server_bytes_per_s": asked.server_bandwidth,
        "latency_s": asked.latency, "fetch_latency_s": asked.fetch_latency, "forward_s": asked.forward,
        "backward_s": asked.backward, "control_s": asked.control,
    }  # fmt: skip
    dense = asked.model if isinstance(asked.model, DenseModel) else named_dense_model(asked.model)
    state = state_values(asked.optimizer, asked.dimension)
    row_bytes, state_bytes = (asked.dimension + state) * FLOAT_BYTES, state * FLOAT_BYTES
    cluster = Cluster(trainers, row_bytes=row_bytes, state_bytes=state_bytes, pass_examples=examples)
    cluster = model_cluster(cluster, dense, asked.trainer_flops or TRAINER_FLOPS_PER_S)
    return replace(cluster, **{name: value for name, value in given.items() if value is not None})


def capacities(examples: int, trainers: int, shares: Sequence[float] | None = None) -> Ints:
    """How many examples each trainer takes.

    As even as whole numbers allow: `examples / trainers` rounded down or up, the first trainers taking one more. With
    `shares` (one weight a trainer, of any sum) in proportion to them, what rounding leaves going to the largest parts.

    Raises `InputError` for shares that are negative or not finite, all zero, or not one per trainer.
    """
    if trainers < 1:
        raise InputError(f"trainers: must be at least 1, got {trainers}")
    if examples < 0:
        raise InputError(f"batch size: must be at least 0, got {examples}")
    if shares is None:
        even: Ints = examples // trainers + (np.arange(trainers) < examples % trainers).astype(np.int64)
        return even
    weight = np.asarray(shares, dtype=np.float64)
    if weight.shape != (trainers,):
        raise InputError(f"shares: must be one per trainer, {trainers} in all, got {weight.size}")
    is_bad = ~(np.isfinite(weight) & (weight >= 0))
    if is_bad.any():
        raise InputError(f"shares: must be finite and >= 0, got {weight[is_bad][0]:g} for trainer {is_bad.argmax()}")
    if not weight.any():
        raise InputError("shares: at least one must be > 0, got zeros only")
    exact = examples * (weight / weight.sum())
    whole: Ints = np.floor(exact).astype(np.int64)
    most_cut_off = np.lexsort((np.arange(trainers), whole - exact))
    whole[most_cut_off[: examples - int(whole.sum())]] += 1
    return whole


def places_of(examples: int, batch_size: int, trainers: int, shares: Sequence[float] | None = None) -> Ints:
    """How many examples of a batch each trainer takes, of a short one never more than of a whole one.

    Rounding alone doesn't see to that: of 5 examples a trainer may get none, and one of 4.
    """
    most = capacities(batch_size, trainers, shares)
    places = np.minimum(capacities(examples, trainers, shares), most)
    while rest := examples - int(places.sum()):
        places[np.flatnonzero(places < most)[:rest]] += 1
    return places


def checked_capacities(given: ArrayLike | None, examples: int, trainers: int) -> Ints:
    """The capacities that a caller gives, or even ones for None.

    Raises `InputError` unless they are whole numbers >= 0, one per trainer, that add up to the number of examples.
    """
    if given is None:
        return capacities(examples, trainers)
    numbers = np.asarray(given)
    if numbers.shape != (trainers,) or not np.issubdtype(numbers.dtype, np.integer):
        kind = f"shape {numbers.shape} of {numbers.dtype}"
        raise InputError(f"capacities: must be whole numbers, one per trainer ({trainers}), got {kind}")
    if (numbers < 0).any():
        where = int(np.argmax(numbers < 0))
        raise InputError(f"capacities: must be >= 0, got {numbers[where]} for trainer {where}")
    if int(numbers.sum()) != examples:
        raise InputError(f"capacities: must add up to the number of examples, {examples}, got {numbers.sum()}")
    return numbers.astype(np.int64)
