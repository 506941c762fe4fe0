"""The first plan is the floor: with no time for anything else, no answer is slower than a library's algorithm."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from examples import examples, share
from hypothesis import given
from hypothesis import strategies as st
from random_groups import groups_question
from shapes import SHAPES, complete, pairs_of_nodes, single_nodes

from gapless.checker import check
from gapless.encodings.taccl.baselines.library import Baseline, Baselines
from gapless.encodings.taccl.baselines.quickest import EFFORT, keeps_to_links, quickest
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.first import first_plan
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.problem import Problem, problem
from gapless.encodings.taccl.sketch.format import load_sketch
from gapless.encodings.taccl.solve import solve
from gapless.ir.collective import COLLECTIVES, ROOTED, Collective
from gapless.options import Deadline, SolveOptions
from gapless.system import Plan
from gapless.topologies.files import load_topology
from gapless.topologies.node import Cluster, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Topology


def no_time_left() -> SolveOptions:
    """Whoever asks is told that the time is up, from the beginning."""
    stop = threading.Event()
    stop.set()
    return SolveOptions(stop=stop)


def asked(topology: Topology, collective: str, size_bytes: int) -> Problem:
    last = topology.device_count - 1
    root = last if collective in ROOTED else None
    return Problem(topology, collective, size_bytes, root=root, target=0 if collective == "sendrecv" else None)


def end_s(plan: Candidate | Plan) -> float:
    assert plan.schedule is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    claimed_s = plan.end_s if isinstance(plan, Candidate) else plan.solution.objective
    assert claimed_s == pytest.approx(report.makespan_s)
    return report.makespan_s


def unlike_nodes(betas: list[float], ranks: int) -> Topology:
    """Nodes behind switches, whose NICs differ."""
    nodes = tuple(
        NodeTemplate(
            "node", ranks, (), (SwitchTemplate(tuple(range(ranks)), 1e-6, 1e-11),) if ranks > 1 else (),
            (NicTemplate(tuple(range(ranks)), 2e-6, beta),),
        )
        for beta in betas
    )  # fmt: skip
    return Cluster("unlike", nodes).topology()


costs = st.tuples(st.integers(0, 30).map(lambda k: k * 1e-7), st.integers(1, 400).map(lambda k: k * 1e-12))
topologies = st.one_of(
    st.builds(
        lambda shape, ranks, some: shape(ranks, lambda k: some[k % len(some)]),
        st.sampled_from([*SHAPES.values(), complete, pairs_of_nodes, single_nodes]),
        st.integers(2, 7),
        st.lists(costs, min_size=1, max_size=7),
    ),
    st.builds(unlike_nodes, st.lists(st.sampled_from([4e-11, 8e-11, 1e-9, 4e-9]), min_size=2, max_size=4),
              st.integers(1, 3)),
)  # fmt: skip


@examples(250)
@given(topologies, st.sampled_from(sorted(COLLECTIVES)), st.sampled_from([1, 1_000, 1_000_003, 10**9]))
def test_without_time_the_answer_is_as_fast_as_every_library(topology: Topology, name: str, size_bytes: int) -> None:
    question = asked(topology, name, size_bytes)
    answer_s = end_s(solve(question, no_time_left()))
    chunks = question.coarsest
    for baseline in Baselines(topology, chunks.collective).of_size(chunks.chunk_bytes, most_transfers=0):
        report = check(baseline.schedule)
        assert report.valid
        assert answer_s <= report.makespan_s * (1 + 1e-9), baseline.name


@examples(250)
@given(topologies, st.sampled_from(sorted(COLLECTIVES)), st.sampled_from([1_000, 1_000_003]), st.booleans())
def test_of_all_variants_the_quickest_by_its_replay_is_chosen(
    topology: Topology, name: str, size_bytes: int, may_cut: bool
) -> None:
    library, laid_out = Baselines(topology, asked(topology, name, size_bytes).coarsest.collective), list[Baseline]()

    def replay(collective: Collective, transfers: list[Transfer]) -> bool:
        chunk_bytes = -(-size_bytes * library.collective.chunk_count // collective.chunk_count)
        schedule = to_schedule(topology, collective, chunk_bytes, *sends_in_turn(transfers))
        laid_out.append(Baseline("", "", collective, chunk_bytes, schedule))
        return True

    found, work = library.quickest(size_bytes, may_cut, EFFORT, replay)
    assert found is not None
    assert check(found.schedule).makespan_s == min(baseline.makespan_s for baseline in laid_out)
    assert len(found.schedule) <= work
    assert may_cut or found.collective.chunk_count == library.collective.chunk_count


@pytest.mark.parametrize("seed", range(share(12)))
def test_groups_have_a_floor_that_keeps_to_their_links(seed: int) -> None:
    question = groups_question(seed).problem
    found = quickest(question)
    assert found is not None
    report = check(found.schedule)
    assert report.valid, report.summary()
    assert end_s(solve(question, no_time_left())) <= report.makespan_s * (1 + 1e-9)
    link, first = found.schedule.place, found.schedule.moves
    moved = [
        Transfer(int(one), tuple(first[k].tolist()), bool(found.schedule.reduces[k])) for k, one in enumerate(link)
    ]
    assert keeps_to_links(question, found.problem.collective, moved)


def test_groups_along_an_axis_run_rings_of_their_own() -> None:
    groups = problem("ndv2", nodes=2, group=["tp=8"], collective="allreduce", size=10**6)
    alone = problem("ndv2", collective="allreduce", size=10**6, chunks=1)
    found, single = quickest(groups.coarsest), quickest(alone.coarsest)
    assert found is not None
    assert single is not None
    assert check(found.schedule).makespan_s <= 1.2 * check(single.schedule).makespan_s


def test_a_ring_of_unlike_nodes_is_taken_along_its_good_links() -> None:
    """Two slow cables among fast ones: a ring in the order of numbers crosses them, as does the shortest path."""
    topology = unlike_nodes([4e-9, 4e-11, 4e-11, 4e-11], 1)
    question = asked(topology, "allgather", 10**6)
    first = first_plan(question.coarsest, Deadline(SolveOptions()))
    assert first is not None
    least_s = 3 * (10**6 * 4e-9)  # the slow node receives the data of all others
    assert end_s(first) <= 1.05 * least_s


@pytest.mark.thorough("ndv2-16")
@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", ["ndv2", "dgx-a100"])
def test_work_is_counted_and_no_more_on_more_ranks(name: str, nodes: int) -> None:
    topology = load_topology(name, nodes)
    for collective in ("allgather", "allreduce", "alltoall", "broadcast"):
        found = quickest(asked(topology, collective, 10**6).coarsest)
        assert found is not None
        assert found.work <= EFFORT.transfers


@pytest.mark.parametrize("name", ["ring:64", "mesh:8x8", "torus:4x4x4"])
def test_networks_of_many_hops_take_no_more_work(name: str) -> None:
    found = quickest(asked(load_topology(name, 1), "allreduce", 10**6).coarsest)
    assert found is not None
    assert found.work <= 1.2 * EFFORT.transfers  # what is given up half-way counts as well


def test_a_ring_runs_both_ways_round() -> None:
    found = quickest(asked(load_topology("ring:64", 1), "allgather", 10**6).coarsest)
    assert found is not None
    assert found.variant == "2 rings, 1 piece"
    links = found.schedule.topology
    ahead = (links.link_target[found.schedule.place] - links.link_source[found.schedule.place]) % 64
    assert set(np.unique(ahead).tolist()) == {1, 63}


@pytest.mark.parametrize(
    ("machine", "sketch", "collective"),
    [("ndv2", "ndv2-sk-1", "allgather"), ("dgx2", "dgx2-sk-1", "allreduce"), ("dgx2", "dgx2-sk-2", "alltoall")],
)
def test_under_a_sketch_the_floor_keeps_to_it(machine: str, sketch: str, collective: str) -> None:
    question = Chunked.of(load_topology(machine, 2), collective, 10**6, load_sketch(sketch))
    first = first_plan(question, Deadline(no_time_left()))
    assert first is not None
    assert end_s(first) > 0
    moved = [
        Transfer(int(link), tuple(first.schedule.moves[k].tolist()), bool(first.schedule.reduces[k]))
        for k, link in enumerate(first.schedule.place)
    ]
    assert keeps_to_links(question, first.problem.collective, moved)


def test_a_method_that_is_asked_for_answers_with_its_own_plan_while_it_has_time() -> None:
    question = problem("ndv2", collective="allgather", size=64_000_000, method="greedy")
    assert solve(question, SolveOptions(gap=0.3)).details["method"] == "greedy"
    assert solve(question, no_time_left()).details["method"] == "baseline:ring"


def test_a_first_plan_is_offered_by_whoever_asks_for_it() -> None:
    offered: list[float] = []
    deadline = Deadline(SolveOptions(on_plan=lambda cost, _: offered.append(cost)))
    plan = first_plan(asked(load_topology("dgx2", 3), "allgather", 2**20).coarsest, deadline)
    assert plan is not None
    assert not offered, "a part of a plan's search is no answer to the question"
