"""Whole messages: textbook times, restricted trees, sketches and rooted sums."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from rails import rails
from shapes import SHAPES, pairs_of_nodes

from gapless.checker import check
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.aggregate import planning
from gapless.encodings.taccl.aggregate.planning import rooted_transfers, timed, transfers_along, transfers_of
from gapless.encodings.taccl.aggregate.spreading import Construction, Message, Preferences, quotient_network, spread
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.parameters import Aggregation
from gapless.encodings.taccl.symmetry.rotations import image_of, image_table
from gapless.ir.collective import COLLECTIVES, collective_by_name
from gapless.ir.schedule import Schedule
from gapless.options import Deadline, SolveOptions
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

ALPHA_S, BETA_S = 1e-6, 20e-12
COSTS = lambda _: (ALPHA_S, BETA_S)  # noqa: E731
FEW = Aggregation(tries=20)


def schedule_of(problem: Chunked, transfers: list[Transfer] | None) -> Schedule:
    assert transfers is not None
    topology = problem.logical.topology
    return to_schedule(topology, problem.collective, problem.chunk_bytes, *sends_in_turn(transfers), "test")


def checked_s(problem: Chunked, transfers: list[Transfer] | None) -> float:
    report = check(schedule_of(problem, transfers))
    assert report.valid, report.summary()
    return report.makespan_s


@pytest.mark.thorough(but=("pairs", "ring"))
@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("shape", [*sorted(SHAPES), "pairs", "rails"])
def test_every_collective_replays_clean(name: str, shape: str) -> None:
    topologies = {"pairs": lambda: pairs_of_nodes(2, COSTS), "rails": lambda: rails(2, 3)}
    topology = topologies[shape]() if shape in topologies else SHAPES[shape](5, COSTS)
    problem = Chunked(topology, collective_by_name(name, topology.device_count), 1_000)
    checked_s(problem, transfers_of(problem, Deadline(SolveOptions()), 0, FEW))


@pytest.mark.parametrize("name", ["allgather", "reducescatter"])
@pytest.mark.parametrize("ranks", [4, 6, 8])
def test_behind_a_switch_it_is_as_fast_as_recursive_doubling(name: str, ranks: int) -> None:
    problem = Chunked(SHAPES["switch"](ranks, COSTS), collective_by_name(name, ranks), 1_000)
    rounds = (ranks - 1).bit_length()
    end_s = checked_s(problem, transfers_of(problem, Deadline(SolveOptions()), 0))
    assert end_s == pytest.approx(rounds * ALPHA_S + (ranks - 1) * 1_000 * BETA_S)


def test_parts_for_one_rank_each_go_by_way_of_others() -> None:
    problem = Chunked(SHAPES["switch"](8, COSTS), collective_by_name("alltoall", 8), 10)
    end_s = checked_s(problem, transfers_of(problem, Deadline(SolveOptions()), 0))
    assert end_s < 3.1 * ALPHA_S  # 7 messages one by one


def test_the_same_seed_gives_the_same_plan() -> None:
    problem = Chunked(SHAPES["switch"](6, COSTS), collective_by_name("alltoall", 6), 10)
    first, second = (transfers_of(problem, Deadline(SolveOptions()), 3) for _ in range(2))
    assert first == second


def test_chunks_keep_to_the_links_that_a_sketch_leaves_them() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000, load_sketch("ndv2-sk-1"))
    schedule = schedule_of(problem, transfers_of(problem, Deadline(SolveOptions()), 0, FEW))
    assert check(schedule).valid
    assert problem.logical.allowed[schedule.moves.values, schedule.place[schedule.moves.owner]].all()


def test_a_block_enters_a_node_once_where_that_is_preferred() -> None:
    topology = rails(2, 4)
    ground = quotient_network(topology, tuple(range(8)), 1_000)
    construction = spread(ground, Preferences(once=True), random.Random(0))
    assert construction.complete
    crossing = [message for message in ground.unfolded(construction.messages) if topology.is_inter_node[message.link]]
    assert sum(message.blocks.bit_count() for message in crossing) == 8


def test_no_more_blocks_than_asked_go_between_nodes() -> None:
    topology = rails(2, 4)
    ground = quotient_network(topology, tuple(range(8)), 1_000)
    construction = spread(ground, Preferences(most=1), random.Random(0))
    assert construction.complete
    assert all(
        message.blocks.bit_count() == 1
        for message in ground.unfolded(construction.messages)
        if topology.is_inter_node[message.link]
    )


def test_a_block_is_handed_on_no_more_often_than_asked() -> None:
    ground = quotient_network(SHAPES["switch"](5, COSTS), tuple(range(5)), 1_000)
    construction = spread(ground, Preferences(depth=1), random.Random(0))
    source = ground.topology.link_source
    assert all(its.blocks == 1 << int(source[its.link]) for its in ground.unfolded(construction.messages))


def test_a_draw_is_given_up_beyond_its_limit() -> None:
    ground = quotient_network(SHAPES["switch"](5, COSTS), tuple(range(5)), 1_000)
    assert not spread(ground, Preferences(), random.Random(0), limit_s=ALPHA_S).complete


def test_trees_are_cut_down_to_what_is_wanted() -> None:
    line = SHAPES["line"](3, COSTS)
    links = {line.link_name(k): k for k in range(len(line.links))}
    messages = [Message(0.0, links["0->1"], 1), Message(1.0, links["1->2"], 1)]
    loads = transfers_along(line, messages, [0, 0, 0], [(1,), (2,), ()])
    assert [(load.link, load.chunks) for load in loads] == [(links["0->1"], (0, 1)), (links["1->2"], (1,))]
    assert timed(line, loads, 1_000)[-1][1] == pytest.approx(2 * ALPHA_S + 3 * 1_000 * BETA_S)


def test_all_is_added_up_in_the_middle_of_a_line() -> None:
    problem = Chunked.of(SHAPES["line"](5, COSTS), "allreduce", 5)
    end_s = checked_s(problem, rooted_transfers(problem, Deadline(SolveOptions()), 0, FEW))
    assert end_s < 5.1 * ALPHA_S  # two hops in on one side, the other side's last one after it, two hops out


def test_images_of_sets() -> None:
    images = list(np.random.default_rng(0).permutation(19))
    for mask in (0, 1, (1 << 19) - 1, 0b1010011100101):
        ranks = [rank for rank in range(19) if mask >> rank & 1]
        assert image_of(image_table(images), mask) == sum(1 << int(images[rank]) for rank in ranks)


def test_rotations_are_used_where_every_rank_has_a_block() -> None:
    topology: Topology = rails(2, 4)
    assert quotient_network(topology, tuple(range(8)), 1).copies == 8
    assert quotient_network(topology, (0,), 1).copies == 1
    assert math.isclose(quotient_network(topology, (0,), 10).beta_s[0], 10 * topology.beta_s_per_byte[0])


def test_constructions_end_early_where_another_plan_is_far_better(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[object, ...]]()

    def draw(*given: object) -> Construction:
        made.append(given)
        return spread(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "spread", draw)
    problem = Chunked.of(load_topology("mesh:2x3"), "allgather", 10**6)
    parameters = Aggregation(tries=100, hopeless_tries=7)
    counts = list[int]()
    for best_s in (1e-9, math.inf):
        made.clear()
        assert planning.transfers_of(problem, Deadline(SolveOptions()), 0, parameters, (), best_s)
        counts.append(len(made))
    assert counts == [7, 100]
