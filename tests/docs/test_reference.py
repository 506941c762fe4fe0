"""The reference pages have every command, every option and every public name, since they are made from them."""

from __future__ import annotations

import argparse
import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gapless
from gapless.cli.commands import build_parser
from gapless.cli.parser import Parser
from gapless.cli.reference import commands_reference

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^::: ([\w.]+)$", PYTHON, re.MULTILINE)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Those of all subcommands."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                yield inner
                yield from parsers(inner)


def test_every_command_has_a_heading_and_every_option_a_row_below_it() -> None:
    parser = build_parser()
    text = commands_reference(parser)
    sections = dict(re.findall(r"^#{2,4} (gapless[^\n]*)\n(.*?)(?=^#{2,4} gapless|\Z)", text, re.MULTILINE | re.DOTALL))
    commands = list(parsers(parser))
    assert len(commands) > 30
    assert list(sections) == [command.prog for command in commands]
    for command in commands:
        for name in command._option_string_actions:  # noqa: SLF001
            if name not in ("-h", "--help"):
                assert re.search(rf"^\| `[^`]*{re.escape(name)}\b", sections[command.prog], re.MULTILINE), name


def test_what_markdown_would_take_for_its_own_stands_as_it_is() -> None:
    parser = Parser(prog="gapless")
    inner = parser.add_subparsers().add_parser("cut", help="a_b <c> at *d*", epilog="example:\n  gapless cut")
    inner.add_argument("--at", metavar="A|B", required=True, help="50 %% of `e_f`\nor [g]")
    inner.add_argument("--hidden", help=argparse.SUPPRESS)
    head, prose, table, example = commands_reference(parser).split("\n\n")
    assert (head, prose) == ("## gapless cut", r"a\_b &lt;c&gt; at \*d\*")
    assert table.splitlines()[2:] == [r"| `--at A|B` | 50 % of `e_f` or \[g\]; must be given |"]
    assert example == "```text\nexample:\n  gapless cut\n```"


def test_the_site_gets_the_reference_where_a_page_has_the_mark() -> None:
    spec = importlib.util.spec_from_file_location("gapless_site", ROOT / ".ci" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert "## gapless solve" in hook.on_page_markdown(page)
    assert hook.on_page_markdown("# Another page") == "# Another page"


def test_every_public_name_has_an_entry() -> None:
    missing = {name for name in gapless.__all__ if not any(entry.endswith(f".{name}") for entry in ENTRIES)}
    assert not missing


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_is_there_and_says_what_it_is(entry: str) -> None:
    assert pkgutil.resolve_name(entry).__doc__
