"""A call of the command line in the test's own process."""

from __future__ import annotations

import pytest

from gapless.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a call."""
    try:
        code = main(arguments)
    except SystemExit as stop:  # argparse
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def exit_code(*words: str) -> int:
    """How `gapless` with these words ends, also where argparse ends it."""
    from gapless.cli.main import main

    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
