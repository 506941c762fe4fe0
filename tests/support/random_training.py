"""Random small training graphs for property tests: chains and skip connections, intermediates, in place, variants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.search.retention import recompute_on_need
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

__all__ = ["executable_decisions", "random_keep", "training_graphs"]


@dataclass
class _Draft:
    """What is known of a graph while it is drawn."""

    draw: st.DrawFn
    forward: list[ForwardNode] = field(default_factory=list)
    mask_of: dict[int, int] = field(default_factory=dict)

    def implementations(self, most: int) -> tuple[Implementation, ...]:
        count = self.draw(st.integers(1, most))
        numbers = st.integers(0, 20)
        return tuple(
            Implementation(self.draw(numbers) * 1e-3, self.draw(numbers), f"algorithm {k}") for k in range(count)
        )


@st.composite
def training_graphs(draw: st.DrawFn, most_ops: int = 6) -> TrainingGraph:
    """A convolution, then ops that each read the one before and some an earlier one too, then the loss.

    Negative workspaces stand only where the bytes that they give back are really there: for ops in place, and for
    backward nodes that are the last to read a gradient.
    """
    draft = _Draft(draw)
    main = [_add(draft, "conv", ())]
    for _ in range(draw(st.integers(0, most_ops - 1))):
        earlier = draw(st.sampled_from(main))
        if earlier != main[-1] and draw(st.booleans()):
            main.append(_add(draft, "add", (earlier, main[-1])))
        else:
            main.append(_add(draft, draw(st.sampled_from(["conv", "relu", "relu", "norm", "pool"])), (main[-1],)))
    loss = len(draft.forward)
    draft.forward.append(ForwardNode("loss", "loss", draw(st.integers(0, 8)), (main[-1],), (Implementation(0.0),)))
    _run_in_place(draft)
    fixed_bytes = draw(st.integers(0, 20))
    backward = _backward(draft, main, loss, fixed_bytes)
    return TrainingGraph("random", 1, tuple(draft.forward), tuple(backward), fixed_bytes)


def _add(draft: _Draft, op: str, inputs: tuple[int, ...]) -> int:
    number = len(draft.forward)
    keeps_size = op in ("relu", "norm", "add")
    size_bytes = draft.forward[inputs[0]].output_bytes if keeps_size else draft.draw(st.integers(1, 64))
    impls = draft.implementations(3 if op == "conv" else 1)
    again = tuple(replace(impl, duration_s=impl.duration_s / 2) for impl in impls) if op == "norm" else ()
    draft.forward.append(ForwardNode(f"{op}.{number}", op, size_bytes, inputs, impls, again=again))
    if op in ("relu", "pool") and draft.draw(st.booleans()):
        draft.mask_of[number] = number + 1
        size_bytes = draft.draw(st.integers(1, 8))
        mask = ForwardNode(
            f"mask.{number + 1}", "mask", size_bytes, (number,), draft.implementations(1), creator=number
        )
        draft.forward.append(mask)
    return number


def _run_in_place(draft: _Draft) -> None:
    """A ReLU may overwrite an input that nothing behind it reads."""
    last_reader = {source: number for number, node in enumerate(draft.forward) for source in node.inputs}
    for number, node in enumerate(draft.forward):
        if node.op == "relu" and last_reader[node.inputs[0]] == number:
            over = node.inputs[0]
            freed_bytes = draft.forward[over].output_bytes
            for place in (number, draft.mask_of.get(number)):
                if place is not None:
                    its = draft.forward[place]
                    in_place = tuple(
                        replace(impl, workspace_bytes=impl.workspace_bytes - freed_bytes)
                        for impl in its.implementations
                    )
                    draft.forward[place] = replace(its, overwrites=over, in_place=in_place)


def _backward(draft: _Draft, main: list[int], loss: int, fixed_bytes: int) -> list[BackwardNode]:
    """In reverse: a convolution has a node for its parameters and, but for the first, one for its input."""
    made: dict[int, list[int]] = {main[-1]: [loss]}
    nodes: list[BackwardNode] = []
    for number in reversed(main):
        its = draft.forward[number]
        gradients = tuple(made[number])
        parts = (True, False) if its.op == "conv" else (False,)
        for parameters in parts[: 1 if not its.inputs else 2]:
            fixed_bytes += draft.draw(st.integers(0, 8)) if parameters or its.op == "norm" else 0
            sources = () if parameters else its.inputs
            for source in sources:
                made.setdefault(source, []).append(loss + 1 + len(nodes))
            nodes.append(
                BackwardNode(
                    name=f"{its.op}_{'param' if parameters else 'ip'}_grad.{loss + 1 + len(nodes)}",
                    op=its.op,
                    forward=number,
                    output_bytes=sum(draft.forward[source].output_bytes for source in sources),
                    gradients=gradients,
                    variants=_variants(draft, number, parameters),
                    fixed_bytes=fixed_bytes,
                )
            )
    size_bytes = {loss: draft.forward[loss].output_bytes}
    size_bytes |= {loss + 1 + k: node.output_bytes for k, node in enumerate(nodes)}
    last_reader = {gradient: k for k, node in enumerate(nodes) for gradient in node.gradients}
    for k, node in enumerate(nodes):
        ending = [size_bytes[gradient] for gradient in node.gradients if last_reader[gradient] == k]
        if node.op in ("relu", "add") and ending:
            nodes[k] = replace(node, variants=tuple(_giving_back(variant, max(ending)) for variant in node.variants))
    return nodes


def _variants(draft: _Draft, number: int, parameters: bool) -> tuple[Variant, ...]:
    its = draft.forward[number]
    if its.op == "conv":
        return (Variant(its.inputs if parameters else (), draft.implementations(2)),)
    if its.op == "add":
        return (Variant((), draft.implementations(1)),)
    needs = [its.inputs, (number,)] if its.op != "pool" else [its.inputs]
    if number in draft.mask_of:
        needs.append((draft.mask_of[number],))
    return tuple(Variant(need, draft.implementations(1)) for need in needs)


def _giving_back(variant: Variant, freed_bytes: int) -> Variant:
    impls = tuple(replace(impl, workspace_bytes=impl.workspace_bytes - freed_bytes) for impl in variant.implementations)
    return replace(variant, implementations=impls)


@st.composite
def executable_decisions(draw: st.DrawFn, graph: TrainingGraph) -> Decisions:
    """Decisions that can be executed: a random set is kept, of what is recomputed a random part, each run at random."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    variants = np.array([rng.integers(len(node.variants)) for node in graph.backward])
    stages = len(graph.backward)
    kept = np.flatnonzero(rng.random(len(graph.forward)) < rng.random()).tolist()
    decisions = recompute_on_need(
        graph,
        dict.fromkeys(kept, stages + 1),
        variants,
        lambda found: {node: int(rng.integers(stages + 1)) for node in found.ran},
    )
    most = np.array([len(node.implementations) for node in graph.forward])
    impls = [
        len(node.variants[variant].implementations)
        for node, variant in zip(graph.backward, variants.tolist(), strict=True)
    ]
    return replace(
        decisions,
        forward_implementation=np.where(decisions.recomputed, rng.integers(most, size=decisions.recomputed.shape), 0),
        backward_implementation=rng.integers(impls),
        in_place=decisions.in_place & _chosen(graph, rng),
    )


def _chosen(graph: TrainingGraph, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which nodes run in place where they may; an intermediate does with its creator."""
    chosen = rng.random(len(graph.forward)) < 0.7
    for number, node in enumerate(graph.forward):
        if node.creator is not None:
            chosen[number] = chosen[node.creator]
    return chosen


def random_keep(graph: TrainingGraph, random: np.random.Generator) -> KeepSet:
    nodes = len(graph.forward)
    variant = np.array([random.integers(len(node.variants)) for node in graph.backward], dtype=np.int64)
    share = random.random()
    lead = np.where(random.random(nodes) < 0.3, random.integers(0, 6, nodes), 0)
    return KeepSet(random.random(nodes) < share, random.random(nodes) < 0.3, variant, lead)
