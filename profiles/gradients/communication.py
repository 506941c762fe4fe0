"""Time of a gradient's collective, as a function of the bytes before compression.

A ring through p ranks, where each step takes `alpha_s` and moves at `bytes_per_s`:

- all-reduce: `2 alpha (p - 1) + 2 b (p - 1) / (p BW)`, equation 4.1 of *Utility of gradient compression*;
- all-gather of every rank's compressed gradient: `alpha (p - 1) + b (p - 1) / BW`, with b the compressed bytes.

The all-reduce is close to constant in p, the all-gather grows with p: at ratio r it moves fewer bytes than an
all-reduce of the raw gradient only while r > p / 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.profiles.gradients.compressors import NONE, Compressor
from gapless.profiles.gradients.cost_functions import FREE, AffineCost
from gapless.profiles.gradients.modes import PLAIN, Mode
from gapless.topologies.files import load_topology
from gapless.topologies.ring import fastest_ring
from gapless.topologies.topology import Topology

__all__ = [
    "RingNetwork",
    "all_gather_cost",
    "all_reduce_cost",
    "communication_cost",
    "compressor_mode",
    "find_network",
    "low_rank_bytes",
    "ring_network",
]

_NUMBER_BYTES = 4
_LOW_RANK_REDUCES = 3
"""All-reduces of a group one after the other in PyTorch's hook: what isn't compressed, then either factor."""

_LATENCY_S = 10e-6
"""Of one step of a ring that numbers describe: about what the figures of *Utility of gradient compression* need."""


@dataclass(frozen=True)
class RingNetwork:
    """What a ring is made of: `ranks`, bandwidth out of a rank, and `alpha_s`, the latency of one step.

    Raises `InputError` for fewer than one rank, a bandwidth that isn't > 0, a latency that isn't finite and >= 0.
    """

    ranks: int
    bytes_per_s: float
    alpha_s: float = 0.0

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise InputError(f"ranks: must be >= 1, got {self.ranks}")
        if not self.bytes_per_s > 0:
            raise InputError(f"bandwidth: must be > 0, got {self.bytes_per_s}")
        if not (math.isfinite(self.alpha_s) and self.alpha_s >= 0):
            raise InputError(f"latency: must be finite and >= 0, got {self.alpha_s}")


def all_reduce_cost(network: RingNetwork, ratio: float = 1.0) -> AffineCost:
    """A ring all-reduce of gradients that are `ratio` times smaller than the bytes given (equation 4.1)."""
    others = network.ranks - 1
    beta_s_per_byte = 2 * others / (network.ranks * network.bytes_per_s)
    return AffineCost(2 * network.alpha_s * others, beta_s_per_byte).at_ratio(ratio)


def all_gather_cost(network: RingNetwork, ratio: float = 1.0) -> AffineCost:
    """A ring all-gather of gradients that are `ratio` times smaller than the bytes given."""
    others = network.ranks - 1
    return AffineCost(network.alpha_s * others, others / network.bytes_per_s).at_ratio(ratio)


def communication_cost(network: RingNetwork, compressor: Compressor) -> AffineCost:
    """The collective that a compressor can use: all-reduce where its messages can be added, else all-gather."""
    if network.ranks == 1:
        return FREE
    collective = all_reduce_cost if compressor.all_reducible else all_gather_cost
    return collective(network, compressor.ratio)


def compressor_mode(
    compressor: Compressor, network: RingNetwork, shapes: Sequence[Sequence[int]] = (), speed: float = 1.0
) -> Mode:
    """The mode of a compressor on a network; `speed`: of the device, relative to a V100.

    A low-rank one needs the tensors' `shapes` to say what it sends; else it is a ratio of the bytes.
    """
    mode = Mode(
        name=PLAIN if compressor is NONE else compressor.name,
        communication=communication_cost(network, compressor),
        encode=compressor.encode_cost(speed),
        decode=compressor.decode_cost(network.ranks, speed),
        error=compressor.error,
    )
    if not compressor.rank or not shapes:
        return mode
    sizes = [low_rank_bytes(shape, compressor.rank) for shape in shapes]
    reduce = all_reduce_cost(network)
    return replace(
        mode,
        communication=AffineCost(_LOW_RANK_REDUCES * reduce.alpha_s, reduce.beta_s_per_byte),
        encoded_bytes=tuple(float(encoded) for encoded, _ in sizes),
        sent_bytes=tuple(float(sent) for _, sent in sizes),
    )


def low_rank_bytes(shape: Sequence[int], rank: int) -> tuple[int, int]:
    """What is encoded of a tensor in single precision, and what is sent, as PyTorch's PowerSGD hook does it.

    A tensor is a matrix of its first axis and all others, (m, n), sent as two factors of r (m + n) numbers if those are
    less than half of it; else it goes as it is.
    """
    rows, columns = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    factors = min(rank, rows, columns) * (rows + columns)
    if 2 * factors < rows * columns:
        return _NUMBER_BYTES * rows * columns, _NUMBER_BYTES * factors
    return 0, _NUMBER_BYTES * rows * columns


def ring_network(topology: Topology) -> RingNetwork:
    """The fastest ring found through all ranks of a topology; each of its steps takes as long as on the slowest link.

    Links of the ring that share a resource (a network interface, a bus) take turns. Latency and inverse bandwidth are
    the largest on the ring, each by itself. Raises `InputError` where no ring is found.
    """
    links = [topology.links[number] for number in fastest_ring(topology)]
    turns = [[link] for link in links]
    turns += [[link for link in links if resource in link.resources] for resource in range(len(topology.resources))]
    beta_s_per_byte = max((math.fsum(link.beta_s_per_byte for link in turn) for turn in turns), default=0.0)
    return RingNetwork(
        ranks=topology.device_count,
        bytes_per_s=1 / beta_s_per_byte if beta_s_per_byte > 0 else math.inf,
        alpha_s=max((math.fsum(link.alpha_s for link in turn) for turn in turns), default=0.0),
    )


def find_network(
    *,
    ranks: int | None = None,
    bandwidth: float | None = None,
    latency: float | None = None,
    topology: str | Topology | None = None,
    nodes: int | None = None,
) -> RingNetwork:
    """The ring that numbers describe, or that through the ranks of a topology.

    `bandwidth`: out of a rank, in bytes a second; `latency`: of one step, in seconds, 10 us by default. `nodes`: of a
    named machine. Raises `InputError` that names an argument which is missing or doesn't go with the others.
    """
    if topology is None:
        if nodes is not None:
            raise InputError("nodes: goes with topology")
        if ranks is None or bandwidth is None:
            name = "ranks" if ranks is None else "bandwidth"
            raise InputError(f"{name}: must be given, or a topology (`gapless list topologies`)")
        return RingNetwork(ranks, bandwidth, _LATENCY_S if latency is None else latency)
    for name, value in (("ranks", ranks), ("bandwidth", bandwidth), ("latency", latency)):
        if value is not None:
            raise InputError(f"{name}: give it or topology, not both")
    return ring_network(topology if isinstance(topology, Topology) else load_topology(topology, nodes))
