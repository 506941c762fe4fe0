"""Progress: a live line on a terminal, plain lines into a pipe, nothing with --quiet."""

from __future__ import annotations

import io
import sys

import pytest
from rich import console

from gapless.cli import progress as module
from gapless.cli.progress import progress_on_stderr
from gapless.options import Progress

NEWS = Progress(1.5, 2e-3, 1e-3, "routing")


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_quiet_tells_nothing() -> None:
    with progress_on_stderr(quiet=True) as tell:
        assert tell is None


def test_a_pipe_gets_a_line_for_every_news(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(quiet=False) as tell:
        assert tell is not None
        for news in (NEWS, Progress(1.6, 2e-3, 1e-3, "routing"), Progress(2.0, 1e-3, 1e-3, "8 GiB", done=2, total=5)):
            tell(news)
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.split() == ["1.50", "s", "routing", "incumbent", "2", "ms", "bound", "1", "ms", "gap", "50.00", "%"]
    assert second.split()[:5] == ["2.00", "s", "2/5", "8", "GiB"]


def test_a_terminal_gets_one_line_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    with module._live_line(console.Console(file=terminal, force_terminal=True, width=120)) as tell:  # noqa: SLF001
        tell(NEWS)
        tell(Progress(2.0, 1e-3, 1e-3, "8 GiB", done=2, total=5))
    text = terminal.getvalue()
    assert "2/5  8 GiB" in text
    assert text.endswith("\x1b[2K")  # the line is erased


def test_a_terminal_without_rich_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress_on_stderr(quiet=False) as tell:
        assert tell is not None
        tell(NEWS)
    assert "routing" in capsys.readouterr().err
