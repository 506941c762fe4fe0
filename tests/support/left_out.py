"""What a run of the tests leaves out, and the one line that says so: what takes long, and what needs an extra.

A test that takes long, or that needs an extra which isn't installed, is deselected: a skipped test is one that should
have run here, and can't. A file that begins with `pytest.importorskip("library")` isn't collected without that library.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from extras import extra_of, is_here

__all__ = ["LeftOut"]

_NEEDED = re.compile(r'^(?:\w+ = )?pytest\.importorskip\("([\w.]+)"', re.MULTILINE)
_LONG = "thorough"
_OTHERS = "no extra"


class LeftOut:
    """The hooks, and how many tests and files they left out, by the reason: `thorough`, or an extra's name."""

    def __init__(self, config: pytest.Config) -> None:
        self.tests: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self._named = {(config.invocation_params.dir / word).resolve() for word in config.args}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leaves out files of extras that are missing, but for one that the command names: that one says why."""
        if collection_path.suffix != ".py" or collection_path.resolve() in self._named:
            return None
        needed = map(extra_of, _NEEDED.findall(collection_path.read_text(encoding="utf-8")))
        if missing := next((extra for extra in needed if extra and not is_here(extra)), None):
            self.files[missing] += 1
            return True
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselects tests of extras that are missing, and without `--thorough` those that take long."""
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            missing = [name for mark in item.iter_markers("extra") for name in mark.args if not is_here(name)]
            reasons = missing or ([_LONG] if takes_long(item) and not config.getoption("--thorough") else [])
            if config.getoption("--only-extras", False) and not _needs_an_extra(item):
                reasons = [_OTHERS]
            self.tests.update(reasons[:1])
            (left_out if reasons else kept).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A process of pytest-xdist hands its counts over: all of them collect the same."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left out"] = (dict(self.tests), dict(self.files))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the counts of a process of pytest-xdist."""
        tests, files = getattr(node, "workeroutput", {}).get("left out", ({}, {}))
        self.tests, self.files = Counter(tests), Counter(files)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line: how many are left out, and what runs them."""
        if line := self.line():
            terminalreporter.write_line(line)

    def line(self) -> str:
        """What the summary says; empty where nothing is left out."""
        parts = (
            [f"{_counted(self.tests[_LONG], 'test')} of what takes long (pytest --thorough)"]
            if self.tests[_LONG]
            else []
        )
        if self.tests[_OTHERS]:
            parts.append(f"{_counted(self.tests[_OTHERS], 'test')} that need no extra (pytest without --only-extras)")
        if extras := sorted({*self.tests, *self.files} - {_LONG, _OTHERS}):
            counts = []
            for extra in extras:
                kinds = ((self.files, "file"), (self.tests, "test"))
                counted = [_counted(count[extra], what) for count, what in kinds if count[extra]]
                counts.append(f"{extra} {' and '.join(counted)}")
            parts.append(f'those of extras: {", ".join(counts)} (pip install -e ".[{",".join(extras)}]")')
        return f"left out: {'; '.join(parts)}" if parts else ""


def _needs_an_extra(item: pytest.Item) -> bool:
    """Whether a test, or its file, is left out where an extra isn't installed."""
    libraries = _NEEDED.findall(item.path.read_text(encoding="utf-8"))
    return any(map(extra_of, libraries)) or next(item.iter_markers("extra"), None) is not None


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def takes_long(item: pytest.Item) -> bool:
    """Whether a mark `thorough` is for the test, or for this case of it: words are looked for in the case's id."""
    case = "".join(item.name.partition("[")[1:])
    for mark in item.iter_markers("thorough"):
        but = mark.kwargs.get("but", ())
        is_named = any(word in case for word in mark.args or but)
        if is_named if mark.args else not is_named:
            return True
    return False
