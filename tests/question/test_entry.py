"""One way in: Python and the command line give the same plan for the same question, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from questions import QUESTIONS, Question, as_words, content, write_inputs

import gapless
from gapless.cli.main import main
from gapless.errors import InputError
from gapless.question.fields import Flag
from gapless.system import find_system

LONG = (
    *("path_slack", "ndv2", "hypercube", "allreduce", "1MB chunks=2"),
    *("budget=0.5x", "budget=20 ", "vgg16", "resnet101", "gpt", "dgc", "powersgd", "method=milp"),
    *("looped", "zb-h2", "f=1.5", "recomputation"),
)
"""What is in the ids of questions that take more than about half a second twice."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("questions")
    write_inputs(made)
    return made


@pytest.mark.thorough(
    "budget=0.5x",
    "budget=20 ",
    "path_slack",
    "ndv2",
    "hypercube",
    "allreduce",
    "method=milp",
    "looped",
    "zb-h2",
    "1MB chunks=2",
    "gpt",
    "dgc",
    "powersgd",
    "resnet101",
    "vgg16",
    "f=1.5",
    "recomputation",
)
@pytest.mark.parametrize(
    ("system", "question"),
    [(system, question) for system, questions in QUESTIONS.items() for question in questions],
    ids=lambda value: value if isinstance(value, str) else " ".join(f"{k}={v}" for k, v in value.items()),
)
def test_python_and_the_command_line_give_the_same_plan(
    system: str, question: Question, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    ending = find_system(system).ending
    shell, python = folder / f"shell{ending}", folder / f"python{ending}"
    shell.unlink(missing_ok=True)
    code = main(["solve", system, *as_words(question), "--threads", "1", "--quiet", "-o", str(shell)])
    result = getattr(gapless, system).solve(**{**question, "threads": "1"})
    if code == 3:  # the same proof that there is none
        assert result.status is gapless.Status.INFEASIBLE
        assert not shell.exists()
        return
    assert code == 0
    result.save(python)
    assert content(shell) == content(python)


@pytest.mark.parametrize("system", QUESTIONS)
def test_there_are_ten_questions_of_each_system(system: str) -> None:
    assert len(QUESTIONS[system]) == 10


def test_values_of_python_mean_what_texts_mean() -> None:
    by_text = gapless.taccl.problem("ring:4", collective="allgather", size="1MB", chunks="2")
    by_value = gapless.taccl.problem(topology="ring:4", collective="allgather", size=1_000_000, chunks=2)
    assert by_text.description == by_value.description


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": 3, "size": "1MB"}, "topology: must be a text or a Topology, got int"),
        ({"topology": "ring:4", "size": [1]}, r"size: must be a whole number in 1\.\.\d+, got \[1\]"),
        ({"topology": "ring:4", "size": "1XB"}, "size: must be a number and a unit"),
        ({"topology": "ring:4", "sise": "1MB"}, "sise: is no argument of taccl; did you mean 'size'"),
        ({"topology": "ring:4", "size": "1MB", "chunks": 1.5}, "chunks: must be a whole number"),
        ({"topology": "ring:4", "size": "1MB", "gap": "much"}, "gap: must be a number >= 0 and <= 1, got 'much'"),
        ({"topology": "ring:4", "size": "1MB", "threads": None, "solver": 7}, "solver: must be a text, got 7"),
        ({"topology": "ring:4", "size": "1MB", "parameters": {"tries": 1}}, "parameters: 'tries' is no parameter"),
        ({"size": "1MB"}, "give `topology` NAME"),
    ],
)
def test_a_wrong_argument_is_an_input_error_that_names_it(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gapless.taccl.solve(**arguments)


def test_only_the_first_field_goes_by_place() -> None:
    with pytest.raises(InputError, match="topology: may stand first, and everything else goes by name"):
        gapless.taccl.problem("ring:4", "allgather")


def test_no_question_has_a_flag_that_the_command_line_cannot_turn_off() -> None:
    for name in QUESTIONS:
        assert not [field for field in find_system(name).fields if isinstance(field.kind, Flag) and field.default]
