"""Process groups: bounds below an exact optimum, plans that keep to who may forward, and the joint question."""

from __future__ import annotations

import numpy as np
import pytest
from exact_bounds import compared
from examples import share
from little import LITTLE
from random_groups import groups_question
from shapes import even, line, ring

from gapless.checker import check
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.problem import Problem, problem
from gapless.encodings.taccl.solve import solve
from gapless.encodings.taccl.symmetry.quotient import rotations_of
from gapless.errors import InputError
from gapless.ir.process_groups import Group, Groups
from gapless.options import SolveOptions
from gapless.system import Plan
from gapless.topologies.files import load_topology

BRIEF = SolveOptions(gap=0.3, threads=1)


@pytest.mark.thorough(*map(str, range(5, 24)))
@pytest.mark.parametrize("seed", range(share(24)))
def test_bounds_are_in_order_below_the_optimum(seed: int) -> None:
    found = compared(groups_question(seed), work=1.0)
    assert found.in_order, found


def _solved(asked: Problem) -> Plan:
    plan = solve(asked, BRIEF, LITTLE)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    return plan


@pytest.mark.thorough("allreduce")
@pytest.mark.parametrize("collective", ["allgather", "alltoall", "allreduce", "reducescatter"])
def test_others_forward_only_where_they_may(collective: str) -> None:
    among = {"collective": collective, "group": ["a=2,b=2"], "size": 100_000, "topology": ring(8, even)}
    plan = _solved(problem(**among))  # 0 and 2 are no neighbours: 1 forwards
    assert plan.schedule is not None
    assert {1, 3} & set(plan.schedule.topology.link_target[plan.schedule.place].tolist())
    with pytest.raises(InputError, match="not connected by itself, as 0, 2; got no"):
        problem(**among, relays="no")


@pytest.mark.thorough("groups1")
@pytest.mark.parametrize("groups", [["0-3", "4-7"], ["0-2:allgather", "1-3:alltoall"]])
def test_without_relays_chunks_stay_in_their_group(groups: list[str]) -> None:
    asked = problem(ring(8, even), group=groups, size=100_000, relays="no")
    plan = _solved(asked)
    schedule = plan.schedule
    assert schedule is not None
    assert isinstance(asked.collective, Groups)
    assert isinstance(plan.problem, Chunked)
    first, parts = 0, plan.problem.collective.chunks_per_rank
    for group, chunks in zip(asked.collective.groups, asked.collective.chunk_counts, strict=True):
        count = group.among_itself(chunks).chunk_count
        mine = (schedule.moves.values >= first * parts) & (schedule.moves.values < (first + count) * parts)
        place = schedule.place[schedule.moves.owner[mine]]
        ends = (schedule.topology.link_source[place], schedule.topology.link_target[place])
        assert np.isin(ends, group.ranks).all()
        first += count
    assert first * parts == schedule.graph.tensor_count


def test_sums_and_plain_chunks_of_other_sizes_are_planned_together() -> None:
    plan = _solved(problem(ring(4, even), group=["0,1:alltoall:4MB", "0-3:allreduce:2MB"]))
    asked = plan.problem
    assert isinstance(asked, Chunked)
    assert asked.chunk_bytes * asked.collective.chunks_per_rank == 500_000
    counts = np.bincount([len(parts) for parts in asked.collective.contributors]) // asked.collective.chunks_per_rank
    assert counts.tolist() == [0, 2 * 2 * 4, 0, 0, 4]


def test_a_rotation_that_permutes_groups_is_kept() -> None:
    torus = load_topology("torus:4x4")
    rows = problem(torus, group=["x=4"], size=1_000_000).coarsest
    assert len(rotations_of(rows)) == 16
    one = problem(torus, ranks="0-3", size=1_000_000).coarsest
    assert len(rotations_of(one)) == 4  # along the row, all rows at once
    none = problem(torus, ranks="0,1,4", size=1_000_000).coarsest
    assert len(rotations_of(none)) == 1


def test_the_joint_bound_counts_what_groups_send_over_the_same_links() -> None:
    mesh = load_topology("mesh:4x4")
    joint = problem(mesh, group=["x=4"], size=64_000_000).coarsest
    alone = problem(mesh, ranks="0-3", size=64_000_000).coarsest
    link_s = 64_000_000 * float(mesh.beta_s_per_byte[0])
    # Four ranks at the ends of four rows need three buffers each, over four links; one row may use the others' links.
    assert bounds_of(joint).any_chunking_s == pytest.approx(3 * link_s, rel=1e-3)
    assert bounds_of(alone).any_chunking_s < 2 * link_s


def test_a_plan_of_one_group_is_that_of_a_small_topology() -> None:
    plan = _solved(problem(line(6, even), ranks="1-4", collective="reduce", root=2, size=100_000))
    same = _solved(problem(line(4, even), collective="reduce", root=2, size=100_000))
    assert plan.solution.objective == pytest.approx(same.solution.objective)


def test_an_unlike_share_is_refused() -> None:
    with pytest.raises(InputError, match="within a factor of 256"):
        Groups((Group("allgather", (0, 1), 1000), Group("allgather", (2, 3), 10**6)))
