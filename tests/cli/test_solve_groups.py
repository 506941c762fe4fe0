"""`gapless solve taccl` for process groups: options, files, plans that are read back, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calls import run

SOLVE = ["solve", "taccl", "--topology", "mesh:2x4", "--gap", "0.5", "--quiet"]


def test_groups_are_solved_checked_shown_and_exported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, xml = str(tmp_path / "plan.json"), str(tmp_path / "plan.xml")
    groups = ["--group", "x=4:allgather:10KB", "--group", "x=4,y=2:allreduce:20KB"]
    assert run(capsys, *SOLVE, *groups, "-o", plan)[0] == 0
    asked = json.loads(Path(plan).read_text())["problem"]
    assert asked["collective"] == "allgather+allreduce-groups"
    assert asked["groups"][2] == {"collective": "allreduce", "ranks": [0, 4], "size_bytes": 20_000}
    assert asked["relays"] is True
    assert run(capsys, "check", plan)[0] == 0
    assert run(capsys, "show", plan)[0] == 0
    code, out, _ = run(capsys, "export", plan, "--format", "taccl-ef", "-o", xml)
    assert code == 0
    assert "for a communicator of all 8 ranks" in out
    assert run(capsys, "check", xml)[0] == 0


def test_a_text_with_a_plus_and_a_file_say_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = [word.replace("2x4", "2x2") for word in SOLVE]
    path, plans = tmp_path / "groups.json", [tmp_path / "one.json", tmp_path / "other.json"]
    groups = [{"axes": "x=2"}, {"ranks": [1, 2], "collective": "reduce", "root": 1, "size": "5KB"}]
    path.write_text(json.dumps({"format": "gapless.groups", "version": 1, "groups": groups}))
    texts = ["--group", "x=2:broadcast + 1,2:reduce:5KB", "--root", "1"]
    assert run(capsys, *small, *texts, "--size", "5KB", "-o", str(plans[0]))[0] == 0
    groups[0] |= {"collective": "broadcast", "root": 1}
    path.write_text(json.dumps({"format": "gapless.groups", "version": 1, "groups": groups}))
    assert run(capsys, *small, "--groups-file", str(path), "--size", "5KB", "-o", str(plans[1]))[0] == 0
    one, other = (json.loads(plan.read_text()) for plan in plans)
    assert one["problem"] == other["problem"]
    assert one["schedule"] == other["schedule"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--ranks", "0,5", "--relays", "no"],
            "--relays: must be yes where a group is not connected by itself, as 0, 5",
        ),
        (["--ranks", "0,8"], "process groups: ranks must be in 0..7, got 8"),
        (["--group", "tp=3"], "--group: the 3 ranks of tp=3 must divide the 8"),
        (["--relays", "no"], "--relays: is for --ranks, --group and --groups-file, got 'no' without them"),
        (["--ranks", "0-1", "--group", "x=2"], "give --ranks or --group, not both"),
        (["--ranks", "0-1", "--collective-file", "own.json"], "--ranks: goes with the name of a collective"),
        (["--ranks", "0-1", "--root", "1"], "--root: must be left out, no collective of the groups has one; got 1"),
        (["--ranks", "0-1", "--collective", "reduce", "--root", "2"], "reduce: root must be in 0..1, got 2"),
        (["--groups-file", "none.json"], "none.json"),
        (["--group", "0-1:allgather:1KB", "--group", "2-3:allgather:1MB"], "within a factor of 256"),
        (["--group", "0-1:allgather:"], None),
    ],
)
def test_errors_take_one_line(capsys: pytest.CaptureFixture[str], options: list[str], message: str | None) -> None:
    code, _, err = run(capsys, *SOLVE, *options, "--size", "1KB")
    assert code == (0 if message is None else 2)
    assert err.count("\n") == (0 if message is None else 1)
    assert message is None or message in err


def test_a_size_is_for_all_or_stands_behind_each(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *SOLVE, "--group", "x=4")
    assert code == 2
    assert "--size: must be given, such as 1MB, or behind each group" in err
