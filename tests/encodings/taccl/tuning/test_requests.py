"""The cells of the table: collectives, groups and sizes from options or a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.encodings.taccl.tuning.question import COLLECTIVES, TuneQuestion
from gapless.encodings.taccl.tuning.requests import Request, requests_of
from gapless.errors import InputError


def asked(**values: object) -> TuneQuestion:
    return TuneQuestion(output="tuned", **values)  # type: ignore[arg-type]


def test_without_options_all_collectives_are_asked_for_among_all_ranks() -> None:
    found = requests_of(asked(), 4)
    assert {one.collective for one in found} == set(COLLECTIVES)
    assert {one.ranks for one in found} == {(0, 1, 2, 3)}
    assert len(found) == 3 * len(COLLECTIVES)


def test_sizes_are_whole_numbers_of_elements_in_every_chunk() -> None:
    found = requests_of(asked(collectives="ALLREDUCE,allgather", sizes="1KB"), 3)
    assert found == [Request("allgather", (0, 1, 2), 1000), Request("allreduce", (0, 1, 2), 1008)]


def test_groups_are_ranks_or_axes() -> None:
    found = requests_of(asked(collectives="reduce", sizes="1KB", groups="all+0-2+tp=2"), 4)
    assert [one.ranks for one in found] == [(0, 1, 2, 3), (0, 1), (0, 1, 2), (2, 3)]


def test_a_file_has_tables_of_cells(tmp_path: Path) -> None:
    path = tmp_path / "cells.toml"
    path.write_text("""
        [[cells]]
        collectives = ["allreduce"]
        sizes = ["64KB", "1KB"]
        [[cells]]
        collectives = ["alltoall"]
        groups = ["0-1"]
        sizes = ["1KB"]
    """)
    found = requests_of(asked(cells_file=str(path)), 4)
    assert found == [
        Request("allreduce", (0, 1, 2, 3), 1008), Request("allreduce", (0, 1, 2, 3), 64_000),
        Request("alltoall", (0, 1), 1000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "field 'cells' is missing"),
        ("cells = []", "at least one table"),
        ("[[cells]]\nsize = ['1KB']", "size"),
        ("[[cells]]\nsizes = ['a']", "cells.toml: cells[0]: sizes: "),
        ("[[cells]]\ncollectives = ['allredcue']", "cells.toml: cells[0]: collectives: must be some of"),
        ("[[cells]]\ngroups = ['0-9']", "must be two or more of the ranks 0-3, each once, got '0-9'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_a_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "cells.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        requests_of(asked(cells_file=str(path)), 4)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"collectives": "gather"}, "collectives: must be some of allgather, allreduce"),
        ({"groups": "0"}, "groups: must be two or more of the ranks 0-3"),
        ({"groups": "0-1:allreduce"}, "groups: must be all, ranks or axes"),
        ({"cells_file": "cells.toml", "sizes": "1KB"}, "not both"),
    ],
)
def test_options_that_are_wrong_are_refused(values: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as error:
        requests_of(asked(**values), 4)
    assert line in str(error.value)
