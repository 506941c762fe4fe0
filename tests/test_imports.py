"""Imports run one way, lazy ones too: no circle anywhere, and every part of the house knows only what lies below it.

An import inside a function or under TYPE_CHECKING counts as one at the top. The one exception is the package `gapless`
itself, in which everything lies: its public names are loaded on first use, and named for type checkers only.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("solvers", "encodings", "topologies", "profiles")

STILL_IN_CIRCLES = ()
"""Modules that are known to import each other; to be emptied."""
STILL_AGAINST_THE_DIRECTION = ()
"""Modules that are known to import what they must not; to be emptied."""

FORBIDDEN = {
    "gapless": ("gapless.cli",),
    "gapless.checker": ("gapless.encodings", "gapless.solvers"),
    "gapless.solvers": ("gapless.encodings", "gapless.recipe"),
    "gapless.encodings": ("gapless.recipe", "highspy", "ortools", "pulp"),
    "gapless.sweeps": ("gapless.encodings",),
    "gapless.topologies": ("gapless.encodings", "gapless.solvers", "gapless.checker", "gapless.recipe"),
    "gapless.profiles": ("gapless.encodings", "gapless.solvers", "gapless.recipe"),
}
"""What modules below each package must not import; only cli itself and `gapless.__main__` import cli."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the house and its file."""
    found = {}
    for top in ("gapless", *MAPPED):
        for folder, _, files in os.walk(ROOT / top):  # follows no links
            for file in files:
                if file.endswith(".py"):
                    parts = list((Path(folder) / file).relative_to(ROOT).with_suffix("").parts)
                    name = ".".join(parts if top == "gapless" else ["gapless", *parts]).removesuffix(".__init__")
                    found[name] = Path(folder) / file
    return found


@cache
def import_statements() -> list[tuple[str, ast.Import | ast.ImportFrom]]:
    """Every import anywhere in a module's text, with the module's name."""
    return [
        (name, node)
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


@cache
def imports() -> nx.DiGraph[str]:
    """An edge from each module to all that it imports anywhere in its text; modules of others by their full name."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(modules())
    for name, node in import_statements():
        targets = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [module if module in modules() else node.module for module in inside]
        graph.add_edges_from((name, target) for target in targets if target != name)
    return graph


def lies_in(name: str, package: str) -> bool:
    """Whether a module is a package or lies in it."""
    return name == package or name.startswith(f"{package}.")


def against_the_direction() -> list[tuple[str, str]]:
    """Imports that no module may make."""
    return sorted(
        (name, target)
        for name, target in imports().edges
        for package, forbidden in FORBIDDEN.items()
        if lies_in(name, package) and any(lies_in(target, other) for other in forbidden)
        if not (lies_in(target, "gapless.cli") and (lies_in(name, "gapless.cli") or name == "gapless.__main__"))
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    inner = imports().subgraph(set(modules()) - {"gapless"})
    circles = [sorted(circle) for circle in nx.strongly_connected_components(inner) if len(circle) > 1]
    assert not [circle for circle in circles if not set(circle) <= set(STILL_IN_CIRCLES)]


def test_no_module_imports_against_the_direction() -> None:
    assert not [found for found in against_the_direction() if found[0] not in STILL_AGAINST_THE_DIRECTION]


def test_relative_imports_are_not_used() -> None:
    for name, node in import_statements():
        assert not (isinstance(node, ast.ImportFrom) and node.level), name


def test_no_test_imports_the_package_of_tests() -> None:
    """`tests/support` is on the path; a process that a test starts under plain `pytest` knows no package `tests`."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if lies_in(name, "tests")], path


@pytest.mark.parametrize("module", ["gapless", "gapless.encodings.taccl.chunked", "gapless.recipe"])
def test_import_loads_no_solver(module: str) -> None:
    assert not loaded_by(f"import {module}") & {"highspy", "ortools", "pulp"}


def test_import_alone_loads_no_heavy_library() -> None:
    heavy = {"numpy", "networkx", "highspy", "ortools", "pulp"}
    assert not loaded_by("import gapless") & heavy
    assert not loaded_by("from gapless.cli.commands import build_parser; build_parser()") & heavy  # all --help there is


def test_a_command_hears_signals_before_it_loads_anything() -> None:
    code = "import sys; known = set(sys.modules); import gapless.cli.main; print(*set(sys.modules) - known)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": "."}
    )
    loaded = set(run.stdout.split()) - set(sys.builtin_module_names)
    assert loaded == {"gapless", "gapless.cli", "gapless.cli.main", "gapless.cli.signals"}


def loaded_by(statements: str) -> set[str]:
    """The top-level names of the modules that a fresh interpreter holds once it has run these statements."""
    code = f"import sys; {statements}; print(*{{name.split('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": "."})
    return set(run.stdout.split())
