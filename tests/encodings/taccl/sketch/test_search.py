"""`--sketch auto`: candidates for any topology, and the best replayed plan among them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import gapless
from gapless.encodings.taccl import Chunked, Problem, read_sketch
from gapless.encodings.taccl.sketch.format import Sketch, sketch_data
from gapless.encodings.taccl.sketch.search import candidate, outlines, partitions
from gapless.options import Progress, SolveOptions
from gapless.solution import Status, StopReason
from gapless.topologies.files import load_topology
from gapless.topologies.node import LocalLink, NicTemplate, NodeTemplate
from gapless.topologies.topology import Topology

ENDS = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 0), (0, 3)]
NODE = NodeTemplate(
    "square",
    4,
    tuple(LocalLink(*ends, 1e-6, 1e-11) for ends in ENDS),
    nics=(NicTemplate((0, 1), 2e-6, 1e-10), NicTemplate((2, 3), 2e-6, 1e-10)),
)
SIZE = 100_000


def search_on(topology: Topology) -> Problem:
    return Problem(topology, "allgather", SIZE, sketch="auto")


def test_more_parts_are_considered_where_they_outweigh_the_latency() -> None:
    topology = NODE.cluster(1)
    assert partitions(topology, 10) == [1]
    assert partitions(topology, 10**9) == [1, 2, 4, 8]
    assert partitions(replace(NODE, links=tuple(LocalLink(*e, 0.0, 1e-9) for e in ENDS)).cluster(1), 3) == [1, 2]


def test_two_nodes_have_every_link_rails_and_one_sender_a_nic_as_ways_out() -> None:
    names = [outline.name for outline in outlines(NODE.cluster(2))]
    assert names == [
        "auto-every-link", "auto-rails", "auto-nic00", "auto-nic00-own", "auto-nic10", "auto-nic10-own",
    ]  # fmt: skip
    assert [outline.name for outline in outlines(NODE.cluster(1))] == ["auto-one-node"]
    assert [outline.policies for outline in outlines(load_topology("dgx2", 1))] == [("uc-max",), ("uc-min",)]


def test_a_candidate_has_the_symmetry_of_its_outline() -> None:
    topology = NODE.cluster(2)
    for outline in outlines(topology):
        found = candidate(search_on(topology), outline, 2)
        assert found is not None
        assert found.name.endswith("-2-symmetric")
        assert found.problem.logical.symmetry
        plain = candidate(search_on(topology), outline, 2, use_symmetry=False)
        assert plain is not None
        assert plain.problem.sketch is not None
        assert plain.problem.sketch.permutations == ()
        assert plain.bound_s == found.bound_s


def test_an_outline_that_does_not_fit_is_no_candidate() -> None:
    outline = Sketch("for three nodes", node_count=3)
    assert candidate(search_on(NODE.cluster(2)), outline, 1) is None


@pytest.fixture(scope="module")
def result() -> gapless.Result:
    seen: list[Progress] = []
    options = SolveOptions(time_limit_s=20, threads=2, gap=0.05, on_progress=seen.append)
    found = gapless.solve(search_on(NODE.cluster(2)), options)
    assert [news.phase for news in seen]
    return found


@pytest.mark.thorough
def test_the_best_of_the_tried_sketches_is_kept_and_replayed(result: gapless.Result) -> None:
    assert result.valid
    rows = result.details["sketches"]
    made = [row["makespan_s"] for row in rows if row["makespan_s"] is not None]
    assert result.details["sketches_tried"] == len(rows) >= 2
    assert result.solution.objective == min(made) == made[0]
    assert result.report is not None
    assert result.report.makespan_s == pytest.approx(result.solution.objective)
    sketch = result.problem.description["sketch"]
    assert rows[0]["sketch"] == sketch or (sketch is None and rows[0]["sketch"].startswith("none"))


@pytest.mark.thorough
def test_the_bound_holds_for_every_sketch_tried(result: gapless.Result) -> None:
    assert result.solution.bound is not None
    for row in result.details["sketches"]:
        assert row["makespan_s"] is None or row["makespan_s"] >= result.solution.bound * (1 - 1e-9)
        assert row["makespan_s"] is None or row["makespan_s"] >= row["bound_s"] * (1 - 1e-9)


@pytest.mark.thorough
def test_the_sketch_that_was_found_can_be_used_again(result: gapless.Result, tmp_path: Path) -> None:
    if result.problem.description["sketch"] is None:
        pytest.skip("the best plan of this search has no sketch")
    (tmp_path / "found.json").write_text(json.dumps(result.details["sketch_file"]))
    sketch = read_sketch(tmp_path / "found.json")
    problem = Chunked.of(NODE.cluster(2), "allgather", SIZE, sketch)
    assert isinstance(result.problem, Chunked)
    assert result.problem.sketch is not None
    assert replace(result.problem.sketch, name="found") == sketch
    assert gapless.solve(problem, SolveOptions(time_limit_s=10, threads=1)).valid


def test_a_stop_before_the_first_answer_leaves_the_first_plan() -> None:
    stop = threading.Event()
    stop.set()
    found = gapless.solve(search_on(NODE.cluster(2)), SolveOptions(time_limit_s=20, threads=1, stop=stop))
    assert (found.status, found.solution.stop_reason) == (Status.FEASIBLE, StopReason.INTERRUPTED)
    assert found.valid
    assert found.details["sketches_tried"] == 0


@pytest.mark.parametrize("name", gapless.encodings.taccl.sketch_names())
def test_shipped_sketches_survive_being_written_and_read(name: str, tmp_path: Path) -> None:
    sketch = gapless.encodings.taccl.load_sketch(name)
    (tmp_path / f"{name}.json").write_text(json.dumps(sketch_data(sketch)))
    assert read_sketch(tmp_path / f"{name}.json") == sketch
