"""The outcome of two measurements: who serves a size, what the table says, and the folder as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from little import LITTLE

from gapless.encodings.taccl.tuning.candidates import Candidates, Entrant, find_candidates
from gapless.encodings.taccl.tuning.folder import check_folder, write_outcome
from gapless.encodings.taccl.tuning.outcome import Measured, Outcome, hopeful, outcome_of, text_of
from gapless.encodings.taccl.tuning.requests import Request
from gapless.encodings.taccl.tuning.winners import Contest
from gapless.errors import InputError
from gapless.io.formats.tuned_file import TABLE, Table, read_selector, read_table
from gapless.io.mscclpp import read_plan as read_mscclpp
from gapless.io.plan import read_plan
from gapless.io.taccl_ef import read_program
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

ALL = (0, 1, 2, 3)
SIZES = (16_000, 64_000, 256_000)
HEAD = Table("2026-11-24T12:00:00+00:00", "gloo", 4, 3, "ring of 4")


@pytest.fixture(scope="module")
def candidates() -> Candidates:
    requests = [Request("allreduce", ALL, size) for size in SIZES]
    return find_candidates(load_topology("ring:4"), requests, SolveOptions(gap=0.1), LITTLE, lambda line: None)


def times(plan: int, plan_s: float, library_s: float) -> Contest:
    return Contest({plan: (plan_s,) * 3}, ((library_s,) * 3, (library_s,) * 3))


def outcome(candidates: Candidates, first: list[float], second: list[float]) -> Outcome:
    """One plan, tried in all cells, takes so many times what the library does, in both measurements."""
    requests = [Request("allreduce", ALL, size) for size in SIZES]
    contests = [[times(0, ratio, 1.0) for ratio in ratios] for ratios in (first, second)]
    kept = hopeful(contests[0], 0)
    again = [one if won else Contest({}, ((), ())) for one, won in zip(contests[1], kept, strict=True)]
    whole = Candidates(candidates.texts[:1], candidates.made_by[:1], ((Entrant(0, 0.25),),) * len(SIZES))
    return outcome_of(requests, whole, Measured(tuple(contests[0]), tuple(again)), HEAD, 0)


def test_every_cell_has_its_own_plan_those_of_its_neighbours_and_algorithms_of_libraries(
    candidates: Candidates,
) -> None:
    for place, cell in enumerate(candidates.cells):
        made = {candidates.made_by[one.plan] for one in cell}
        assert any(name.startswith("plan for") for name in made)
        assert 2 <= len(cell) <= 6
        predicted = [one.predicted_s for one in cell]
        assert predicted == sorted(predicted), place
    assert any("ring" in name or "tree" in name or "halving" in name for name in candidates.made_by)
    assert Candidates.unpacked(candidates.packed()) == candidates


def test_a_plan_serves_a_size_only_where_it_wins_twice(candidates: Candidates) -> None:
    found = outcome(candidates, [0.5, 0.5, 0.5], [0.5, 1.2, 0.5])
    assert [row.winner for row in found.table.rows] == [0, None, 0]
    assert [(one.min_bytes, one.max_bytes) for one in found.selector.ranges] == [(16_000,) * 2, (256_000,) * 2]
    assert [row.ratio for row in found.table.rows] == [0.5, 1.2, 0.5]


def test_sizes_between_two_that_a_plan_wins_are_served(candidates: Candidates) -> None:
    found = outcome(candidates, [0.5, 0.6, 1.1], [0.5, 0.6, 1.1])
    assert [(one.min_bytes, one.max_bytes) for one in found.selector.ranges] == [(16_000, 64_000)]
    assert found.selector.plan_for("allreduce", ALL, 20_000) == 0
    assert found.selector.plan_for("allreduce", ALL, 64_001) is None
    assert found.selector.plan_for("allgather", ALL, 20_000) is None
    assert found.selector.plan_for("allreduce", (0, 1, 2), 20_000) is None
    lines = text_of(found.table).splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["plan", "0"],
        ["plan", "0"],
        [lines[3].split()[-2], "library"],
    ]


def test_the_folder_has_plans_table_selector_and_files_for_two_runtimes(candidates: Candidates, tmp_path: Path) -> None:
    found, folder = outcome(candidates, [0.5] * 3, [0.5] * 3), tmp_path / "tuned"
    check_folder(str(folder))
    assert write_outcome(str(folder), found, "") == []
    assert read_selector(folder) == found.selector
    assert read_table(folder / TABLE) == found.table
    (one,) = found.selector.ranges
    assert read_plan(folder / found.selector.plans[0].file).system == "taccl"
    for runtime, read in (("msccl", lambda path: read_program(path)[0]), ("mscclpp", read_mscclpp)):
        (row,) = json.loads((folder / runtime / "files.json").read_text())
        assert (row["min_bytes"], row["max_bytes"], row["ranks"]) == (16_000, 256_000, list(ALL))
        read(str(folder / runtime / row["file"]))
    program, _ = read_program(str(folder / "msccl" / "allreduce-0.xml"))
    assert (program.min_bytes, program.max_bytes) == (one.min_bytes, one.max_bytes)
    assert [path.name for path in tmp_path.iterdir()] == ["tuned"]


def test_a_folder_of_before_is_replaced_and_others_are_refused(candidates: Candidates, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    write_outcome(str(folder), outcome(candidates, [0.5] * 3, [0.5] * 3), "")
    check_folder(str(folder))
    write_outcome(str(folder), outcome(candidates, [2.0] * 3, [2.0] * 3), "{}\n")
    assert not list((folder / "plans").iterdir())
    assert read_selector(folder).ranges == ()
    assert (folder / "topology.json").read_text() == "{}\n"
    other = tmp_path / "other"
    other.mkdir()
    check_folder(str(other))
    (other / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="must be a new folder, or one of `gapless tune`"):
        check_folder(str(other))
    with pytest.raises(InputError, match="there is no folder"):
        check_folder(str(tmp_path / "nowhere" / "tuned"))
