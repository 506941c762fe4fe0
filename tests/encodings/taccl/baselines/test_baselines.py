"""The baselines: valid everywhere, as fast as the textbook says where the textbook applies, never below a bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, pairs_of_nodes, two_way

from gapless.checker import check
from gapless.encodings.taccl.baselines.cut import root_of, standard_name
from gapless.encodings.taccl.baselines.library import Baselines, baselines
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.errors import InputError
from gapless.ir.collective import (
    COLLECTIVES,
    Collective,
    allgather,
    allreduce,
    alltoall,
    broadcast,
    divided,
    reducescatter,
    sendrecv,
)
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

ALPHA_S, BETA_S = 1e-6, 20e-12


def complete(ranks: int) -> Topology:
    """A link from each rank to each other."""
    return two_way("complete", ranks, list(combinations(range(ranks), 2)), lambda _: (ALPHA_S, BETA_S))


def one_way_ring(ranks: int) -> Topology:
    links = tuple(Link(rank, (rank + 1) % ranks, ALPHA_S, BETA_S) for rank in range(ranks))
    return Topology("one-way ring", (0,) * ranks, links)


TOPOLOGIES = {
    "ndv2 x 1": load_topology("ndv2", 1),
    "ndv2 x 2": load_topology("ndv2", 2),
    "ndv2 x 3": load_topology("ndv2", 3),
    "dgx2 x 1": load_topology("dgx2", 1),
    "pairs x 3": pairs_of_nodes(3, lambda _: (ALPHA_S, BETA_S)),
    **{f"complete {n}": complete(n) for n in (2, 3, 4, 5, 8)},
    **{f"{name} 5": shape(5, lambda k: (ALPHA_S, (1 + k) * BETA_S)) for name, shape in SHAPES.items()},
    **{f"{name} 8": shape(8, lambda _: (ALPHA_S, BETA_S)) for name, shape in SHAPES.items()},
}


@pytest.mark.thorough("ndv2", "1000000", "8-", "4-", "pairs", "dgx2")
@pytest.mark.parametrize("size_bytes", [3, 1_000_000])
@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_every_baseline_replays_clean_and_keeps_the_bound(name: str, collective: str, size_bytes: int) -> None:
    topology = TOPOLOGIES[name]
    asked = COLLECTIVES[collective](topology.device_count, 1)
    bound_s = bounds_of(Chunked(topology, asked, size_bytes)).any_chunking_s
    found = Baselines(topology, asked).of_size(size_bytes)
    assert found
    for baseline in found:
        report = check(baseline.schedule)
        assert report.valid, f"{baseline.name}, {baseline.variant}: {report.summary()}"
        assert report.makespan_s == pytest.approx(baseline.makespan_s)
        assert baseline.makespan_s >= bound_s * (1 - 1e-9)
        assert baseline.schedule.graph.tensor_count == baseline.collective.chunk_count


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_ring_takes_the_time_of_the_textbook(ranks: int) -> None:
    topology, size = one_way_ring(ranks), 100_000
    step_s = ALPHA_S + BETA_S * size
    for collective, steps in ((allgather, ranks - 1), (reducescatter, ranks - 1), (allreduce, 2 * (ranks - 1))):
        schedule = baselines(topology, collective(ranks), size)["ring"]
        assert schedule.end_s.max() == pytest.approx(steps * step_s)


def test_ring_runs_both_ways_where_links_do() -> None:
    topology = SHAPES["ring"](6, lambda _: (ALPHA_S, BETA_S))
    schedule = baselines(topology, allgather(6), 1_000_000)["ring"]
    assert schedule.end_s.max() == pytest.approx(5 * (ALPHA_S + BETA_S * 500_000))


def test_ring_broadcast_is_a_pipeline_of_the_best_number_of_pieces() -> None:
    schedule = baselines(one_way_ring(6), broadcast(6, root=2), 1_024_000)["ring"]
    times = [(4 + pieces) * (ALPHA_S + BETA_S * 1_024_000 / pieces) for pieces in (1, 2, 4, 8, 16, 32)]
    assert schedule.end_s.max() == pytest.approx(min(times))


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_doubling_takes_the_time_of_the_textbook_behind_a_switch(ranks: int) -> None:
    topology, size = SHAPES["switch"](ranks, lambda _: (ALPHA_S, BETA_S)), 1000
    time_s = (ranks.bit_length() - 1) * ALPHA_S + (ranks - 1) * BETA_S * size
    assert baselines(topology, allgather(ranks), size)["recursive-doubling"].end_s.max() == pytest.approx(time_s)
    assert baselines(topology, reducescatter(ranks), size)["recursive-halving"].end_s.max() == pytest.approx(time_s)
    assert baselines(topology, allreduce(ranks), size)["halving-doubling"].end_s.max() == pytest.approx(2 * time_s)


@pytest.mark.parametrize("ranks", [3, 5, 6, 7])
def test_other_numbers_than_powers_of_two_take_one_more_step(ranks: int) -> None:
    topology, size = SHAPES["switch"](ranks, lambda _: (ALPHA_S, BETA_S)), 10
    time_s = (ranks - 1).bit_length() * ALPHA_S + (ranks - 1) * BETA_S * size
    assert baselines(topology, allgather(ranks), size)["recursive-doubling"].end_s.max() == pytest.approx(time_s)


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_direct_takes_one_message_where_everybody_is_linked(ranks: int) -> None:
    topology, size = complete(ranks), 5000
    for collective in (allgather, alltoall):
        schedule = baselines(topology, collective(ranks), size)["direct"]
        assert schedule.end_s.max() == pytest.approx(ALPHA_S + BETA_S * size)


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_sums_are_made_one_message_after_the_other(ranks: int) -> None:
    schedule = baselines(complete(ranks), reducescatter(ranks), 8)["direct"]
    assert schedule.end_s.max() == pytest.approx((ranks - 1) * (ALPHA_S + BETA_S * 8))


def test_tree_needs_fewer_steps_than_a_ring_for_few_bytes() -> None:
    found = baselines(complete(8), allreduce(8), 1)
    assert found["double-binary-tree"].end_s.max() < 0.75 * found["ring"].end_s.max()


def test_double_binary_tree_keeps_all_ports_of_a_switch_busy() -> None:
    """In a single tree the root's port, or an inner rank's, sends all data twice."""
    topology = SHAPES["switch"](16, lambda _: (0.0, BETA_S))
    schedule = baselines(topology, broadcast(16), 160_000_000)["double-binary-tree"]
    whole_s = 160_000_000 * BETA_S
    assert whole_s <= schedule.end_s.max() <= 1.3 * whole_s


def test_hierarchical_crosses_between_nodes_once_a_block() -> None:
    topology = load_topology("ndv2", 2)
    schedule = baselines(topology, allgather(16), 1_000_000)["hierarchical"]
    crossing = schedule.moves.lengths[topology.is_inter_node[schedule.place]]
    chunks_per_block = schedule.graph.tensor_count // 16
    assert crossing.sum() == 16 * chunks_per_block


def test_rings_keep_the_interfaces_of_all_rails_busy() -> None:
    topology = load_topology("dgx-h100", 2)
    schedule = baselines(topology, allgather(16), 64_000_000)["ring"]
    crossing = schedule.place[topology.is_inter_node[schedule.place]]
    assert set(topology.link_source[crossing].tolist()) == set(range(16))
    assert schedule.end_s.max() <= 2.5 * bounds_of(Chunked(topology, allgather(16), 64_000_000)).any_chunking_s


def test_names_say_what_is_defined() -> None:
    one, two = load_topology("ndv2", 1), load_topology("ndv2", 2)
    assert "hierarchical" not in Baselines(one, allreduce(8)).names
    assert sorted(Baselines(two, allreduce(16)).names) == [
        "direct", "double-binary-tree", "halving-doubling", "hierarchical", "ring"
    ]  # fmt: skip
    assert Baselines(two, alltoall(16)).names == ["direct", "hierarchical"]


@examples(20)
@given(
    costs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=15, max_size=15),
    collective=st.sampled_from(sorted(COLLECTIVES)),
    size_bytes=st.integers(1, 10_000),
)
def test_uneven_links_and_odd_sizes_are_fine(costs: list[tuple[int, int]], collective: str, size_bytes: int) -> None:
    pairs = list(combinations(range(5), 2))[1:9]
    topology = two_way("uneven", 5, pairs, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    for schedule in baselines(topology, COLLECTIVES[collective](5, 1), size_bytes).values():
        assert check(schedule).valid


def test_collectives_of_ones_own_are_sent_directly_or_refused() -> None:
    own = Collective("own", 3, 1, ((0,), (1,), ()), ((), (0,), (0, 1)))
    assert check(baselines(complete(3), own, 100)["direct"]).valid
    with pytest.raises(InputError, match="no baseline is defined"):
        baselines(complete(3), replace(own, inputs=((0, 1), (1,), (0,)), reduces=True), 100)


def test_ways_of_the_same_length_share_the_load() -> None:
    """Two messages a link on average; the first path found for each pair would put four on some."""
    schedule = baselines(SHAPES["ring"](4, lambda _: (0.0, BETA_S)), alltoall(4), 1_000_000)["direct"]
    busy = [int(schedule.moves.lengths[schedule.place == link].sum()) for link in range(8)]
    pieces = schedule.graph.tensor_count // 16
    assert sum(busy) == 16 * pieces
    assert max(busy) <= 3 * pieces


def test_ranks_out_of_reach_are_named() -> None:
    topology = Topology("one way", (0, 0), (Link(0, 1, ALPHA_S, BETA_S),))
    with pytest.raises(InputError, match="rank 1 must reach rank 0, it has no path"):
        baselines(topology, allgather(2), 100)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="chunk_bytes must be >= 1, got 0"):
        baselines(complete(3), allgather(3), 0)
    with pytest.raises(InputError, match="allgather is over 4 ranks, the topology has 3"):
        baselines(complete(3), allgather(4), 100)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_refining_a_collective_keeps_it_standard(name: str) -> None:
    collective = COLLECTIVES[name](4, 1)
    fine = divided(collective, 3)
    assert fine.chunk_count == 3 * collective.chunk_count
    assert standard_name(fine) == name
    assert root_of(fine) == root_of(collective)


def test_targets_of_sendrecv_are_free() -> None:
    assert standard_name(sendrecv(4, 1, 1, 2)) == "sendrecv"
