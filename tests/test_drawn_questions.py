"""Questions full of zeros: every plan replays clean, and what is refused is refused in one line."""

from __future__ import annotations

from collections import Counter

import pytest
from drawn_questions import DRAWN, Question, drawn_questions
from examples import examples
from hypothesis import HealthCheck, given

from gapless.entry import entry
from gapless.errors import InputError
from gapless.solution import Status


def outcome(system: str, question: Question) -> str:
    """What comes of a question: a status, or `refused`."""
    refusal = ""
    try:
        result = entry(system).solve(**question, threads=1)
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        return "refused"
    assert result.status is not Status.INVALID, result.report
    assert result.valid == (result.schedule is not None)
    return result.status.value


@pytest.mark.parametrize("system", DRAWN)
def test_no_plan_is_invalid(system: str) -> None:
    """With --thorough, of 2,000 questions; counts by outcome are printed with -s."""
    found: Counter[str] = Counter()

    @examples(250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(question=drawn_questions(system))
    def look(question: Question) -> None:
        found[outcome(system, question)] += 1

    look()
    print(system, dict(found))
    assert found["optimal"] + found["feasible"] >= 0.3 * found.total()
