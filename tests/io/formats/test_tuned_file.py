"""The selector's and the table's files: read back as they were written, and refused in a line where they are wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.io.formats.tuned_file import (
    SELECTOR,
    TABLE,
    Row,
    Selector,
    Served,
    Table,
    Tried,
    WinningPlan,
    read_selector,
    read_table,
    selector_text,
    table_text,
)

PLAN = b"{}"
SELECTED = Selector(
    "2026-11-24T12:00:00+00:00", "gloo", 4, (WinningPlan("plans/0.json", hashlib.sha256(PLAN).hexdigest()),),
    (Served("allreduce", (0, 1, 2, 3), 10, 20, 0), Served("allreduce", (0, 1, 2, 3), 21, 30, 0)),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans/0.json").write_bytes(PLAN)
    (tmp_path / SELECTOR).write_text(selector_text(SELECTED))
    return tmp_path


def test_a_selector_is_read_as_it_was_written(folder: Path) -> None:
    found = read_selector(folder)
    assert found == SELECTED
    assert [found.plan_for("allreduce", (0, 1, 2, 3), size) for size in (9, 10, 20, 21, 30, 31)] == [
        None, 0, 0, 0, 0, None,
    ]  # fmt: skip


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = (
        Row("allreduce", (0, 1), 1000, 1e-3, 0.1, 0, "plan for 1 KB", 1e-4, 5e-4, 0.5, (Tried("ring", 1e-3, 0.0),)),
        Row("broadcast", (0, 1), 1000, 1e-3, 0.1),
    )
    table = Table("2026-11-24T12:00:00+00:00", "gloo", 2, 9, "measured", rows)
    (tmp_path / TABLE).write_text(table_text(table))
    assert read_table(tmp_path / TABLE) == table
    assert [row.ratio for row in rows] == [0.5, None]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: data.update(version=2), "version"),
        (lambda data: data.update(extra=1), "extra"),
        (lambda data: data["ranges"][0].update(collective="alreduce"), "collective"),
        (
            lambda data: data["ranges"][0].update(ranks=[0, 0]),
            "ranges[0].ranks: must be two or more of 0..3, each once",
        ),
        (
            lambda data: data["ranges"][0].update(ranks=[0, 4]),
            "ranges[0].ranks: must be two or more of 0..3, each once",
        ),
        (
            lambda data: data["ranges"][0].update(min_bytes=25),
            "ranges[0].min_bytes: must be <= max_bytes, got 25 and 20",
        ),
        (lambda data: data["ranges"][0].update(max_bytes=25), "must not overlap, got 21 below 25"),
        (lambda data: data["ranges"][1].update(plan=1), "ranges[1].plan: must be a place in plans"),
        (lambda data: data["plans"][0].update(file="../0.json"), "plans[0].file: must be a path inside of the folder"),
        (lambda data: data["plans"][0].update(file="plans/1.json"), "cannot read"),
        (lambda data: data["plans"][0].update(sha256="0"), "plans[0].sha256: must be that of plans/0.json"),
    ],
)
def test_a_selector_that_is_wrong_is_refused_in_a_line(folder: Path, change: Any, line: str) -> None:
    data = json.loads((folder / SELECTOR).read_text())
    change(data)
    (folder / SELECTOR).write_text(json.dumps(data))
    with pytest.raises(InputError) as error:
        read_selector(folder)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a folder that `gapless tune` wrote"):
        read_selector(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot read"):
        read_selector(tmp_path)
