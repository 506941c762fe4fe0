from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from gapless.errors import InputError
from gapless.ir.graph import Graph, Implementation, Op, Placement

STEP = (Implementation(1.0),)


def test_a_graph_names_its_tensors_and_counts_them() -> None:
    graph = Graph(np.array([1, 2]), tensor_names=("a", "b"))
    assert graph.tensor_count == 2
    assert graph.tensor_name(1) == "b"
    assert Graph(np.array([1, 2])).tensor_name(1) == "1"


def test_an_implementation_reads_the_ops_inputs_unless_it_names_others() -> None:
    op = Op("f", (0, 1), (2,), (Implementation(1.0), Implementation(1.0, inputs=(3,))))
    assert op.reads(0) == (0, 1)
    assert op.reads(1) == (3,)


def test_a_placement_is_made_of_pairs_and_may_be_empty() -> None:
    placement = Placement.of([(3, 0), (1, 2)], [0b1, 0b10])
    assert placement.tensors.tolist() == [3, 1]
    assert placement.devices.tolist() == [0, 2]
    assert placement.contributions == (1, 2)
    assert len(placement) == 2
    assert len(Placement.of([])) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size_bytes": np.array([1.0])}, "size_bytes must be a one-dimensional array of integers"),
        ({"size_bytes": np.array([[1]])}, "size_bytes must be a one-dimensional array of integers"),
        ({"size_bytes": np.array([1, -5]), "tensor_names": ("a", "b")}, "tensor b: size_bytes must be >= 0, got -5"),
        ({"size_bytes": np.array([2**61, 2**61])}, r"size_bytes must sum to less than 2\*\*62"),
        ({"tensor_names": ("a", "b")}, "2 tensor names for 3 tensors"),
        ({"initial": Placement.of([(3, 0)])}, r"initial placement: tensor ids must be in 0\.\.2"),
        ({"initial": Placement.of([(-1, 0)])}, r"initial placement: tensor ids must be in 0\.\.2"),
        ({"required": Placement.of([(0, -1)])}, "required placement: device ids must be >= 0, got -1"),
        ({"required": Placement(np.array([0]), np.array([0, 1]))}, "required placement: 1 tensors for 2 devices"),
        ({"required": Placement.of([(0, 0)], [1, 2])}, "required placement: 2 contribution sets for 1"),
        ({"required": Placement.of([(0, 0)], [-1])}, "required placement: contributions must be sets as bits >= 0"),
    ],
)
def test_a_graph_that_breaks_a_rule_is_refused_with_the_rule(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph(**{"size_bytes": np.array([1, 1, 1]), **arguments})


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Op("f", (0,), (1,), ()), "op 'f': implementations must hold at least one, got none"),
        (Op("f", (0,), (1,), (Implementation(-1.0),)), "op 'f': duration_s must be finite and >= 0, got -1.0"),
        (Op("f", (0,), (1,), (Implementation(math.nan),)), "op 'f': duration_s must be finite and >= 0, got nan"),
        (Op("f", (0,), (1,), (Implementation(math.inf),)), "op 'f': duration_s must be finite and >= 0, got inf"),
        (Op("f", (0,), (1,), (Implementation(1.0, workspace_bytes=-1),)), "workspace_bytes must be in .*, got -1"),
        (Op("f", (0,), (1,), (Implementation(1.0, workspace_bytes=2**63),)), "workspace_bytes must be in"),
        (Op("f", (0,), (1,), (Implementation(1.0, overwrites=(1,)),)), "overwrites must name inputs, got tensor 1"),
        (
            Op("f", (0,), (1,), (Implementation(1.0, power_w=-1.0),)),
            "op 'f': power_w must be finite and >= 0, got -1.0",
        ),
        (Op("f", (3,), (1,), STEP), r"op 'f': tensor ids must be in 0\.\.2, got 3"),
        (Op("f", (0,), (-1,), STEP), r"op 'f': tensor ids must be in 0\.\.2, got -1"),
        (Op("f", (0,), (1,), (Implementation(1.0, inputs=(9,)),)), r"tensor ids must be in 0\.\.2, got 9"),
        (Op("f", (0,), (1,), STEP, needs={7: 1}), r"tensor ids must be in 0\.\.2, got 7"),
        (Op("f", (0,), (1,), STEP, needs={0: -2}), "needs must be sets of contributions as bits >= 0, got -2"),
        (Op("f", (0,), (1,), STEP, adds=-1), "adds must be a contribution number >= 0, got -1"),
        (Op("f", (0,), (1,), STEP, updates=(0,)), "updates must name inputs that are outputs too, got tensor 0"),
        (
            Op("f", (0,), (1,), (Implementation(1.0, spends=((0, 1.0),)),)),
            r"spends must be \(budget in 0\.\.-1, a number >= 0\), got \(0, 1.0\)",
        ),
    ],
)
def test_an_op_that_breaks_a_rule_is_refused_with_the_rule(op: Op, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph(np.array([1, 1, 1]), ops=(op,))


def test_ops_that_form_a_cycle_are_refused_and_named() -> None:
    ops = (Op("f", (0,), (1,), STEP), Op("g", (1,), (0,), STEP))
    with pytest.raises(InputError, match=r"ops must not form a cycle, got (f -> g|g -> f)"):
        Graph(np.array([1, 1]), ops=ops)


def test_a_cycle_is_found_where_each_read_stands_behind_one_of_two_makers() -> None:
    plain = (Implementation(1.0),)
    ops = (Op("f", (0,), (1,), plain), Op("g", (1,), (2,), plain), Op("h", (2,), (1,), plain))
    with pytest.raises(InputError, match="ops must not form a cycle"):
        Graph(np.array([1, 1, 1]), ops)


def test_ops_may_stand_in_any_order() -> None:
    plain = (Implementation(1.0),)
    Graph(np.array([1, 1, 1]), (Op("g", (1,), (2,), plain), Op("f", (0,), (1,), plain)))


def test_an_update_of_what_led_to_it_is_no_cycle() -> None:
    weight, gradient = 0, 1
    ops = (Op("backward", (weight,), (gradient,), STEP), Op("step", (weight, gradient), (weight,), STEP))
    assert len(Graph(np.array([1, 1]), ops=ops).ops) == 2


@pytest.mark.parametrize(
    ("arguments", "tracked"),
    [
        ({}, False),
        ({"ops": (Op("f", (0,), (1,), STEP),)}, False),
        ({"ops": (Op("f", (0,), (1,), STEP, adds=0),)}, True),
        ({"ops": (Op("f", (0,), (1,), STEP, reduces=True),)}, True),
        ({"ops": (Op("f", (0,), (1,), STEP, needs={0: 1}),)}, True),
        ({"initial": Placement.of([(0, 0)], [1])}, True),
        ({"required": Placement.of([(0, 0)], [1])}, True),
    ],
)
def test_contributions_are_tracked_where_anything_names_them(arguments: dict[str, Any], tracked: bool) -> None:
    assert Graph(np.array([1, 1]), **arguments).tracks_contributions == tracked


def test_the_networkx_graph_joins_ops_and_tensors_along_the_data() -> None:
    ops = (Op("f", (0,), (1,), (Implementation(1.0), Implementation(1.0, inputs=(2,)))),)
    network = Graph(np.array([1, 1, 1, 1]), ops=ops).to_networkx()
    assert set(network.nodes) == {"t0", "t1", "t2", "t3", "o0"}
    assert set(network.edges) == {("t0", "o0"), ("t2", "o0"), ("o0", "t1")}
    assert nx.has_path(network, "t2", "t1")
