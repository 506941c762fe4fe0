"""The memory of one training step when everything is kept, as an eager framework does it."""

from __future__ import annotations

from gapless.profiles.training.graph import BackwardNode, TrainingGraph, Variant

__all__ = ["default_variants", "peak_without_saving_bytes"]

_INDEX_BYTES_PER_BYTE = 2
"""PyTorch keeps the place of each maximum in 64 bits, beside the 32 bits of the maximum itself."""


def peak_without_saving_bytes(graph: TrainingGraph) -> int:
    """Peak bytes without recomputation and without a choice of operators.

    Each forward output that a backward node needs is kept from its making to its last use. Operators whose name ends in
    `_` run in place, as in PyTorch, and backward nodes use their first variant that gets by without overwritten tensors
    and without intermediates, or the first of all where there is none. A max-pooling also keeps its positions, and so
    finds nothing again. All run their default implementation. Parameter gradients are there from the beginning: PyTorch
    keeps those of the step before.
    """
    in_place = _in_place(graph)
    chosen = default_variants(graph)
    fixed_bytes = max(node.fixed_bytes for node in graph.backward)
    kept_until: dict[int, int] = {}
    for number, variant in enumerate(chosen):
        kept_until.update(dict.fromkeys(variant.needs, number))
    return fixed_bytes + max(_forward_peak(graph, in_place, kept_until), _backward_peak(graph, chosen, kept_until))


def default_variants(graph: TrainingGraph) -> list[Variant]:
    """Of each backward node, what a framework runs: see `peak_without_saving_bytes`."""
    gone = set(_in_place(graph).values())
    gone |= {number for number, node in enumerate(graph.forward) if node.creator is not None}
    return [_default_variant(node, gone) for node in graph.backward]


def _in_place(graph: TrainingGraph) -> dict[int, int]:
    """The operators that a framework runs in place, and what they overwrite."""
    return {
        number: node.overwrites
        for number, node in enumerate(graph.forward)
        if node.op.endswith("_") and node.overwrites is not None and node.creator is None
    }


def _default_variant(node: BackwardNode, gone: set[int]) -> Variant:
    return next((variant for variant in node.variants if gone.isdisjoint(variant.needs)), node.variants[0])


def _forward_peak(graph: TrainingGraph, in_place: dict[int, int], kept_until: dict[int, int]) -> int:
    last_user = {source: number for number, node in enumerate(graph.forward) for source in node.inputs}
    alive: dict[int, int] = {}
    indices_bytes = peak_bytes = 0
    for number, node in enumerate(graph.forward):
        if node.creator is not None:
            continue
        impl = (node.in_place if number in in_place else node.implementations)[0]
        before_bytes = sum(alive.values()) + indices_bytes
        peak_bytes = max(peak_bytes, before_bytes + node.output_bytes + impl.workspace_bytes)
        alive[number] = node.output_bytes
        indices_bytes += _kept_indices_bytes(graph, number)
        if in_place.get(number) not in kept_until:
            alive.pop(in_place.get(number, -1), None)
        for source in node.inputs:
            if last_user[source] == number and source not in kept_until:
                alive.pop(source, None)
    return peak_bytes


def _backward_peak(graph: TrainingGraph, chosen: list[Variant], kept_until: dict[int, int]) -> int:
    indices_bytes = sum(_kept_indices_bytes(graph, number) for number in range(graph.loss))
    last_bytes = [0] * len(graph.backward)
    for source, last in kept_until.items():
        last_bytes[last] += graph.forward[source].output_bytes
    kept_bytes, peak_bytes = sum(last_bytes), 0
    for number, (node, variant) in enumerate(zip(graph.backward, chosen, strict=True)):
        own_indices_bytes = _kept_indices_bytes(graph, node.forward)
        workspace_bytes = 0 if own_indices_bytes else variant.implementations[0].workspace_bytes
        gradients_bytes = int(graph.gradient_bytes[number]) + node.output_bytes
        peak_bytes = max(peak_bytes, kept_bytes + indices_bytes + gradients_bytes + workspace_bytes)
        indices_bytes -= own_indices_bytes
        kept_bytes -= last_bytes[number]
    return peak_bytes


def _kept_indices_bytes(graph: TrainingGraph, number: int) -> int:
    node = graph.forward[number]
    pools = "max_pool" in node.op and node.creator is None
    return _INDEX_BYTES_PER_BYTE * node.output_bytes if pools else 0
