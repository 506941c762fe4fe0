"""The golden set's plans are what they were: a change of the house changes no answer (`support/golden.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import RECORD, golden_questions, golden_row, name_of
from questions import write_inputs

QUICK = ("ring:5", "cache profile", "chai", "ranks", "sharding instance=drawn:nodes=12")
"""In the default run, those whose names have one of these."""

ALL = [(system, question) for system, asked in golden_questions().items() for question in asked]
KNOWN = json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_record_is_of_these_questions() -> None:
    assert sorted(KNOWN) == sorted(name_of(*one) for one in ALL)
    assert sum(name.startswith("taccl") for name in KNOWN) == 64


@pytest.mark.thorough(but=QUICK)
@pytest.mark.parametrize(("system", "question"), ALL, ids=[name_of(*one) for one in ALL])
def test_a_plan_is_what_it_was(
    system: str, question: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    assert golden_row(system, question, tmp_path) == KNOWN[name_of(system, question)]
