"""Objects of the wrong type are refused in one line that names the argument, as wrong texts are; never a TypeError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import PUBLISHED

import gapless
from gapless.errors import InputError
from gapless.result import Result
from gapless.sweeps import Rows
from gapless.system import find_system

WRONG = (3, -1, 2.5, float("nan"), b"x", [], [1, 2], {}, {"a": 1}, object(), (), "", lambda: 0, range(3))
RIGHT: dict[str, dict[str, Any]] = {
    "bagpipe": {"trace": "zipf", "table_rows": "40,300", "examples": 64, "trainers": 2, "batch_size": 8},
    "cache": {"profile": "synthetic:layers=2,heads=4", "cache": "0.3x"},
    "chai": {"profile": "synthetic:layers=2,heads=4", "kv_saving": 0.2},
    "cupcake": {"profile": "resnet50"},
    "monet": {"graph": "vgg16", "batch": 1, "budget": "0.9x"},
    "oktopk": {"indices": "uniform:elements=1000,steps=2", "ranks": 4, "density": 0.01},
    "pipeline": {"profile": "uniform:f=10,b=12,w=8", "ranks": 2, "micro_batches": 3},
    "sharding": {"instance": "drawn:nodes=8,choices=3"},
    "ranks": {"trace": "trace.npz", "data": "0.3x"},
    "taccl": {"topology": "ring:4", "collective": "allgather", "size": "1MB", "chunks": 1},
}


@pytest.fixture(scope="module")
def result() -> Result:
    found: Result = gapless.chai.solve(**RIGHT["chai"])
    return found


def refusal(ask: Callable[[], object]) -> str:
    """What an error says, empty where there is none; any but `InputError` goes on."""
    try:
        ask()
    except InputError as error:
        return str(error)
    return ""


def test_every_published_system_has_a_question_here() -> None:
    assert set(RIGHT) >= set(PUBLISHED)


@pytest.mark.thorough(but=("cache", "chai", "cupcake", "ranks"))
@pytest.mark.parametrize("name", RIGHT)
def test_each_field_refuses_what_is_of_another_type(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    system = find_system(name)
    for field in system.fields:
        for value in WRONG:
            line = refusal(
                lambda system=system, field=field, value=value: system.ask({**RIGHT[name], field.name: value})
            )
            assert "\n" not in line
            assert len(line) < 500


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (gapless.solve, r"problem: must be what gapless\.<system>\.problem"),
        (gapless.check, "schedule: must be a Schedule"),
        (gapless.retime, "schedule: must be a Schedule"),
        (gapless.register, "system: must be a System"),
        (gapless.load, "path: must be a text or a path"),
    ],
    ids=("solve", "check", "retime", "register", "load"),
)
def test_functions_refuse_what_is_of_another_type(call: Callable[[Any], object], rule: str) -> None:
    for value in WRONG:
        if value != "":
            with pytest.raises(InputError, match=rule):
                call(value)


def test_results_refuse_what_is_of_another_type(result: Result) -> None:
    problem = result.problem
    for value in (3, 2.5, b"x", [1], {"a": 1}, object()):
        for call in (result.save, result.plot, lambda value: result.plot(ax=value)):
            with pytest.raises(InputError, match="must be"):
                call(value)
        with pytest.raises(InputError, match="options: must be"):
            gapless.solve(problem, value)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="on_progress: must be a function or None"):
            gapless.chai.solve(**RIGHT["chai"], on_progress=value)


def test_the_problem_of_a_loaded_plan_is_not_solved_again(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "plan.json")
    with pytest.raises(InputError, match="problem: must be what"):
        gapless.solve(gapless.load(tmp_path / "plan.json").problem)


def test_a_sweep_without_instances_is_a_table_without_rows() -> None:
    assert repr(Rows()) == "<sweep: 0 instances, 0 of them answered>"
    assert "0 instances" in Rows()._repr_html_()
    with pytest.raises(InputError, match="no results to draw"):
        Rows().plot()
