"""Communicators: who calls a plan of process groups, and that each file does what its ranks need."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from little import LITTLE
from shapes import even, line, ring

from gapless.checker import check
from gapless.encodings.taccl.problem import problem
from gapless.encodings.taccl.programs.export import (
    collective_of,
    communicators,
    write_each,
    write_mscclpp,
    write_taccl_ef,
)
from gapless.encodings.taccl.solve import solve
from gapless.io.taccl_ef import judge, read_program
from gapless.ir.schedule import Schedule
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology


def _planned(topology: Topology, *group: str, **how: object) -> tuple[Schedule, dict[str, object]]:
    plan = solve(problem(topology, group=group, size=10_000, **how), SolveOptions(gap=0.3, threads=1), LITTLE)  # type: ignore[arg-type]
    assert plan.schedule is not None
    assert plan.problem is not None
    return plan.schedule, plan.problem.description


def test_groups_that_keep_to_themselves_have_communicators_of_their_own() -> None:
    schedule, description = _planned(ring(6, even), "4,3,5:allreduce", "0-2:alltoall", relays="no")
    found = communicators(schedule, description)
    assert [each.ranks for each in found] == [(4, 3, 5), (0, 1, 2)]
    assert [collective_of(each.description, "").name for each in found] == ["allreduce", "alltoall"]
    for each in found:
        collective = collective_of(each.description, "")
        assert collective.rank_count == each.schedule.topology.device_count == len(each.ranks)
        assert check(each.schedule).valid
        assert len(each.schedule.graph.required.tensors) == sum(map(len, collective.outputs))
    assert sum(len(each.schedule) for each in found) == len(schedule)
    assert max(float(each.schedule.end_s.max()) for each in found) == float(schedule.end_s.max())


@pytest.mark.parametrize("groups", [("0,2",), ("0-1", "1-2")])
def test_all_ranks_call_what_others_forward_or_groups_share(groups: tuple[str, ...]) -> None:
    schedule, description = _planned(line(4, even), *groups)
    (only,) = communicators(schedule, description)
    assert only.ranks == (0, 1, 2, 3)
    assert np.array_equal(only.schedule.place, schedule.place)
    line_of = write_each("", schedule, description, lambda *_: "custom")
    assert line_of == "custom; for a communicator of all 4 ranks: groups share ranks, or others forward"


def test_one_file_serves_groups_that_do_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.xml")
    schedule, description = _planned(ring(8, even), "x=2", relays="no")
    line_of = write_each(path, schedule, description, lambda where, *part: write_taccl_ef(where, *part).summary())
    assert line_of.endswith("; one file for all 4 communicators of 2 ranks, which do the same")
    program, _ = read_program(path)
    assert program.ngpus == 2
    assert judge(program, collective="allgather").is_valid


def test_others_have_a_file_each(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    schedule, description = _planned(ring(6, even), "0-2:allgather", "3-5:reducescatter", relays="no")

    def write(where: str, part: Schedule, about: dict[str, object]) -> str:
        return write_mscclpp(where, part, about, placement="out-of-place").collective

    lines = write_each(path, schedule, description, write).splitlines()  # type: ignore[arg-type]
    assert lines[0] == "2 files, one for the communicator of each group"
    assert lines[1] == f"{tmp_path / 'plan.group0.json'}: allgather; for ranks 0-2"
    assert lines[2] == f"{tmp_path / 'plan.group1.json'}: reducescatter; for ranks 3, 4, 5"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["plan.group0.json", "plan.group1.json"]


def test_one_group_is_a_small_communicator() -> None:
    schedule, description = _planned(line(4, even), "2,1")
    assert (
        write_each("", schedule, description, lambda *_: "allgather") == "allgather; for a communicator of ranks 2, 1"
    )
