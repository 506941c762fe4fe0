"""The page of the house shows the rooms that are there: all of them, and no other."""

from __future__ import annotations

import re

from doc_pages import ROOT, blocks

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = {"solvers", "encodings", "topologies", "profiles", "tests"}


def rooms() -> set[str]:
    """The folders at the top, and those in `gapless/`."""
    inner = (path for path in (ROOT / "gapless").iterdir() if path.is_dir() and not path.is_symlink())
    return FOLDERS | {f"gapless/{path.name}" for path in inner if (path / "__init__.py").is_file()}


def test_the_table_has_every_room_once() -> None:
    (table,) = re.findall(r"^\| room \|.*\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    named = re.findall(r"^\| `([\w/]+)/` \|", table, re.MULTILINE)
    assert len(named) == len(table.splitlines())
    assert sorted(named) == sorted(rooms())


def test_the_picture_shows_rooms_and_files_that_are_there() -> None:
    (picture,) = [block.text for block in blocks(PAGE) if block.mark == "picture"]
    there = {room.rpartition("/")[2] for room in rooms()}
    drawn = set(re.findall(r"(\w+)/(?!SYSTEM)", picture)) - {"SYSTEM"}
    assert drawn <= there
    assert there - drawn == {"encodings", "installation", "ir", "schemas", "tests"}, "not on the path of a question"
    assert all((ROOT / "gapless" / name).is_file() for name in re.findall(r"\w+\.py", picture))
    assert max(map(len, picture.splitlines())) <= 120


def test_files_that_stand_alone_are_all_named() -> None:
    (named,) = re.findall(r"^Beside the rooms.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    there = {path.name for path in (ROOT / "gapless").glob("*.py")} - {"__init__.py", "__main__.py"}
    assert set(re.findall(r"`(\w+\.py)`", named)) == there


def test_every_path_of_the_page_is_there() -> None:
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE):
        assert (ROOT / path).is_file() or (ROOT / "gapless" / path).is_file(), path
    for room in re.findall(r"`(\w+/\w+)/`", PAGE):
        assert (ROOT / room).is_dir() or (ROOT / "encodings" / room).is_dir(), room
