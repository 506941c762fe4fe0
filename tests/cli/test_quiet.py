"""Every command takes `--quiet`; those that write a file or judge a plan print nothing then."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from calls import run
from commands import commands
from small_plans import small_plan

COMMANDS = {
    path: parser
    for path, parser in commands().items()
    if not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)  # noqa: SLF001
}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_takes_quiet(path: tuple[str, ...]) -> None:
    (quiet,) = [action for action in COMMANDS[path]._actions if "--quiet" in action.option_strings]  # noqa: SLF001
    assert (quiet.nargs, quiet.default) == (0, False)


@pytest.mark.parametrize(
    "words",
    [
        "check plan.json",
        "show plan.json --events 3",
        "export plan.json --format perfetto -o trace.json",
        "export plan.json --format taccl-ef -o plan.xml",
        "report plan.json --no-pictures -o report.html",
        "doctor --for check",
        "bench --list",
    ],
)
def test_what_is_quiet_prints_nothing(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small_plan("taccl", tmp_path)
    assert run(capsys, *words.split())[1]
    assert run(capsys, *words.split(), "--quiet") == (0, "", "")
