"""Congestion: what a port is slowed down by, by the links that a plan uses through it; and the tables refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from gapless.errors import InputError
from gapless.schemas import load_schema
from gapless.topologies.files import read_node
from gapless.topologies.node import NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.congestion import Congestion, Slowdown
from gapless.topologies.topology import Link, Topology

TABLE = Slowdown((2, 4), (1.0, 2.0))
NODE = NodeTemplate(
    "node", 4, switches=(SwitchTemplate((0, 1, 2, 3), 0.0, 1e-9, TABLE),), nics=(NicTemplate((0, 1), 0.0, 1e-8, TABLE),)
)


def slowdown(topology: Topology, *used: tuple[int, int]) -> dict[tuple[int, int], float]:
    """What beta is multiplied by on the links in use, by their ends."""
    number = {(link.source, link.target): k for k, link in enumerate(topology.links)}
    links = np.array([number[ends] for ends in used])
    factor = topology.slowed_beta_s(links) / topology.beta_s_per_byte
    return {ends: round(float(factor[number[ends]]), 9) for ends in used}


def test_table_is_linear_between_its_points_and_constant_beyond() -> None:
    assert TABLE.at(np.array([0, 1, 2, 3, 4, 9])).tolist() == [1.0, 1.0, 1.0, 1.5, 2.0, 2.0]


def test_connections_are_counted_at_both_ends_and_the_slower_end_sets_the_pace() -> None:
    one = NODE.cluster(1)
    assert slowdown(one, (0, 1), (0, 2)) == {(0, 1): 1.0, (0, 2): 1.0}
    assert slowdown(one, (0, 1), (0, 2), (0, 3), (1, 2)) == {(0, 1): 1.5, (0, 2): 1.5, (0, 3): 1.5, (1, 2): 1.0}
    assert slowdown(one, (0, 3), (1, 3), (2, 3), (2, 1)) == {(0, 3): 1.5, (1, 3): 1.5, (2, 3): 1.5, (2, 1): 1.0}


def test_a_nic_counts_the_links_of_all_its_ranks_and_each_node_its_own() -> None:
    two = NODE.cluster(2)
    all_out = [(source, target) for source in (0, 1) for target in (4, 5)]
    assert set(slowdown(two, *all_out).values()) == {2.0}
    assert slowdown(two, (0, 4), (0, 5), (4, 0), (0, 1), (4, 5)) == dict.fromkeys(
        [(0, 4), (0, 5), (4, 0), (0, 1), (4, 5)], 1.0
    )


def test_without_a_table_beta_is_the_links_own() -> None:
    plain = NodeTemplate("node", 2, switches=(SwitchTemplate((0, 1), 0.0, 1e-9),)).cluster(1)
    assert plain.congestion == ()
    assert plain.slowed_beta_s(np.array([0, 1])) is plain.beta_s_per_byte


@pytest.mark.parametrize(
    ("connections", "factors", "message"),
    [
        ((), (), "connections: must be at least one number, each >= 1 and rising, got []"),
        ((0, 1), (1.0, 1.0), "connections: must be at least one number, each >= 1 and rising, got [0, 1]"),
        ((2, 2), (1.0, 1.0), "connections: must be at least one number, each >= 1 and rising, got [2, 2]"),
        ((1,), (0.5,), "slowdown: must be finite, >= 1 and must not fall, got [0.5]"),
        ((1, 2), (1.5, 1.2), "slowdown: must be finite, >= 1 and must not fall, got [1.5, 1.2]"),
        ((1,), (float("inf"),), "slowdown: must be finite, >= 1 and must not fall, got [inf]"),
        ((1, 2), (1.0,), "slowdown: must have 2 numbers, as connections has, got 1"),
    ],
)
def test_tables_that_are_none_are_refused(connections: Any, factors: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Slowdown(connections, factors)
    assert str(caught.value) == message


def test_ports_hold_resources_of_the_topology() -> None:
    with pytest.raises(InputError, match=r"congestion: ports must hold resources in 0\.\.0, got 1"):
        Topology("two", (0, 0), (Link(0, 1, 0.0, 1.0, (0,)),), ("port",), congestion=(Congestion(((1,),), TABLE),))


def written(folder: Path, congestion: Any) -> Path:
    switch = {"ranks": [0, 1, 2], "alpha_us": 1, "beta_us_per_mb": 8, "congestion": congestion}
    data = {"format": "gapless.topology", "version": 1, "name": "three", "ranks_per_node": 3, "switches": [switch]}
    (folder / "three.json").write_text(json.dumps(data))
    return folder / "three.json"


def test_file_gives_the_table_of_a_switch(tmp_path: Path) -> None:
    path = written(tmp_path, {"connections": [1, 2], "slowdown": [1, 1.25]})
    jsonschema.validate(json.loads(path.read_text()), load_schema("topology"))
    assert read_node(path).switches[0].congestion == Slowdown((1, 2), (1.0, 1.25))
    assert slowdown(read_node(path).cluster(1), (0, 1), (0, 2)) == {(0, 1): 1.25, (0, 2): 1.25}


@pytest.mark.parametrize(
    ("congestion", "message"),
    [
        ({"connections": [1]}, "switches[0]: congestion: field 'slowdown' is missing"),
        ({"connections": [1.5], "slowdown": [1]}, "congestion: connections[0]: must be a whole number >= 1, got 1.5"),
        ({"connections": [1], "slowdown": [0.9]}, "congestion: slowdown[0]: must be a number >= 1, got 0.9"),
        ({"connections": [2, 1], "slowdown": [1, 1]}, "congestion: connections: must be at least one number, each"),
        ({"connections": [1], "slowdown": [1], "unit": "x"}, "congestion: field 'unit' is unknown"),
    ],
)
def test_files_name_the_field_that_is_wrong(tmp_path: Path, congestion: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_node(written(tmp_path, congestion))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
