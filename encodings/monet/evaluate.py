"""The evaluator: what given decisions cost, how much memory every step takes, and whether they can be executed.

The memory rows are the paper's (4.1, 4.12, 4.14): what a step holds, in the upper bound that the paper uses for
recomputation, where every skip tensor alive at node i is charged. `gapless.encodings.monet.lowering` makes the
schedule whose replay says what a run really holds. That is mostly less, but not always: a row charges an intermediate
made in place too little, since its measured workspace gives back an input that the row no longer holds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.profiles.training.graph import ForwardNode, Implementation, TrainingGraph

__all__ = ["Evaluation", "evaluate", "unlimited_s"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """Cost, memory and faults of decisions.

    `cost_s`: the objective (4.9), split into `forward_s`, `backward_s` and `recompute_s`. `forward_bytes[i]`: m_i.
    `recompute_bytes[t, i]`: m of the recomputation of node i in stage t, 0 where it doesn't run; row 0 is empty.
    `backward_bytes[b]`: m^_k. `faults`: what can't be executed, one line each.
    """

    forward_s: float
    backward_s: float
    recompute_s: float
    forward_bytes: Ints
    recompute_bytes: Ints
    backward_bytes: Ints
    faults: tuple[str, ...]

    @property
    def cost_s(self) -> float:
        """The whole step."""
        return self.forward_s + self.backward_s + self.recompute_s

    @property
    def peak_bytes(self) -> int:
        """The largest of all memory rows."""
        rows = (self.forward_bytes, self.recompute_bytes, self.backward_bytes)
        return max(int(row.max(initial=0)) for row in rows)


def evaluate(graph: TrainingGraph, decisions: Decisions) -> Evaluation:
    """Cost, memory and faults; raises `InputError` where the decisions are not of this graph."""
    decisions.check_against(graph)
    runs = [_runs_of_stage(graph, decisions, stage) for stage in range(len(graph.backward) + 1)]
    backward = [decisions.backward_run(graph, number) for number in range(len(graph.backward))]
    return Evaluation(
        forward_s=sum(impl.duration_s for _, impl in runs[0]),
        backward_s=sum(impl.duration_s for impl in backward),
        recompute_s=sum(impl.duration_s for stage in runs[1:] for _, impl in stage),
        forward_bytes=_forward_bytes(graph, decisions, runs[0]),
        recompute_bytes=_recompute_bytes(graph, decisions, runs),
        backward_bytes=_backward_bytes(graph, decisions, backward),
        faults=tuple(_faults(graph, decisions)),
    )


def unlimited_s(graph: TrainingGraph, out_of_place: bool = True) -> float:
    """What a step costs at least where memory is no limit; with runs in place as well, no plan costs less.

    The backward nodes that could share an intermediate are charged with equal parts of making it.
    """
    choices = [node.implementations if out_of_place else _first_runs(node) for node in graph.forward]
    least_s = [min(impl.duration_s for impl in impls) for impls in choices]
    needs = [{need for variant in node.variants for need in variant.needs} for node in graph.backward]
    readers = Counter(need for read in needs for need in read)
    found_s = sum(cost_s for cost_s, node in zip(least_s, graph.forward, strict=True) if node.creator is None)
    for node in graph.backward:
        found_s += min(
            min(impl.duration_s for impl in variant.implementations)
            + sum(least_s[need] / readers[need] for need in variant.needs if graph.forward[need].creator is not None)
            for variant in node.variants
        )
    return found_s


def _first_runs(node: ForwardNode) -> tuple[Implementation, ...]:
    """How a node may run for the first time, which for an intermediate may be a recomputation."""
    return (*node.implementations, *node.in_place, *(node.again if node.creator is not None else ()))


def _runs_of_stage(graph: TrainingGraph, decisions: Decisions, stage: int) -> list[tuple[int, Implementation]]:
    return [(node, decisions.run(graph, stage, node)) for node in np.flatnonzero(decisions.recomputed[stage]).tolist()]


def _forward_bytes(graph: TrainingGraph, decisions: Decisions, runs: list[tuple[int, Implementation]]) -> Ints:
    """c_i + |x_i| + |L_i| + what is kept beside L_i, with the parameters (4.1)."""
    size, local, kept = graph.output_bytes, graph.local, decisions.stored[1]
    memory = np.zeros(len(graph.forward), dtype=np.int64)
    for node, impl in runs:
        held = local[node] | kept
        held[node:] = False
        memory[node] = graph.fixed_bytes + impl.workspace_bytes + size[node] + size[held].sum()
    return memory


def _backward_bytes(graph: TrainingGraph, decisions: Decisions, impls: list[Implementation]) -> Ints:
    """c^_k + |y_k| + |L^_k| + |D_k| + what is kept beside D_k, with the parameters (4.12)."""
    size = graph.output_bytes
    memory = np.zeros(len(graph.backward), dtype=np.int64)
    for number, (node, impl) in enumerate(zip(graph.backward, impls, strict=True)):
        held = decisions.stored[number + 2].copy()
        held[list(node.variants[int(decisions.variant[number])].needs)] = True
        fixed = node.fixed_bytes + graph.gradient_bytes[number]
        memory[number] = fixed + impl.workspace_bytes + node.output_bytes + size[held].sum()
    return memory


def _recompute_bytes(graph: TrainingGraph, decisions: Decisions, runs: list[list[tuple[int, Implementation]]]) -> Ints:
    """Recomputation: up to node i what is kept or needed, behind it what the stage began with, and L_i (4.14)."""
    size, local = graph.output_bytes, graph.local
    memory = np.zeros(decisions.recomputed.shape, dtype=np.int64)
    for stage in range(1, len(runs)):
        backward = graph.backward[stage - 1]
        needed = np.zeros(len(graph.forward), dtype=np.bool_)
        needed[list(backward.variants[int(decisions.variant[stage - 1])].needs)] = True
        before, after = decisions.stored[stage], decisions.stored[stage + 1] | needed
        fixed = backward.fixed_bytes + graph.gradient_bytes[stage - 1]
        for node, impl in runs[stage]:
            if node == graph.loss:  # costs and holds nothing: its gradient is charged with the gradients
                continue
            held = np.concatenate([after[:node] | local[node, :node], [True], before[node + 1 :]])
            memory[stage, node] = fixed + impl.workspace_bytes + size[held].sum()
    return memory


def _faults(graph: TrainingGraph, decisions: Decisions) -> list[str]:
    """Executes the decisions on sets of tensors and notes what is missing."""
    faults = [
        f"forward pass: node {node} {graph.forward[node].name!r} must run"
        for node in np.flatnonzero(~decisions.recomputed[0]).tolist()
        if graph.forward[node].creator is None
    ]
    there: set[int] = set()
    for stage in range(len(graph.backward) + 1):
        there = set(np.flatnonzero(decisions.stored[stage]).tolist()) & there
        faults += [
            f"stage {stage}: node {node} is stored but was not there"
            for node in np.flatnonzero(decisions.stored[stage]).tolist()
            if node not in there and stage
        ]
        for node in np.flatnonzero(decisions.recomputed[stage]).tolist():
            op = graph.forward[node]
            reads = [*op.inputs] if op.creator is None else []
            faults += [f"stage {stage}: node {node} runs without its input {k}" for k in reads if k not in there]
            if op.creator is not None and not decisions.recomputed[stage, op.creator]:
                faults.append(f"stage {stage}: node {node} runs without its creator {op.creator}")
            if decisions.in_place[stage, node] and op.overwrites is not None:
                there.discard(op.overwrites)
            there.add(node)
        if stage:
            variant = graph.backward[stage - 1].variants[int(decisions.variant[stage - 1])]
            faults += [f"stage {stage}: backward misses {need}" for need in variant.needs if need not in there]
    return faults
