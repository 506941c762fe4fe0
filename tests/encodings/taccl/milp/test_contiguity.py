"""The exact stage: two solvers agree, the order between nodes is kept, grouping pays."""

from __future__ import annotations

import numpy as np
import pytest
from shapes import pairs_of_nodes

from gapless.checker import Report, check
from gapless.encodings.taccl import Chunked, Sketch, load_sketch
from gapless.encodings.taccl.flow.paths import shortest_path_routing
from gapless.encodings.taccl.milp import contiguity
from gapless.encodings.taccl.ordering.list_scheduling import RULES, Order, list_schedule
from gapless.encodings.taccl.ordering.sends import Sends, sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import single_sends, times_of
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model
from gapless.topologies.files import load_topology


def replayed(problem: Chunked, sends: Sends, order: Order) -> Report:
    network = problem.logical.topology
    return check(to_schedule(network, problem.collective, problem.chunk_bytes, sends, times_of(order)))


def ordered(problem: Chunked) -> tuple[Sends, Order]:
    sends = sends_of(problem, [shortest_path_routing(problem)])
    orders = [list_schedule(single_sends(problem, sends), rule) for rule in RULES]
    return sends, min(orders, key=lambda order: order.makespan_s)


def small(alpha_s: float, parts: int = 1) -> Chunked:
    """Two nodes of two ranks that share a NIC whose latency is `alpha_s`."""
    topology = pairs_of_nodes(2, lambda k: (1e-7, 10e-12) if k == 0 else (alpha_s, 100e-12))
    sketch = Sketch("relay", inter_node=InterNode({0: (0,)}), chunks_per_rank=parts)
    return Chunked.of(topology, "allgather", 100_000, sketch)


@pytest.mark.parametrize("alpha_us", [0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("parts", [1, 2])
def test_cpsat_and_highs_agree_on_the_optimum(alpha_us: float, parts: int) -> None:
    _, ordering = ordered(small(alpha_us * 1e-6, parts))
    parts_ = contiguity.encode(ordering)
    answers = [solve_model(parts_.model, SolveOptions(threads=1), solver) for solver in ("cpsat", "highs")]
    assert [answer.status for answer in answers] == [Status.OPTIMAL] * 2
    assert answers[0].objective == pytest.approx(answers[1].objective)


def test_ordering_itself_is_a_feasible_point_of_the_model() -> None:
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 2_000_000, load_sketch("dgx2-sk-1"))
    parts = contiguity.encode(ordered(problem)[1])
    assert parts.model.arrays().violation(contiguity.first_point(parts)) == 0


@pytest.mark.parametrize(("alpha_us", "grouped"), [(0.0, False), (100.0, True)])
def test_chunks_travel_together_exactly_where_the_latency_is_worth_it(alpha_us: float, grouped: bool) -> None:
    problem = small(alpha_us * 1e-6)
    sends, ordering = ordered(problem)
    parts = contiguity.encode(ordering)
    solution = solve_model(parts.model, SolveOptions(threads=1), "cpsat", contiguity.first_point(parts))
    assert solution.values is not None
    exact = contiguity.decode(parts, solution.values)
    assert bool((exact.place > 0).any()) is grouped
    report = replayed(problem, sends, exact)
    assert report.valid, report.summary()
    assert report.makespan_s <= exact.makespan_s * (1 + 1e-9)
    assert report.makespan_s <= ordering.makespan_s * (1 + 1e-9)


def test_order_on_links_between_nodes_is_that_of_the_ordering() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    _, ordering = ordered(problem)
    parts = contiguity.encode(ordering)
    solution = solve_model(parts.model, SolveOptions(threads=1, time_limit_s=5), "cpsat", contiguity.first_point(parts))
    assert solution.values is not None
    exact = contiguity.decode(parts, solution.values)
    rows = np.flatnonzero(ordering.table.may_join)
    for link in {ordering.table.link[row] for row in rows.tolist()}:
        members = np.array([row for row in rows.tolist() if ordering.table.link[row] == link])
        before = members[np.argsort(ordering.start_s[members], kind="stable")]
        assert (np.diff(exact.start_s[before]) >= 0).all()


def test_time_in_the_model_resolves_the_latency_of_small_chunks() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000, load_sketch("ndv2-sk-1"))
    parts = contiguity.encode(ordered(problem)[1])
    assert parts.alpha.min() > 10_000
    assert parts.beta.min() > 500
