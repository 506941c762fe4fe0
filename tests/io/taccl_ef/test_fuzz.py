"""Random damage to the text of a file: it is judged or refused in one line, without a traceback and without a hang."""

from __future__ import annotations

import random
import signal

import pytest
from damaged_texts import damaged, judged_in_s
from hand_made_collectives import CASES, taker

from gapless.io.taccl_ef import lower, xml_text

COUNT = 40
"""Damaged texts of each program; tests/benchmarks has thousands."""
PATIENCE_S = 60


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_text_is_judged_or_refused_in_one_line(name):
    collective, schedule = CASES[name]()
    text = xml_text(lower(schedule, collective, placement="both", runtime=taker(collective.name)))
    old = signal.signal(signal.SIGALRM, _give_up)
    try:
        for seed in range(COUNT):
            signal.alarm(PATIENCE_S)
            _, said = judged_in_s(damaged(text, random.Random(seed)))
            assert said
            assert "\n" not in said
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _give_up(*_):
    raise TimeoutError(f"a damaged text was not judged within {PATIENCE_S} s")
