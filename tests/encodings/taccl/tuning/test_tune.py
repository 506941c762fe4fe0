"""`gapless tune` between processes of this machine: what it measures, writes, and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from calls import run

from gapless.io.formats.tuned_file import TABLE, read_selector, read_table


def tuned(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> tuple[int, str, str]:
    words = ("--repeats", "3", "--time-limit", "20", "--hopeless", "1000", "-o", str(folder), *more)
    return run(capsys, "tune", "--topology", "ring:3", *words)


def test_the_table_has_every_cell_and_only_plans_that_beat_the_library_are_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, cells = tmp_path / "tuned", ("--collectives", "allreduce,reduce", "--groups", "all+0,2", "--sizes", "60KB")
    code, out, _ = tuned(capsys, folder, *cells, "--json")
    assert code == 0
    table, selector = read_table(folder / TABLE), read_selector(folder)
    assert [(row.collective, row.ranks) for row in table.rows] == [
        ("allreduce", (0, 1, 2)), ("allreduce", (0, 2)), ("reduce", (0, 1, 2)), ("reduce", (0, 2)),
    ]  # fmt: skip
    for row in table.rows:
        assert row.library_s > 0
        assert all(one.measured_s > 0 for one in row.tried)
        assert row.winner == selector.plan_for(row.collective, row.ranks, row.size_bytes)
        if row.winner is not None:
            assert (row.ratio or 1.0) < 1 - row.noise
    assert json.loads(out)["rows"][0]["size_bytes"] == 60_000
    assert (folder / "table.txt").read_text().count("\n") == 5


@pytest.mark.thorough
def test_links_are_measured_where_no_topology_is_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--collectives", "broadcast", "--sizes", "1KB", "--repeats", "3", "--time-limit", "120")
    code, out, err = run(capsys, "tune", "--ranks", "2", *words, "-o", str(tmp_path / "tuned"))
    assert code == 0, err
    assert "broadcast" in out
    assert json.loads((tmp_path / "tuned/topology.json").read_text())["format"] == "gapless.topology"
    assert read_table(tmp_path / "tuned" / TABLE).ranks == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--collectives", "gather"), "--collectives: must be some of"),
        (("--groups", "0-7"), "--groups: must be two or more of the ranks 0-2"),
        (("--backend", "mpi"), "backend: must be one that this PyTorch has"),
        (("--ranks", "4"), "--ranks: must be left out with a topology of 3 ranks, got 4"),
        (("--repeats", "2"), "--repeats"),
        (("--time-limit", "30", "--profile-time", "30"), "--profile-time: must be less than the time limit of 30 s"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    others = () if words[0] == "--repeats" else ("--repeats", "3")
    machine = () if "--profile-time" in words else ("--topology", "ring:3")
    code, _, err = run(capsys, "tune", *machine, *words, *others, "-o", str(tmp_path / "tuned"))
    assert code == 2
    assert line in err
    assert not list(tmp_path.iterdir())


def test_a_folder_of_other_files_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = tuned(capsys, tmp_path)
    assert code == 2
    assert "must be a new folder, or one of `gapless tune`" in err
