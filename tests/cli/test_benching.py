"""`gapless bench`: what it lists, runs, flags and refuses."""

from __future__ import annotations

import json

import pytest
from calls import exit_code

from gapless.installation import evidence
from gapless.installation.evidence import Figure, Found, Row, Table

TABLE = Table("made-up", "a title", "README.md", (Row("a", "gapless a", (Figure("x_s", "1.0 s"),)),), "today")
SLOW = Table("slow", "another", "docs/taccl.md", (Row("b", "pytest b", (), "hour"),), "today", "what nobody has")


@pytest.fixture
def _two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "evidence", lambda: (TABLE, SLOW))


def _found(values: tuple[float, ...]):
    return lambda rows, stop: [Found(row, values[: len(row.figures)]) for row in rows]


@pytest.mark.usefixtures("_two_tables")
def test_the_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("bench", "--list") == 0
    out = capsys.readouterr().out
    assert "made-up: a title (README.md; today)" in out
    assert "needs what nobody has" in out


@pytest.mark.usefixtures("_two_tables")
def test_a_minute_leaves_long_rows_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(evidence, "rerun", _found((1.04,)))
    assert exit_code("bench", "--minute") == 0
    out = capsys.readouterr().out
    assert "1 rows ran, all as printed" in out
    assert "slow" not in out
    assert exit_code("bench", "--hour") == 0
    assert "the benchmark's answers hold" in capsys.readouterr().out


@pytest.mark.usefixtures("_two_tables")
def test_what_differs_is_flagged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(evidence, "rerun", _found((1.2,)))
    assert exit_code("bench") == 1
    out = capsys.readouterr().out
    assert "found        1.2 s  DIFFERS" in out
    assert exit_code("bench", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["differing"] == 1
    assert data["rows"][0]["figures"][0]["found"] == 1.2


@pytest.mark.usefixtures("_two_tables")
def test_an_unknown_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("bench", "made-op") == 2
    assert "there is none called 'made-op'; did you mean 'made-up'?" in capsys.readouterr().err
