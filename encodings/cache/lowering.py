"""From a cache's modes to a schedule in the graph IR: one decode step of one device, layer by layer.

A layer multiplies by its weights, then attends to what is cached. The keys of each head are a tensor; those that heads
share are nowhere, so that a plan that uses one of them doesn't replay.
"""

from __future__ import annotations

from collections.abc import Sequence

from gapless.encodings.cache.problem import Problem
from gapless.ir.graph import Budget
from gapless.ir.schedule import Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.profiles.cache.modes import SHARED, LayerModes
from gapless.topologies.topology import Topology

__all__ = ["step_s", "to_schedule"]


def to_schedule(asked: Problem, chosen: Sequence[LayerModes]) -> Schedule:
    """A decode step: each sequence's next token through all layers.

    Tensors of layer l: its input, the token's queries, keys and values, its weights, the cached keys of each key head,
    and all cached values. What is read of the cache is spent of the budget `cache bytes`.
    """
    profile = asked.profile
    group, token_bytes = profile.heads // profile.key_heads, asked.batch * profile.heads * profile.layout.dimension
    token_bytes *= asked.element_bytes
    width, at_s = profile.key_heads + 4, 0.0
    builder = ScheduleBuilder(initial=[(0, 0, 0)], required=[(profile.layers * width, 0, 0)])
    for layer, modes in enumerate(chosen):
        keys_bytes = [_bytes(asked, "keys", name, modes.window) for name in modes.keys]
        values_bytes = sum(_bytes(asked, "values", name, modes.window) for name in modes.values)
        state, new, weights, values = (
            builder.tensor(f"{what} {layer}", size)
            for what, size in (
                ("input", token_bytes), ("token", 3 * token_bytes), ("weights", _weight_bytes(asked)),
                ("values", values_bytes),
            )
        )  # fmt: skip
        keys = [builder.tensor(f"keys {layer}.{head}", size) for head, size in enumerate(keys_bytes)]
        used = sorted({keys[head // group] for head in modes.representatives})
        builder.initial += [(tensor, 0, 0) for tensor in (weights, values, *(keys[head] for head in modes.kept))]
        project_s, attend_s = _seconds(asked, modes)
        spent = ((0, float(sum(keys_bytes[head] for head in modes.kept) + values_bytes)),)
        # A layer's input and token go with the op that uses them last.
        at_s = builder.compute(
            f"project {layer}", "project", 0, at_s, project_s, (state, weights), (new,), ((state, 0),)
        )
        reads, output = (new, values, *used), (layer + 1) * width
        at_s = builder.compute(
            f"attend {layer}", "attend", 0, at_s, attend_s, reads, (output,), ((new, 0),), spends=spent
        )
    builder.tensor("output", token_bytes)
    budget = Budget("cache bytes", float(asked.cache_bytes))
    topology = Topology(asked.device.name, (0,), engines=((0, "compute"),))
    return builder.schedule(topology, f"decode step of {profile.name}", (budget,), as_listed=True)


def _bytes(asked: Problem, part: str, name: str, window: int) -> int:
    """Keys that are shared have the size that they would have in full."""
    return asked.head_bytes(part, "full" if name == SHARED else name, window)


def _weight_bytes(asked: Problem) -> int:
    return -(-asked.profile.parameters // asked.profile.layers) * asked.element_bytes


def _seconds(asked: Problem, modes: LayerModes) -> tuple[float, float]:
    """Of a layer's products with its weights, and of its attention: each used head's scores, all heads' sums."""
    profile = asked.profile
    weights = -(-profile.parameters // profile.layers)
    project_s = asked.device.seconds(2.0 * asked.batch * weights, float(_weight_bytes(asked)))
    start = profile.layout.start(asked.tokens, modes.window)
    held = asked.tokens - start + (profile.layout.sinks if start else 0)
    flops = 2.0 * asked.batch * held * profile.layout.dimension * (len(set(modes.representatives)) + profile.heads)
    return project_s, asked.device.seconds(flops, float(asked.bytes_of([modes])))


def step_s(asked: Problem, chosen: Sequence[LayerModes]) -> float:
    """What the decode step takes."""
    return sum(sum(_seconds(asked, modes)) for modes in chosen)
