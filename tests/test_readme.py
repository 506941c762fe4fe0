"""The README: its figures, its picture, and the first commands that a newcomer types, word for word."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, Block, blocks, commands, run_commands

from gapless.system import system_names
from gapless.units import format_seconds

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIRST = """\
pip install ".[plot]"
gapless solve fsdp --profile llama-8b --ranks 64 --ranks-per-node 8 --bandwidth 50Gbps --inner-bandwidth 300GB/s \
--memory 17GB -o plan.json
gapless report plan.json -o plan.html
gapless export plan.json --format fsdp2 -o wrapping.json
"""
"""What the README has a newcomer type first: one install, three commands."""

README = (ROOT / "README.md").read_text(encoding="utf-8")
TACCL = (ROOT / "docs" / "taccl.md").read_text(encoding="utf-8")
MOST_LINES = 110


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_the_picture_is_what_its_commands_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = (ROOT / "docs" / "images" / "first.svg").read_text(encoding="utf-8")
    solves = [words for block in blocks(README) for words in commands(block) if words[1:3] == ["solve", "fsdp"]]
    monkeypatch.chdir(tmp_path)
    answers = {}
    for words in solves:
        run_commands(Block("", "sh", f"{shlex.join(words)} --quiet"))
        plan = json.loads((tmp_path / words[-1]).read_text(encoding="utf-8"))
        method, claim = plan["details"]["method"], plan["claim"]
        answers[words[-1]] = claim["objective_s"]
        assert f">{method}: " in drawn
        assert f": {format_seconds(claim['objective_s'])}, gap {100 * claim['gap']:.2f} %" in drawn
        assert f"{1e3 * claim['objective_s']:,.0f} ms" in README
    assert f"no plan is below {1e3 * claim['bound_s']:,.0f} ms" in README
    assert answers["plan.json"] < answers["default.json"]


def test_each_system_has_a_row_that_says_how_its_figure_was_found() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| [")]
    pages = {page for row in rows for page in re.findall(r"^\| \[[^]]*\]\(docs/([\w-]+)\.md\)", row)}
    assert set(system_names()) - pages == {"chai"}, "which the row of caches stands for"
    for row in rows:
        assert len(re.findall(r"`gapless bench [\w-]+(?: --hour)?`", row)) == 1, row
        assert re.search(r"\*(predicted|measured)\*", row), row


def test_what_ci_types_first_is_what_stands_here() -> None:
    first, tests = runpy.run_path(str(ROOT / ".ci" / "readme"))["blocks"]()
    assert first == FIRST
    assert tests == 'pip install -e ".[test]" && pytest -n auto\n'
    steps = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if line[:1] not in "# "]
    assert steps[4].startswith(".ci/readme "), "after `set`, `cd` and what holds its log, before anything else"
    assert steps[-3:] == [
        'wait "$readme" && passed=yes || passed=no', 'cat "$work/readme.log"', '[ "$passed" = yes ]',
    ]  # fmt: skip


def test_what_is_installed_first_is_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r'pip install "\.\[(\w+)\]"', README)) <= set(project["optional-dependencies"])


def answer_of(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    run_commands(Block("", "sh", f"{command} --json --quiet"))
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


SOLVE = "gapless solve taccl --topology ndv2 --nodes 2 --collective allgather --size 1MB"


def table() -> dict[str, list[str]]:
    """The rows of the table of plans on the page of TACCL, by their first cell."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TACCL.splitlines() if line.startswith("| ")]
    heads = next(number for number, row in enumerate(rows) if row[0] == "sketch" and len(row) == 8)
    found = {row[0]: row for row in rows[heads : heads + 5]}
    title = ["plan", "bound, any plan", "gap, any plan", "bound, this sketch's chunks"]
    assert found.pop("sketch")[2:6] == title
    return found


def test_the_table_has_a_command_for_each_row() -> None:
    commands_of_table = [" ".join(words) for block in blocks(TACCL) for words in commands(block) if "solve" in words]
    for sketch in set(table()) - {"none on NDv2"}:
        assert any(f"--sketch {sketch} " in command and f"-o {sketch}.json" in command for command in commands_of_table)
    assert any("--sketch" not in command and "-o ndv2.json" in command for command in commands_of_table)


@pytest.mark.thorough("none on NDv2")
@pytest.mark.parametrize("row", ["none on NDv2", "ndv2-sk-1"])
def test_a_command_finds_what_the_table_says(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sketch = [] if row == "none on NDv2" else [f"--sketch {row}"]
    answer, cells = answer_of(" ".join([SOLVE, *sketch]), capsys), table()[row]
    assert cells[2:4] == [f"{1e6 * answer[name]:,.1f} us" for name in ("makespan_s", "bound_s")]
    assert cells[4] == f"{100 * answer['gap']:.1f} %"
    classes = {one["class"]: one for one in answer["bounds"]}
    assert classes["question"]["bound"] == answer["bound_s"]
    if sketch:
        assert cells[5] == f"{1e6 * classes['chunks']['bound']:,.1f} us"
        assert f"`{answer['wider']['asked']}: {1e6 * answer['wider']['objective_s']:,.1f} us`" in TACCL
