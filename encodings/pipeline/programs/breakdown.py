"""What each kind of communication adds to a step: its order again, without one kind after the other.

As Optimus-CC takes its step apart (figure 10): what is left out later is seen where nothing of what was left out before
hides it. The parts add up to the step, and what is left is computation and what ranks wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.units import format_seconds

__all__ = ["exposed_s", "said"]


def exposed_s(stages: Stages, order: Order) -> dict[str, float]:
    """Seconds of the step, or of the longest span where that is minimised, by kind: the shared embedding, sums among
    replicas, gradients between stages with their encoding and decoding, activations, and computation.
    """
    none = np.zeros_like(stages.hop_s)
    joined = replace(stages, embedding_s=0.0)
    apart = replace(joined, reduce_s=np.zeros_like(stages.reduce_s))
    forward = replace(apart, hop_s=none, encode_s=none, decode_s=none)
    alone = replace(forward, forward_hop_s=np.zeros_like(stages.forward_hop_s))
    gradients_s = stages.hop_s + stages.encode_s + stages.decode_s
    costs = {
        "embedding": (joined, stages.embedding_s), "sums": (apart, stages.reduce_s.max()),
        "gradients": (forward, gradients_s.max(initial=0.0)),
        "activations": (alone, stages.forward_hop_s.max(initial=0.0)),
    }  # fmt: skip
    found, before_s = dict[str, float](), _cost_s(stages, order)
    for kind, (without, most_s) in costs.items():
        after_s = _cost_s(without, order) if most_s else before_s
        found[kind] = before_s - after_s
        before_s = after_s
    return {**found, "computation": before_s}


def _cost_s(stages: Stages, order: Order) -> float:
    timeline = timed(stages, order) or timed(stages, order, needs_room=False)
    assert timeline is not None, "an order that can be timed"
    return timeline.cost_s


def said(exposed: Mapping[str, float]) -> str:
    """In one line, of kinds that add anything."""
    total = sum(exposed.values())
    parts = [
        f"{kind} {format_seconds(seconds)} ({seconds / total:.1%})" for kind, seconds in exposed.items() if seconds > 0
    ]
    return f"the step by kind: {', '.join(reversed(parts))}"
