"""`gapless bench`: what it lists, runs, flags and refuses."""

from __future__ import annotations

import json

import pytest
from calls import exit_code
from extras import needs_torch

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
    assert "1 rows ran, all as printed; 1 more with --hour\n" in out
    assert "slow" not in out
    assert exit_code("bench", "slow") == 0
    assert capsys.readouterr().out == "0 rows ran; 1 more with --hour\n"
    assert exit_code("bench", "--hour") == 0
    out = capsys.readouterr().out
    assert "the benchmark's answers hold" in out
    assert out.endswith("2 rows ran, all as printed\n")


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


ON_GPU = Table("on-a-gpu", "a third", "docs/pytorch.md", (Row("c", "pytest c", ()),), "never run", needs_gpu=True)


@needs_torch
def test_what_needs_a_gpu_runs_where_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gapless.torch import devices

    monkeypatch.setattr(evidence, "evidence", lambda: (TABLE, ON_GPU))
    monkeypatch.setattr(evidence, "rerun", _found((1.0,)))
    monkeypatch.setattr(devices, "gpu_count", lambda: 1)
    assert exit_code("bench", "--hour") == 0
    assert "on-a-gpu" not in capsys.readouterr().out
    assert exit_code("bench", "--gpu") == 0
    out = capsys.readouterr().out
    assert "on-a-gpu" in out
    assert "made-up" not in out


@needs_torch
def test_without_a_gpu_one_line_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from gapless.torch import devices

    monkeypatch.setattr(devices, "gpu_count", lambda: 0)
    assert exit_code("bench", "--gpu") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "PyTorch must see a GPU" in line
