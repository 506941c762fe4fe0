"""Maximum flow: the value of the smallest cut, and the cut itself."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.solvers.max_flow import max_flow

ARCS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), max_size=15)


@given(arcs=ARCS)
def test_the_cut_is_smallest_and_is_what_it_says(arcs: list[tuple[int, int, int]]) -> None:
    tail, head, capacity = (np.array(column, dtype=np.int64) for column in zip(*[(0, 0, 0), *arcs], strict=True))
    cut = max_flow(tail, head, capacity, 6, 0, 5)
    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_nodes_from(range(6))
    for source, target, width in arcs:
        known = network.get_edge_data(source, target, {"capacity": 0})["capacity"]
        network.add_edge(source, target, capacity=known + width)
    assert cut.value == nx.maximum_flow_value(network, 0, 5)
    assert cut.inside[0]
    assert not cut.inside[5]
    assert capacity[cut.inside[tail] & ~cut.inside[head]].sum() == cut.value


@pytest.mark.parametrize(
    ("tail", "capacity", "sink", "message"),
    [(0, -1, 1, "capacity must be >= 0"), (7, 1, 1, "tail must be in 0..1"), (0, 1, 0, "must differ")],
)
def test_bad_numbers_are_refused(tail: int, capacity: int, sink: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        max_flow(np.array([tail]), np.array([1]), np.array([capacity]), 2, 0, sink)
