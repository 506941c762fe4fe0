"""From a head map to a schedule in the graph IR: one decode step of one device, layer by layer.

A layer multiplies by its weights, then attends to what is cached. The keys of heads that are not kept are tensors of
the graph, and nowhere: a map that uses one of them doesn't replay. The embedding is counted among the layers' weights.
"""

from __future__ import annotations

import numpy as np

from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.problem import Problem
from gapless.ir.graph import Budget
from gapless.ir.schedule import Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Topology

__all__ = ["step_s", "to_schedule"]


def to_schedule(asked: Problem, chosen: HeadMap) -> Schedule:
    """A decode step: each sequence's next token through all layers.

    Tensors of layer l: its input, its queries, keys and values of the token, its weights, the cached keys of each key
    head, and all cached values. What is read of the cache is spent of the budget `cache bytes`.
    """
    profile, key_heads = asked.profile, asked.profile.key_heads
    token_bytes = asked.batch * profile.heads * profile.dimension * asked.element_bytes
    width, weight_bytes, at_s = key_heads + 4, _weight_bytes(asked), 0.0
    builder = ScheduleBuilder(initial=[(0, 0, 0)], required=[(profile.layers * width, 0, 0)])
    for layer, kept in enumerate(chosen.kept):
        state, new, weights, values = (
            builder.tensor(f"{what} {layer}", size)
            for what, size in (
                ("input", token_bytes), ("token", 3 * token_bytes), ("weights", weight_bytes),
                ("values", key_heads * asked.head_bytes),
            )
        )  # fmt: skip
        keys = [builder.tensor(f"keys {layer}.{head}", asked.head_bytes) for head in range(key_heads)]
        used = sorted({keys[head // profile.group] for head in chosen.representative[layer].tolist()})
        builder.initial += [(tensor, 0, 0) for tensor in (weights, values, *(keys[head] for head in kept))]
        project_s, attend_s = _seconds(asked, chosen, layer)
        spent = ((0, float((len(kept) + key_heads) * asked.head_bytes)),)
        # A layer's input and token go with the op that uses them last.
        at_s = builder.compute(
            f"project {layer}", "project", 0, at_s, project_s, (state, weights), (new,), ((state, 0),)
        )
        reads, output = (new, values, *used), (layer + 1) * width
        at_s = builder.compute(
            f"attend {layer}", "attend", 0, at_s, attend_s, reads, (output,), ((new, 0),), spends=spent
        )
    builder.tensor("output", token_bytes)
    budget = Budget("cache bytes", float(asked.cache_bytes(asked.most_kept)))
    topology = Topology(asked.device.name, (0,), engines=((0, "compute"),))
    return builder.schedule(topology, f"decode step of {profile.name}", (budget,), as_listed=True)


def _weight_bytes(asked: Problem) -> int:
    return -(-asked.profile.parameters // asked.profile.layers) * asked.element_bytes


def _seconds(asked: Problem, chosen: HeadMap, layer: int) -> tuple[float, float]:
    """Of a layer's products with its weights, and of its attention: each different head's scores, all heads' sums."""
    profile, device = asked.profile, asked.device
    weights = -(-profile.parameters // profile.layers)
    project_s = device.seconds(2.0 * asked.batch * weights, float(_weight_bytes(asked)))
    scored = len(np.unique(chosen.representative[layer]))
    flops = 2.0 * asked.batch * asked.context * profile.dimension * (scored + profile.heads)
    cache_bytes = float((len(chosen.kept[layer]) + profile.key_heads) * asked.head_bytes)
    return project_s, device.seconds(flops, cache_bytes)


def step_s(asked: Problem, chosen: HeadMap) -> float:
    """What the decode step of a map takes."""
    return sum(sum(_seconds(asked, chosen, layer)) for layer in range(asked.profile.layers))
