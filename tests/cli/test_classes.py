"""The class of plans that a bound holds for stands wherever the bound, the gap or a proof does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from little import LITTLE

import gapless
from gapless.cli.main import main
from gapless.io.plan import read_plan
from gapless.result import Result, load
from gapless.schemas import load_schema
from gapless.solution import PlanClass

CLASS = "among plans in 1 chunk under sketch ndv2-sk-1"


@pytest.fixture(scope="module")
def sketched() -> Result:
    return gapless.taccl.solve(
        "ndv2", nodes=2, sketch="ndv2-sk-1", collective="allgather", size="1MB", parameters=LITTLE
    )


@pytest.fixture
def path(sketched: Result, tmp_path: Path) -> Path:
    sketched.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_the_report_of_a_sketch_says_of_which_plans_none_is_better(
    sketched: Result, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(path), "-o", str(path.with_suffix(".html")), "--no-pictures", "--quiet"]) == 0
    page = path.with_suffix(".html").read_text(encoding="utf-8")
    question, chunks = sketched.data["bounds"][0], sketched.data["bounds"][-1]
    assert f"no plan of this question is better than {1e6 * question['bound']:.1f} us" in page
    assert f"{CLASS}: none of them is better than {1e6 * chunks['bound']:.1f} us" in page
    assert "without --sketch: " in page
    assert "no plan is better" not in page


def test_show_prints_the_question_first_and_the_sketch_by_name(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    claim = out.split("\nclaim\n")[1].split("\ndetails\n")[0]
    assert claim.index("  gap ") < claim.index(CLASS) < claim.index("without --sketch: ")
    assert "entries" not in claim


def test_titles_of_pictures_name_the_sketch(path: Path) -> None:
    pytest.importorskip("matplotlib")
    from gapless.plot.pictures import draw

    for kind in ("gantt", "topology"):
        title = " ".join(draw(read_plan(path), kind).get_title(loc="left").split())
        assert CLASS in title
        assert title.index("gap ") < title.index(CLASS)


def test_a_notebook_s_card_names_the_sketch(sketched: Result) -> None:
    card = sketched._repr_html_()
    assert CLASS in card
    assert "for any plan of this question" in card
    assert "without --sketch: " in card


def test_bounds_survive_the_file_and_follow_its_schema(sketched: Result, path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), load_schema("plan"))
    assert load(path).solution.bounds == sketched.solution.bounds
    assert load(path).data["bounds"] == sketched.data["bounds"]
    assert load(path).data["wider"] == sketched.data["wider"]


def test_a_file_of_before_has_the_bound_of_its_question_alone(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["claim"]["bounds"]
    path.write_text(json.dumps(data), encoding="utf-8")
    old = load(path)
    assert [one.plans for one in old.solution.bounds] == [PlanClass.QUESTION]
    assert old.solution.bound == data["claim"]["bound_s"]
    assert main(["show", str(path)]) == 0
