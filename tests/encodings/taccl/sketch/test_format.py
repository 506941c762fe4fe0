"""Sketch files: TACCL's own are read unchanged, and what breaks a rule is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.encodings.taccl import Chunked, load_sketch, read_sketch, sketch_names
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

THESIS_LISTING = """{
  // sketch for intra-node policy
  "intranode_sketch": {
    "strategy": "switch",
    "switches": [[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]],
    "switch_hyperedge_strategy": ["uc-min"]
  },
  // sketch for communication policy between any two nodes
  "internode_sketch": {
    "strategy": "relay",
    "internode_conn": {"1" : [0], "3" : [2], "5" : [4], "7" : [6], "9" : [8], "11" : [10], "13" : [12], "15" : [14]},
    "beta_split": {"1": 1, "3": 1, "5": 1, "7" : 1, "9" : 1, "11" : 1, "13" : 1, "15" : 1}, // 1/n-th
    "chunk_to_relay_map": [2,1] // maps chunk to a sender relay GPU
  },
  "symmetry_offsets": [[2, 16], [16, 32]],
  "hyperparameters": {"input_chunkup": 2, "input_size": "1M"}
}"""

VALID: dict[str, Any] = {
    "nnodes": 2,
    "intranode_sketch": {"strategy": "none"},
    "internode_sketch": {"strategy": "relay", "internode_conn": {"0": [1]}},
    "symmetry_offsets": [[8, 16]],
    "hyperparameters": {"input_chunkup": 1},
}


def write(folder: Path, content: object) -> Path:
    path = folder / "sketch.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_listing_of_the_thesis_is_read_with_its_comments(tmp_path: Path) -> None:
    sketch = read_sketch(write(tmp_path, THESIS_LISTING))
    assert sketch.chunks_per_rank == 2
    assert sketch.input_bytes == 1_000_000
    assert sketch.policies == ("uc-min",)
    assert sketch.symmetry == ((2, 16), (16, 32))
    assert sketch.inter_node is not None
    assert sketch.inter_node.senders_of(6) == (7,)
    assert sketch.inter_node.receivers(16)[3] == (2,)


def test_both_spellings_of_a_relay_map_mean_the_same() -> None:
    by_rule = InterNode({1: (0,), 3: (2,)}, relay_rule=(2, 1))
    by_list = InterNode({1: (0,), 3: (2,)}, relays={0: (1,), 1: (1,), 2: (3,), 3: (3,)})
    assert [by_rule.senders_of(rank) for rank in range(4)] == [by_list.senders_of(rank) for rank in range(4)]


def test_words_for_connections_are_spelled_out() -> None:
    assert InterNode("direct-map").receivers(3) == {0: (0,), 1: (1,), 2: (2,)}
    assert InterNode("fully-connected").receivers(2) == {0: (0, 1), 1: (0, 1)}


def test_shipped_sketches_can_all_be_loaded() -> None:
    published = {"dgx2-sk-1", "dgx2-sk-2", "dgx2-sk-3", "ndv2-sk-1", "ndv2-sk-2"}
    ours = {f"{machine}-sk-{number}" for machine in ("dgx-a100", "dgx-h100", "mi300x") for number in (1, 2)}
    assert set(sketch_names()) == published | ours
    for name in sketch_names():
        assert load_sketch(name).input_bytes is not None


@pytest.mark.thorough("2-2-", "2-1-dgx-a100")
@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100", "mi300x"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2])
def test_shipped_sketches_of_rail_machines_fit_them_and_are_proven(machine: str, number: int, nodes: int) -> None:
    sketch = load_sketch(f"{machine}-sk-{number}")
    assert sketch.input_bytes is not None
    problem = Chunked.of(load_topology(machine, nodes), "allgather", sketch.input_bytes, sketch)
    result = gapless.solve(problem, SolveOptions(gap=0.05, threads=1))
    assert result.valid
    assert result.solution.gap is not None
    assert result.solution.gap <= 0.05


def test_unknown_name_suggests_a_known_one() -> None:
    with pytest.raises(InputError, match=r"got 'ndv2-sk1'; did you mean 'ndv2-sk-1'\?"):
        load_sketch("ndv2-sk1")


BROKEN: list[tuple[str, Any, str]] = [
    ("nnodes", 0, r"nnodes: must be a whole number >= 1, got 0"),
    ("nnodes", "two", r'nnodes: must be a whole number >= 1, got "two"'),
    ("intranode_sketch", {"strategy": "swich"}, r"strategy: must be one of none, switch, got \"swich\"; did you mean"),
    ("intranode_sketch", [], r"intranode_sketch: must be a JSON object"),
    (
        "intranode_sketch",
        {"strategy": "switch", "switches": [[0, 1]], "switch_hyperedge_strategy": []},
        r"switch_hyperedge_strategy: must be 1 policies, one per switch",
    ),
    (
        "intranode_sketch",
        {"strategy": "switch", "switches": [[0, 1]], "switch_hyperedge_strategy": ["uc-mid"]},
        r"must be a list of uc-min, uc-max, freedom, by-size, got \"uc-mid\"",
    ),
    (
        "intranode_sketch",
        {"strategy": "switch", "switches": [[0, "x"]], "switch_hyperedge_strategy": ["uc-min"]},
        r"switches\[0\]\[1\]: must be a whole number >= 0",
    ),
    ("internode_sketch", {"strategy": "relay"}, r"field 'internode_conn' is missing"),
    ("internode_sketch", {"strategy": "relay", "internode_conn": "all"}, r"internode_conn: must be an object"),
    ("internode_sketch", {"strategy": "relay", "internode_conn": {"a": [1]}}, r"keys are ranks, got \"a\""),
    ("internode_sketch", {"strategy": "relay", "internode_conn": {"0": []}}, r"a list of ranks, not empty"),
    ("internode_sketch", {"strategy": "relay", "internode_conn": {"0": [1, 1]}}, r"a list of different ranks"),
    (
        "internode_sketch",
        {"strategy": "relay", "internode_conn": {"0": [1]}, "beta_split": {"0": 0.5}},
        r"0: must be a number >= 1, got 0.5",
    ),
    (
        "internode_sketch",
        {"strategy": "relay", "internode_conn": {"0": [1]}, "chunk_to_relay_map": [0, 1]},
        r"chunk_to_relay_map: must be \[r1, r2\] with r1 >= 1",
    ),
    (
        "internode_sketch",
        {"strategy": "relay", "internode_conn": {"0": [1]}, "enforce_ordering": True},
        r"enforce_ordering: must be false without a relay map",
    ),
    ("symmetry_offsets", [[8]], r"symmetry_offsets\[0\]: must be a pair"),
    ("symmetry_offsets", [[16, 16]], r"must be a pair with offset < group size"),
    ("hyperparameters", {"input_chunkup": 0}, r"input_chunkup: must be a whole number >= 1, got 0"),
    ("hyperparameters", {"input_size": "1XB"}, r"input_size: must be a number and a unit such as 1MB"),
    ("hyperparameters", {"chunkup": 1}, r"field 'chunkup' is unknown; did you mean 'input_chunkup'\?"),
    ("symetry", [], r"field 'symetry' is unknown"),
]


@pytest.mark.parametrize(("field", "value", "message"), BROKEN)
def test_broken_field_is_named_with_its_rule(tmp_path: Path, field: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_sketch(write(tmp_path, {**VALID, field: value}))
    assert "sketch.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_changes_policy_connections_and_chunks() -> None:
    plain, changed = load_sketch("dgx2-sk-1"), load_sketch("dgx2-sk-1:uc-max:connections=3:chunks=1")
    assert (plain.policies, changed.policies) == (("uc-min",), ("uc-max",))
    assert (plain.chunks_per_rank, changed.chunks_per_rank) == (2, 1)
    assert changed.inter_node is not None
    assert changed.inter_node.receivers(16)[1] == (0, 2, 4)
    assert changed.inter_node.receivers(16)[15] == (0, 2, 14)
    assert changed.inter_node.beta_split is None
    assert changed.symmetry == plain.symmetry
    assert changed.name == "dgx2-sk-1:uc-max:connections=3:chunks=1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dgx2-sk-1:uc-most", "options must be uc-min, uc-max, freedom, by-size, connections=N or chunks=N"),
        ("dgx2-sk-1:chunks=0", "with N >= 1, got 'chunks=0'"),
        ("dgx2-sk-1:connections=9", r"connections: must be in 1\.\.8, got 9"),
        ("dgx2-sk-2:connections=2", "connections: must be of a sketch that lists senders with receivers"),
        ("dgx3-sk-1:chunks=1", "must be one of .*, got 'dgx3-sk-1'"),
    ],
)
def test_what_a_name_cannot_change_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_sketch(name)


def test_the_policy_by_size_wants_few_connections_for_more_than_a_megabyte() -> None:
    sketch, cluster = load_sketch("dgx2-sk-1:by-size:chunks=1"), load_topology("dgx2", 2)
    small, large = (Chunked.of(cluster, "allgather", size, sketch).link_weight for size in (1_000_000, 1_000_001))
    assert set(small.tolist()) == {-1.0, 0.0}
    assert set(large.tolist()) == {0.0, 1.0}
