"""Options of the benchmarks, and the tables that they fill: `--limit-s S`, `--tables FOLDER`, `--shortest`.

With `--shortest` each benchmark runs once, in its first case, or in the one that `@pytest.mark.shortest("word")` names
by a word in its id, with the smaller one of the sizes that it asks `sized` for. Answers are asserted, nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from result_tables import ResultTables

from gapless.encodings.bagpipe.ids import loops as fast

Size = TypeVar("Size")

_TABLES = pytest.StashKey[ResultTables]()
SHORT_LIMIT_S = 6.0
"""The most seconds of each solve with `--shortest`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gapless")
    group.addoption("--limit-s", type=float, help="seconds for each solve, instead of each benchmark's own limit")
    group.addoption(
        "--shortest", action="store_true", help="each benchmark once, as short as it gets, and nothing timed"
    )
    group.addoption("--cases", type=int, default=20, help="random models of each kind, where false proofs are sought")
    group.addoption("--large", action="store_true", help="also the cases that take minutes")
    group.addoption("--programs", action="store_true", help="sweeps lower their choices to programs, too: slow")
    group.addoption("--tables", type=Path, help="folder for the tables as JSON and Markdown; its rows are kept")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLES] = ResultTables(config.getoption("--tables"))
    config.addinivalue_line("markers", "shortest(word): the case that --shortest runs, if it isn't the first")
    if config.getoption("--shortest"):
        config.option.benchmark_disable = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--shortest"):
        chosen: dict[str, pytest.Item] = {}
        for item in filter(_may_be_shortest, items):
            chosen.setdefault(item.nodeid.partition("[")[0], item)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen.values()])
        items[:] = chosen.values()


def _may_be_shortest(item: pytest.Item) -> bool:
    return all(mark.args[0] in item.name for mark in item.iter_markers("shortest"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write all tables, and print them, whether output is captured or not."""
    config.stash[_TABLES].write()
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


@pytest.fixture(scope="session")
def sized(pytestconfig: pytest.Config) -> Callable[[Size, Size], Size]:
    """A size: the benchmark's own, or the second with `--shortest`."""
    is_short = pytestconfig.getoption("--shortest")
    return lambda own, short: short if is_short else own


@pytest.fixture(scope="session")  # before anything is trained for it
def takes_minutes(pytestconfig: pytest.Config) -> None:
    """For a benchmark that says nothing in seconds: a training, a measurement."""
    if pytestconfig.getoption("--shortest"):
        pytest.skip("a training or a measurement, which says nothing when it is short")


@pytest.fixture
def limit_s(pytestconfig: pytest.Config) -> Callable[[float], float]:
    """The time limit that was asked for, or else the benchmark's own."""
    asked = pytestconfig.getoption("--limit-s")
    most_s = SHORT_LIMIT_S if pytestconfig.getoption("--shortest") else float("inf")
    return lambda own: min(own, most_s) if asked is None else asked


@pytest.fixture(params=["compiled", "arrays"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether Bagpipe's loops are compiled."""
    if request.param == "compiled":
        pytest.importorskip("numba", reason="needs the extra `fast`")
    else:
        monkeypatch.setattr(fast, "_is_installed", lambda: False)
    return str(request.param)
