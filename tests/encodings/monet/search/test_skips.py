"""Tensors that last are charged by stages and by levels, the others one by one: to the same bytes, whichever it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import MIB, training_graphs

from gapless.encodings.monet.bounds import relaxation
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.options import SolveOptions
from gapless.profiles.training import graph as training_graph
from gapless.profiles.training.graph import TrainingGraph
from gapless.solvers.registry import solve_model


def lasting(graph: TrainingGraph, nodes: int) -> TrainingGraph:
    """The graph, in which what is alive for more than so many nodes is said to last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_graph, "_LASTING_NODES", nodes)
        found = replace(graph)
        assert bool(found.lasting.any()) == bool((found.last_reader > np.arange(len(found.forward)) + nodes).any())
    return found


@st.composite
def keep_sets(draw: st.DrawFn, graph: TrainingGraph) -> KeepSet:
    def bits() -> list[bool]:
        return draw(st.lists(st.booleans(), min_size=len(graph.forward), max_size=len(graph.forward)))

    variant = [draw(st.integers(0, len(node.variants) - 1)) for node in graph.backward]
    lead = draw(st.lists(st.integers(0, 3), min_size=len(graph.forward), max_size=len(graph.forward)))
    return KeepSet(np.array(bits()), np.array(bits()), np.array(variant), np.array(lead))


@examples(60)
@given(data=st.data(), graph=training_graphs(), budget=st.integers(1, 20), nodes=st.integers(0, 2))
def test_a_keep_set_comes_to_the_same(data: st.DataObject, graph: TrainingGraph, budget: int, nodes: int) -> None:
    keep = data.draw(keep_sets(graph))
    budget_bytes = budget * 4 * MIB
    expected = Keeper(lasting(graph, 1000), budget_bytes).assess(keep)[1]
    assert Keeper(lasting(graph, nodes), budget_bytes).assess(keep)[1] == expected


@examples(30)
@given(graph=training_graphs(), share=st.integers(2, 20), later=st.sets(st.integers(2, 4)), nodes=st.integers(0, 2))
def test_a_relaxation_has_the_same_optimum(graph: TrainingGraph, share: int, later: set[int], nodes: int) -> None:
    cuts = tuple(sorted({1, *(cut for cut in later if cut <= len(graph.backward))}))
    found = []
    for many in (nodes, 1000):
        model = relaxation.encode(lasting(graph, many), share * 4 * MIB, cuts)
        found.append(solve_model(model.milp, SolveOptions(threads=1)))
    assert found[0].status is found[1].status
    if found[1].objective is not None:
        assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6, abs=1e-9)
