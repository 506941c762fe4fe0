"""From a head map to a schedule in the graph IR: one decode step of one device, layer by layer.

A layer multiplies by its weights, then attends to what is cached. The keys of heads that are not kept are tensors of
the graph, and nowhere: a map that uses one of them doesn't replay. The embedding is counted among the layers' weights.
"""

from __future__ import annotations

import numpy as np

from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.problem import Problem
from gapless.graph import Budget, Graph, Implementation, Op, Placement
from gapless.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Topology

__all__ = ["step_s", "to_schedule"]


def to_schedule(asked: Problem, chosen: HeadMap) -> Schedule:
    """A decode step: each sequence's next token through all layers.

    Tensors of layer l: its input, its queries, keys and values of the token, its weights, the cached keys of each key
    head, and all cached values. What is read of the cache is spent of the budget `cache bytes`.
    """
    profile, key_heads = asked.profile, asked.profile.key_heads
    token_bytes = asked.batch * profile.heads * profile.dimension * asked.element_bytes
    width = key_heads + 4
    last = profile.layers * width
    weight_bytes = _weight_bytes(asked)
    sizes, names, ops, cached = [], [], [], [0]
    for layer, kept in enumerate(chosen.kept):
        first = layer * width
        state, new, weights, values = range(first, first + 4)
        sizes += [token_bytes, 3 * token_bytes, weight_bytes, key_heads * asked.head_bytes]
        sizes += [asked.head_bytes] * key_heads
        names += [f"{what} {layer}" for what in ("input", "token", "weights", "values")]
        names += [f"keys {layer}.{head}" for head in range(key_heads)]
        used = sorted({first + 4 + head // profile.group for head in chosen.representative[layer].tolist()})
        cached += [weights, values, *(first + 4 + head for head in kept)]
        project_s, attend_s = _seconds(asked, chosen, layer)
        spent = ((0, float((len(kept) + key_heads) * asked.head_bytes)),)
        ops += [
            Op(f"project {layer}", (state, weights), (new,), (Implementation(project_s),), "project"),
            Op(f"attend {layer}", (new, values, *used), (first + width if layer + 1 < profile.layers else last,),
               (Implementation(attend_s, spends=spent),), "attend"),
        ]  # fmt: skip
    budget = Budget("cache bytes", float(asked.cache_bytes(asked.most_kept)))
    graph = Graph(
        np.array([*sizes, token_bytes], dtype=np.int64),
        tuple(ops),
        initial=Placement.of([(tensor, 0) for tensor in cached]),
        required=Placement.of([(last, 0)]),
        tensor_names=(*names, "output"),
        budgets=(budget,),
    )
    topology = Topology(asked.device.name, (0,), engines=((0, "compute"),))
    return schedule_from_events(graph, topology, _events(ops, width), f"decode step of {profile.name}")


def _events(ops: list[Op], width: int) -> list[Event]:
    """Op after op; a layer's input and token go with the op that uses them last."""
    events, at_s = [], 0.0
    for number, op in enumerate(ops):
        end_s = at_s + op.implementations[0].duration_s
        gone = ((op.inputs[0], 0),)
        events.append(Event(EventKind.COMPUTE, at_s, end_s, 0, number, frees=gone))
        at_s = end_s
    return events


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
