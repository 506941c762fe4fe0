"""Options of the benchmarks that solve, and the tables that they fill: `--limit-s S`, `--tables FOLDER`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from result_tables import ResultTables

_TABLES = pytest.StashKey[ResultTables]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gapless")
    group.addoption("--limit-s", type=float, help="seconds for each solve, instead of each benchmark's own limit")
    group.addoption("--cases", type=int, default=20, help="random models of each kind, where false proofs are sought")
    group.addoption("--large", action="store_true", help="also the cases that take minutes")
    group.addoption("--programs", action="store_true", help="sweeps lower their choices to programs, too: slow")
    group.addoption("--tables", type=Path, help="folder for the tables as JSON and Markdown; its rows are kept")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLES] = ResultTables(config.getoption("--tables"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print all tables, whether output is captured or not."""
    text = str(config.stash[_TABLES])
    if text:
        terminalreporter.write_line("\n" + text)


@pytest.fixture(scope="session")
def tables(pytestconfig: pytest.Config) -> ResultTables:
    """The tables of this run."""
    return pytestconfig.stash[_TABLES]


@pytest.fixture
def keep_tables(tables: ResultTables):
    """Writes the tables after each test, so that a run that is broken off leaves what it found."""
    yield
    tables.write()


@pytest.fixture
def limit_s(pytestconfig: pytest.Config) -> Callable[[float], float]:
    """The time limit that was asked for, or else the benchmark's own."""
    asked = pytestconfig.getoption("--limit-s")
    return lambda own: own if asked is None else asked
