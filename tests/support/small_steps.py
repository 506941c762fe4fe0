"""Small sharded steps of whole times and sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from gapless.encodings.fsdp.step.costs import Costs, Inner, Replicas
from gapless.options import Deadline, SolveOptions

__all__ = ["FREE", "a_step", "costs_of"]

_NONE = Replicas()
FREE = Deadline(SolveOptions())
"""No limit."""


def costs_of(
    parameters: Sequence[int], forward_s: Sequence[float], backward_s: Sequence[float], *, latency_s: float = 1.0,
    gather_s: float = 2.0, scatter_s: float = 2.0, gradient_bytes: float = 1.0, memory_bytes: float = math.inf,
    takes_when_begun: bool = False, inner_s: float | None = None,
    replicas: Replicas = _NONE,
) -> Costs:  # fmt: skip
    """In one precision, with a byte of a gathered parameter."""
    return Costs(
        np.array(parameters, dtype=np.int64), np.array(forward_s, float), np.array(backward_s, float), latency_s,
        {"bf16": gather_s}, {"fp32": scatter_s}, 1.0, gradient_bytes, memory_bytes, takes_when_begun,
        None if inner_s is None else Inner(latency_s, {"bf16": inner_s}, {"fp32": inner_s}), replicas,
    )  # fmt: skip


@st.composite
def a_step(
    draw: st.DrawFn, most_layers: int = 4, least_backward: int = 1, takes_when_begun: bool = False,
    is_two_level: bool = False, has_replicas: bool = False,
) -> Costs:  # fmt: skip
    """With memory between the least and enough for all. `has_replicas`: secondary shards, hybrid sharding or both are
    offered."""
    count = draw(st.integers(1, most_layers))
    parameters = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count).filter(any))
    forward = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    backward = draw(st.lists(st.integers(least_backward, 8), min_size=count, max_size=count))
    gradient = draw(st.integers(0, 2))
    least, all_ = max(parameters) * (1 + gradient), sum(parameters) * (1 + gradient)
    memory = draw(st.one_of(st.just(math.inf), st.integers(least, max(least, all_) + 1)))
    shares = [(0.5, None), (1.0, 1.0), (0.25, 0.5), (0.5, 3.0)] if has_replicas else [(1.0, None)]
    replicas = Replicas(*draw(st.sampled_from(shares)))
    return costs_of(
        parameters, forward, backward, latency_s=draw(st.integers(0, 2)), gather_s=draw(st.integers(1, 3)),
        scatter_s=draw(st.integers(1, 3)), gradient_bytes=gradient, memory_bytes=float(memory),
        takes_when_begun=takes_when_begun, inner_s=draw(st.integers(1, 3)) if is_two_level else None,
        replicas=replicas,
    )  # fmt: skip
