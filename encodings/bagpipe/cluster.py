"""Cluster: the machine that a recommendation model is trained on, as far as a plan's times depend on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planwright.errors import InputError

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """Trainers, embedding servers and the network between them; a dense model's times on one trainer.

    `trainer_bytes_per_s`, `server_bytes_per_s`: a trainer's network, and that of all servers together, each way.
    `latency_s`: of one message. `row_bytes`: of an embedding. `forward_s`, `backward_s`: of one trainer's examples of
    a batch. `dense_bytes`: the gradients that are all-reduced after each batch.
    The defaults are the paper's: p3.2xlarge trainers at 10 Gb/s, one c5.18xlarge server at 25 Gb/s, dimension 48 in
    fp32, and a step of 30 ms (DLRM without embedding access) with the dense part of DLRM.
    Raises `InputError` for numbers that are negative or not finite, and bandwidths that are zero.
    """

    trainers: int
    servers: int = 1
    trainer_bytes_per_s: float = 10e9 / 8
    server_bytes_per_s: float = 25e9 / 8
    latency_s: float = 50e-6
    row_bytes: int = 192
    forward_s: float = 10e-3
    backward_s: float = 20e-3
    dense_bytes: int = 4 * 2_962_289

    def __post_init__(self) -> None:
        for title in ("trainers", "servers", "row_bytes"):
            if getattr(self, title) < 1:
                raise InputError(f"cluster: {title} must be >= 1, got {getattr(self, title)}")
        for title in ("trainer_bytes_per_s", "server_bytes_per_s"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"cluster: {title} must be finite and > 0, got {value}")
        for title in ("latency_s", "forward_s", "backward_s", "dense_bytes"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"cluster: {title} must be finite and >= 0, got {value}")

    def all_reduce_s(self, size_bytes: float) -> float:
        """Around a ring of all trainers: 2 (p - 1) messages of a p-th each."""
        hops = 2 * (self.trainers - 1)
        return hops * (self.latency_s + size_bytes / self.trainers / self.trainer_bytes_per_s) if size_bytes else 0.0

    def server_s(self, rows: float) -> float:
        """Rows between the servers and the trainers, however many trainers share them."""
        return self.latency_s + rows * self.row_bytes / self.server_bytes_per_s if rows else 0.0
