"""After a failure: the question on what is left of the machine, among the ranks that are left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little import LITTLE
from shapes import even, line, ring

import gapless
from gapless.checker import check
from gapless.cli.main import main
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.flow.first import first_plan
from gapless.encodings.taccl.problem import Problem, problem
from gapless.encodings.taccl.solve import solve
from gapless.errors import InputError
from gapless.ir.collective import Collective
from gapless.ir.process_groups import Groups
from gapless.options import Deadline, SolveOptions
from gapless.result import Result
from gapless.topologies.files import load_topology

BRIEF = SolveOptions(gap=0.3, threads=1)
GRID = load_topology("torus:3x3", 1)
EIGHT: dict[str, Any] = {"topology": ring(8, even), "size": 100_000}


def groups_of(asked: Problem) -> Groups:
    assert isinstance(asked.collective, Groups)
    return asked.collective


def test_all_forms_of_a_field_are_one_question() -> None:
    one = problem(**EIGHT, without_links="0>1,2>3", degraded="4-5:0.5")
    assert one == problem(**EIGHT, without_links=["0>1", "2>3"], degraded=("4-5:0.5",))
    assert problem(**EIGHT, without_ranks=5) == problem(**EIGHT, without_ranks="5")
    assert problem(**EIGHT, without_ranks=[5, 6, 7]) == problem(**EIGHT, without_ranks="5-7")


@pytest.mark.parametrize("collective", ["allgather", "alltoall", "allreduce", "broadcast"])
def test_the_others_go_on_under_their_numbers(collective: str) -> None:
    asked = problem(**EIGHT, collective=collective, without_ranks=5)
    assert groups_of(asked).groups[0].ranks == (0, 1, 2, 3, 4, 6, 7)
    plan = solve(asked, BRIEF, LITTLE)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    used = plan.schedule.topology
    assert 5 not in {*used.link_source[plan.schedule.place].tolist(), *used.link_target[plan.schedule.place].tolist()}


def test_a_link_that_is_gone_is_not_used_and_the_bound_knows() -> None:
    asked, whole = problem(**EIGHT, without_links="0-1"), problem(**EIGHT)
    bounds = [bounds_of(each.coarsest, LITTLE.bounds, BRIEF).any_chunking_s for each in (whole, asked)]
    assert bounds[1] > bounds[0]
    plan = solve(asked, BRIEF, LITTLE)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    names = {plan.schedule.topology.link_name(link) for link in plan.schedule.place.tolist()}
    assert not {"0->1", "1->0"} & names


def test_root_and_target_are_ranks_still() -> None:
    group = groups_of(problem(**EIGHT, collective="broadcast", root=6, without_ranks=2)).groups[0]
    assert group.root is not None
    assert group.ranks[group.root] == 6
    first = groups_of(problem(**EIGHT, collective="broadcast", without_ranks=0)).groups[0]
    assert (first.ranks[0], first.root) == (1, 0)
    pair = groups_of(problem(**EIGHT, collective="sendrecv", root=1, without_ranks=7)).groups[0]
    assert (pair.ranks[pair.root or 0], pair.ranks[pair.target or 0]) == (1, 6)


def test_groups_go_on_without_who_has_left() -> None:
    asked = problem(**EIGHT, group=["0-2", "4-5", "5-7"], without_ranks=5)
    assert [group.ranks for group in groups_of(asked).groups] == [(0, 1, 2), (6, 7)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"without_links": "0-1,4-5"}, "falls apart: ranks 0, 5-7 can't reach ranks 1-4; leave out the ranks too"),
        ({"without_links": "3>4,4>3,5-4"}, "falls apart: ranks 0-3, 5-7 can't reach rank 4"),
        ({"without_links": "0-3"}, "without_links: must be links of the topology, got '0-3'; rank 0 has links to 1, 7"),
        ({"without_links": "nic2"}, "resources of the topology, got 'nic2', which has none"),
        ({"without_ranks": "9"}, "without_ranks: must be in 0..7, got 9"),
        ({"without_ranks": "1-7"}, "without_ranks: must leave two ranks or more, got 1-7"),
        ({"without_ranks": "x"}, "without_ranks: must be ranks, such as 5 or 0-7,16, got 'x'"),
        ({"without_ranks": 2, "collective": "broadcast", "root": 2}, "root: must be a rank that is left, got rank 2"),
        ({"without_ranks": 2, "group": ["2-3"]}, "must leave two ranks of a group or more, got 2"),
        ({"degraded": "0-1:2"}, "got 2 for 0-1; 2 times slower is 0.5"),
        ({"degraded": "0-1"}, "degraded: must be names with a share of the bandwidth, such as 3-7:0.5, got '0-1'"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        problem(**{**EIGHT, **values})
    assert "\n" not in str(caught.value)


def test_what_one_direction_carries_needs_no_other() -> None:
    asked = problem(line(4, even), collective="broadcast", size=100_000, without_links="1>0,2>1,3>2")
    plan = solve(asked, BRIEF, LITTLE)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    with pytest.raises(InputError, match="ranks 1-3 can't reach rank 0"):
        problem(line(4, even), size=100_000, without_links="1>0")


def test_a_collective_of_ones_own_keeps_its_ranks() -> None:
    own = Collective("own", 8, 1, ((0,), *[()] * 7), ((), (0,), *[()] * 6), False)
    assert problem(**EIGHT, collective=own, without_ranks=5).collective == own
    with pytest.raises(InputError, match="must be ranks that the collective does without, got 1"):
        problem(**EIGHT, collective=own, without_ranks=1)


def test_bytes_by_pair_go_over_what_is_left() -> None:
    matrix = np.array([[0, 10_000, 0, 500], [500, 0, 0, 0], [0, 0, 0, 700], [9_000, 0, 800, 0]])
    asked = {"topology": ring(4, even), "collective": "alltoallv", "matrix": matrix}
    plan = solve(problem(**asked, without_links="0-1"), BRIEF, LITTLE)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    used = {plan.schedule.topology.link_name(link) for link in plan.schedule.place.tolist()}
    assert not {"0->1", "1->0"} & used
    with pytest.raises(InputError, match="without_ranks: must be left out with bytes by pair"):
        problem(**asked, without_ranks=2)


def whole(**values: Any) -> Result:
    """A plan of before the failure."""
    found: Result = gapless.taccl.solve(**{**EIGHT, "topology": GRID, **values}, gap=0.3, threads=1)
    return found


@pytest.mark.thorough(but=("allgather", "allreduce"))
@pytest.mark.parametrize(
    "collective", ["allgather", "alltoall", "allreduce", "broadcast", "reducescatter", "gather", "reduce"]
)
@pytest.mark.thorough("allreduce")
@pytest.mark.parametrize("failure", [{"without_links": "0-1"}, {"without_ranks": 5}, {"degraded": "0-1:0.5"}], ids=str)
def test_a_plan_goes_on_after_a_failure(collective: str, failure: dict[str, Any]) -> None:
    before = whole(collective=collective)
    asked = problem(GRID, size=100_000, collective=collective, from_plan=before, **failure)
    plan = solve(asked, BRIEF, LITTLE)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    assert isinstance(plan.problem, Chunked)
    required, wanted = plan.schedule.graph.required, plan.problem.graph.required
    assert np.array_equal(required.tensors, wanted.tensors)
    assert np.array_equal(required.devices, wanted.devices)
    first = first_plan(asked.coarsest, Deadline(BRIEF))
    assert first is not None
    kept, end_s = plan.details["repair"], plan.solution.objective or 0
    assert end_s <= max(first.end_s, (1 + LITTLE.repair.near) * kept["bound_s"]) * (1 + 1e-9)
    assert kept["before_s"] == pytest.approx(before.solution.objective)
    assert kept["bound_s"] <= kept["end_s"] == plan.solution.objective


def test_the_question_is_the_same_with_and_without_an_earlier_plan() -> None:
    before = whole()
    assert problem(GRID, size=100_000, from_plan=before, without_links="0-1") == problem(
        GRID, size=100_000, without_links="0-1"
    )


def test_a_file_is_gone_on_from_and_the_answer_says_how_much_slower_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "plan.json")
    gapless.taccl.solve("torus:3x3", size="1MB", gap=0.3, threads=1).save(path)
    asked = ["solve", "taccl", "--topology", "torus:3x3", "--size", "1MB", "--without-links", "0-1"]
    assert main([*asked, "--from", path]) == 0
    told = capsys.readouterr()
    assert "before the failure" in told.out + told.err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topology": line(9, even)}, "must be that of the question, 'line x 1', which has no link"),
        ({"topology": ring(5, even)}, "must be that of the question, 'ring x 1' of 5 ranks, got 9 ranks"),
        (
            {"collective": "alltoall"},
            "collective: must be that of the question, alltoall among its ranks, got allgather",
        ),
        ({"chunks": 3}, "chunks: must be left out with --from, or 1, as its plan has; got 3"),
        ({"path_slack": 0.5}, "path_slack: must be left out with --from"),
    ],
)
def test_a_plan_of_another_question_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        problem(**{"topology": GRID, "size": 100_000, "from_plan": whole(chunks=1), **values})
    assert "\n" not in str(caught.value)
