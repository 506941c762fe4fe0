"""The reference pages have every command, every option and every public name, since they are made from them."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from published import PUBLISHED

from gapless.cli.commands import build_parser
from gapless.cli.parser import Parser
from gapless.installation.reference import commands_reference, systems_reference
from gapless.question.parameters import parameter_rows
from gapless.system import find_system, system_names

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^::: ([\w.]+)$", PYTHON, re.MULTILINE)

MODULES = (
    "", "checker", "encodings.*", "schemas", "ir.simulate", "sweeps", "sweeps.measured", "topologies.files",
    "topologies.names", "topologies.topology", "torch", "torch.capture", "torch.collectives", "torch.ddp",
    "torch.embeddings", "torch.pipeline", "torch.run", "torch.sparse", "plot",
)  # fmt: skip
"""Modules for users, whose public names are all in the reference."""

NOT_ENTRIES = {"METHODS", "OBJECTIVES", "Objective"}
"""Public names that are plain values or types of them."""


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
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    page = SimpleNamespace(file=SimpleNamespace(generated_by=None))
    assert "## gapless solve" in hook.on_page_markdown(commands, page=page)
    assert "### gapless.taccl" in hook.on_page_markdown(PYTHON, page=page)
    assert hook.on_page_markdown("# Another page", page=page) == "# Another page"


def test_every_argument_has_help_and_a_default_that_it_names() -> None:
    for parser in parsers(build_parser()):
        for action in parser._actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:  # noqa: SLF001
                continue
            where = f"{parser.prog} {action.option_strings or action.dest}"
            assert action.help, where
            if action.nargs != 0 and action.default not in (None, argparse.SUPPRESS, (), []):
                assert "default" in action.help, where


def test_every_system_has_its_arguments_and_its_parameters() -> None:
    sections = systems_reference(map(find_system, system_names())).split("### gapless.")[1:]
    assert [section.split()[0] for section in sections] == list(system_names())
    for section, system in zip(sections, map(find_system, system_names()), strict=True):
        rows = [] if system.parameters is None else parameter_rows(system.parameters())
        for name in [*(field.name for field in system.fields), *(row["name"] for row in rows)]:
            assert f"\n| `{name}` | " in section


def source_of(module: str) -> Path | None:
    """The file of a module of gapless, found without importing it."""
    names = module.split(".")[1:]
    top = ROOT if names[:1] and (ROOT / names[0]).is_dir() else ROOT / "gapless"
    found = (top.joinpath(*names).with_suffix(".py"), top.joinpath(*names, "__init__.py"))
    return next((path for path in found if path.is_file()), None)


def public_modules() -> Iterator[str]:
    for name in MODULES:
        if name.endswith("*"):
            yield from (f"gapless.encodings.{system}" for system in system_names())
        else:
            yield f"gapless.{name}".rstrip(".")


@pytest.mark.parametrize("module", list(public_modules()))
def test_every_public_name_has_an_entry(module: str) -> None:
    source = source_of(module)
    assert source is not None
    lists = re.findall(r"^__all__ = \[(.*?)\]", source.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    is_new = module.startswith("gapless.encodings.") and module.rpartition(".")[2] not in PUBLISHED
    assert len(lists) == 1 or is_new
    home = ".".join(module.split(".")[:3])  # links of `gapless.topologies.topology` are defined beside it
    entries = {entry.rpartition(".")[2] for entry in ENTRIES if entry.startswith(f"{home.removesuffix('.topology')}.")}
    for name in re.findall(r'"(\w+)"', "".join(lists)):
        assert name in entries or name in NOT_ENTRIES or f"`{name}`" in PYTHON, f"{module}.{name}"


@cache
def parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def definition(entry: str) -> ast.ClassDef | ast.FunctionDef:
    """Where an entry is defined."""
    module, _, name = entry.rpartition(".")
    source = source_of(module)
    assert source is not None, f"{entry}: there is no such module"
    kinds = (ast.ClassDef, ast.FunctionDef)
    found = [node for node in parsed(source).body if isinstance(node, kinds) and node.name == name]
    assert found, f"{entry}: isn't defined there"
    return found[-1]


def raised(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether making the object, or calling the function, raises `InputError` in its own lines."""
    made = ("__init__", "__post_init__")
    bodies = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name in made]
    return any(
        isinstance(each, ast.Raise) and each.exc is not None and "InputError" in ast.unparse(each.exc)
        for body in (bodies if isinstance(node, ast.ClassDef) else [node])
        for each in ast.walk(body)
    )


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_says_what_it_is_what_its_arrays_are_and_that_it_raises(entry: str) -> None:
    node = definition(entry)
    text = ast.get_docstring(node) or ""
    assert len(text.split()) >= 4, "too short for a stranger"
    if raised(node):
        assert re.search("[Rr]aise", text), "raises InputError, which the docstring doesn't say"
    if isinstance(node, ast.ClassDef):
        for field, below in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and "NDArray" in ast.unparse(field.annotation):
                name = ast.unparse(field.target)
                is_said = isinstance(below, ast.Expr) or re.search(rf"`{name}\b", text)
                assert is_said or name.startswith("_"), f"{name}: an array whose shape or meaning nothing says"
