"""Tables put in order: complete, free of overlaps, and in the order that paths and sketch ask for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gapless.checker import Report, check
from gapless.encodings.taccl import Chunked, Sketch, load_sketch
from gapless.encodings.taccl.flow.paths import shortest_path_routing
from gapless.encodings.taccl.milp.tree_routing import tree_router
from gapless.encodings.taccl.ordering.list_scheduling import RULES, Order, Rule, list_schedule
from gapless.encodings.taccl.ordering.sends import Routing, Sends, sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import send_orbits, single_sends, times_of
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model
from gapless.topologies.files import load_topology


def routed(problem: Chunked) -> Routing:
    parts = tree_router(problem)
    parts.model.minimize((1.0, [parts.time]))
    solution = solve_model(parts.model, SolveOptions(threads=1))
    assert solution.values is not None
    return parts.decode(solution.values)


def replayed(problem: Chunked, sends: Sends, order: Order) -> Report:
    network = problem.logical.topology
    return check(to_schedule(network, problem.collective, problem.chunk_bytes, sends, times_of(order)))


@pytest.fixture(scope="module")
def ndv2() -> tuple[Chunked, Sends]:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    return problem, sends_of(problem, [routed(problem)])


def overlaps(order: Order) -> int:
    """Pairs of rows that hold something at once."""
    start, end = order.start_s, order.end_s
    held: dict[int, list[int]] = {}
    for row, clocks in enumerate(order.table.clocks):
        for clock in clocks:
            held.setdefault(clock, []).append(row)
    count = 0
    for rows in held.values():
        rows.sort(key=lambda row: start[row])
        count += sum(end[a] > start[b] * (1 + 1e-9) for a, b in pairwise(rows))
    return count


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("table", [single_sends, send_orbits])
def test_no_link_or_side_carries_two_chunks_at_once(ndv2: tuple[Chunked, Sends], rule: Rule, table: object) -> None:
    order = list_schedule(table(*ndv2), rule)  # type: ignore[operator]
    assert overlaps(order) == 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_chunk_leaves_after_it_has_arrived(ndv2: tuple[Chunked, Sends], rule: Rule) -> None:
    order = list_schedule(single_sends(*ndv2), rule)
    for row, needs in enumerate(order.table.needs):
        assert all(order.start_s[row] >= order.end_s[first] - 1e-15 for first in needs)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("table", [single_sends, send_orbits])
def test_every_rule_replays_clean_and_no_later_than_planned(
    ndv2: tuple[Chunked, Sends], rule: Rule, table: object
) -> None:
    problem, sends = ndv2
    order = list_schedule(table(problem, sends), rule)  # type: ignore[operator]
    report = replayed(problem, sends, order)
    assert report.valid, report.summary()
    assert report.makespan_s <= order.makespan_s * (1 + 1e-9)


def test_orbit_of_sends_is_one_row(ndv2: tuple[Chunked, Sends]) -> None:
    orbits = send_orbits(*ndv2)
    assert orbits is not None
    assert len(orbits) == len(ndv2[1]) // 2


def test_routing_without_the_symmetry_has_no_orbits() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    routing = routed(replace(problem, sketch=replace(load_sketch("ndv2-sk-1"), symmetry=())))
    closed = all(
        set(zip(move.chunks[routing.chunk], move.links[routing.link], strict=True))
        == set(zip(routing.chunk, routing.link, strict=True))
        for move in problem.logical.symmetry
    )
    assert (send_orbits(problem, sends_of(problem, [routing])) is not None) == closed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_senders_own_chunks_leave_first_where_the_sketch_enforces_it(rule: Rule) -> None:
    sketch = Sketch(
        "test", inter_node=InterNode({0: (1,)}, relay_rule=(8, 0), enforce_ordering=True), symmetry=((8, 16),)
    )
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, sketch)
    routing = shortest_path_routing(problem)
    order = list_schedule(single_sends(problem, sends_of(problem, [routing])), rule)
    topology = problem.logical.topology
    for link in np.flatnonzero(topology.is_inter_node).tolist():
        rows = [k for k in np.argsort(order.start_s) if routing.link[k] == link]
        assert problem.owners[routing.chunk[rows[0]]] == topology.links[link].source
        assert len(rows) == 8
    assert overlaps(order) == 0
