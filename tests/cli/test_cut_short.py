"""A plan whose quality the clock has decided says so, and one that ended by itself doesn't."""

from __future__ import annotations

import pytest
from calls import run

from gapless.cli.running import CUT_SHORT

QUESTIONS = {
    "chai": ("--profile", "synthetic:layers=8,heads=16", "--kv-saving", "0.3"),
    "oktopk": ("--indices", "clustered:elements=20000,steps=2", "--ranks", "8"),
    "pipeline": ("--profile", "gpt-2.5b", "--ranks", "4", "--micro-batches", "4", "--placement", "looped"),
}


@pytest.mark.parametrize("system", QUESTIONS)
def test_a_limit_that_cuts_a_solve_short_ends_with_a_plan_and_a_line(
    system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "solve", system, *QUESTIONS[system], "--time-limit", "1e-6")
    assert code == 0
    assert CUT_SHORT in err


def test_a_proven_plan_was_not_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "solve", "chai", *QUESTIONS["chai"])
    assert code == 0
    assert CUT_SHORT not in err
