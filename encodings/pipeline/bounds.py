"""Lower bounds on the step time, by name: what no order of these stages can beat."""

from __future__ import annotations

import numpy as np

from gapless.encodings.pipeline.stages import Stages

__all__ = ["bounds_of"]


def bounds_of(stages: Stages) -> dict[str, float]:
    """Seconds, by name; each holds for every order within memory and every choice of modes."""
    return {"load": load_s(stages), "path": path_s(stages)}


def load_s(stages: Stages) -> float:
    """A rank's first forward has to arrive, it computes all of its ops, and its gradients are summed."""
    hop_s = stages.forward_hop_s
    arrival_s = np.concatenate([[0.0], np.cumsum(stages.forward_s[:-1] + hop_s)])
    reduce_s = stages.reduce_s.min(axis=0)
    ends_s = []
    for rank in range(stages.ranks):
        here = np.flatnonzero(stages.rank == rank)
        busy_s = stages.micro_batches * float(stages.compute_s[rank])
        ends_s.append(float(arrival_s[here].min()) + busy_s + float(reduce_s[here].min()))
    return max(ends_s)


def path_s(stages: Stages) -> float:
    """A micro-batch goes forward through all stages and back to the first, whose gradients are then summed."""
    hops_s = float((stages.hop_s + stages.encode_s + stages.decode_s).min(axis=0).sum())
    forwards_s = float(stages.forward_s.sum() + stages.forward_hop_s.sum())
    last_s = float(stages.weight_s[0] + stages.reduce_s[:, 0].min())
    return forwards_s + float(stages.backward_s.sum()) + hops_s + last_s
