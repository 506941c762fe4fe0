"""Which picture a plan gets, and what is read of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_plans import small_plan

from gapless.errors import InputError
from gapless.plot.pictures import convergence_in, draw, is_sweep, pictures_of, read_sweep
from gapless.result import read_saved


@pytest.mark.thorough("taccl")
@pytest.mark.parametrize(
    ("system", "kinds"),
    [
        ("taccl", ["gantt", "topology", "resources", "convergence"]),
        ("monet", ["memory", "convergence"]),
        ("bagpipe", ["gantt", "memory"]),
        ("cupcake", ["gantt"]),
    ],
)
def test_each_system_has_pictures_that_suit_it(system: str, kinds: list[str], tmp_path: Path) -> None:
    assert pictures_of(read_saved(str(small_plan(system, tmp_path)))) == kinds


def test_a_plan_without_exclusive_resources_has_no_picture_of_them(tmp_path: Path) -> None:
    plan = read_saved(str(small_plan("cupcake", tmp_path)))
    with pytest.raises(InputError, match="--kind resources: no transfer of the plan holds an exclusive resource"):
        draw(plan, "resources")


def test_convergence_of_the_solve_is_in_the_plan(tmp_path: Path) -> None:
    plan = read_saved(str(small_plan("taccl", tmp_path)))
    convergence = convergence_in(plan)
    assert convergence is not None
    assert convergence.incumbent[-1] == pytest.approx(plan.claim["objective_s"])
    assert convergence.bound[-1] == pytest.approx(plan.claim["bound_s"])


def test_plans_made_before_convergence_was_kept_are_read_and_say_so(tmp_path: Path) -> None:
    path = small_plan("taccl", tmp_path)
    data = json.loads(path.read_text())
    data["run"] = {}
    path.write_text(json.dumps(data))
    plan = read_saved(str(path))
    assert "convergence" not in pictures_of(plan)
    with pytest.raises(InputError, match="does not say how its solve converged"):
        draw(plan, "convergence")


def test_rows_of_a_sweep_are_read(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    rows = [{"memory_ratio": 0.5, "overhead": 0.1, "overhead_bound": None, "plan": "a.json"}]
    path.write_text(json.dumps(rows))
    assert is_sweep(str(path))
    (point,) = read_sweep(path)
    assert (point.memory_ratio, point.overhead, point.overhead_bound) == (0.5, 0.1, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not JSON"),
        ("[]", "at least one row"),
        ("{}", "must be a JSON list"),
        ("[1]", "row 0: must be a JSON object"),
        ('[{"memory_ratio": "much", "overhead": 0, "overhead_bound": 0}]', "row 0: memory_ratio: must be a number"),
        ('[{"memory_ratio": 1, "overhead_bound": 0}]', "row 0: field 'overhead' is missing"),
        ('[{"memory_ratio": 1, "overhead": NaN, "overhead_bound": 0}]', "row 0"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_sweep(path)
