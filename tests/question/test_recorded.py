"""Questions in plain words: what is kept of every system's questions asks the same again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hand_training import chain
from questions import QUESTIONS, Question, write_inputs

import gapless
from gapless.question.fields import SOLVING
from gapless.question.recorded import kept_question, said_of
from gapless.system import find_system

HOW = {field.name for field in SOLVING}


def asked(system: str, question: Question) -> object:
    return find_system(system).ask({name: value for name, value in question.items() if name not in HOW})


@pytest.mark.parametrize("system", QUESTIONS)
def test_what_a_plan_keeps_asks_the_same_question_again(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    for question in QUESTIONS[system]:
        kept = kept_question(asked(system, question))
        assert kept is not None, question
        again = find_system(system).ask(json.loads(json.dumps(kept["fields"])))
        assert kept_question(again) == kept, question


def test_defaults_are_not_kept() -> None:
    problem = gapless.taccl.problem("ring:4", size="1MB", collective="allgather", method="auto")
    assert said_of(problem) == {"topology": "ring:4", "size": 1_000_000, "collective": "allgather"}


def test_a_file_to_go_on_with_is_no_part_of_the_question() -> None:
    values = {"trace": "zipf", "table_rows": "40,300", "trainers": "2", "batch_size": "8", "resume": "half.npz"}
    said = said_of(find_system("bagpipe").ask(values))
    assert said is not None
    assert "resume" not in said


def test_an_object_of_python_has_no_words() -> None:
    assert kept_question(gapless.monet.problem(chain(4), budget="1x")) is None


def test_a_named_file_is_a_part_of_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    problem = gapless.monet.problem("chain.json", budget="100B")
    first = kept_question(problem)
    text = Path("chain.json").read_text(encoding="utf-8")
    Path("chain.json").write_text(text + "\n", encoding="utf-8")
    second = kept_question(problem)
    assert first is not None
    assert second is not None
    assert first["fields"] == second["fields"]
    assert first["sha256"] != second["sha256"]
