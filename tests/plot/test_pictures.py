"""Which picture a plan gets, and what is read of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_plans import SYSTEMS, small_plan, solve_command

from gapless.anytime.convergence import Convergence
from gapless.cli.main import main
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.ir.graph import Graph
from gapless.ir.schedule import schedule_from_events
from gapless.plot import plot_convergence, plot_tradeoff
from gapless.plot.pictures import Point, convergence_in, draw, is_sweep, pictures_of, read_sweep
from gapless.result import read_saved
from gapless.topologies.topology import Topology


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
    plan = read_saved(str(small_plan("pipeline", tmp_path)))
    with pytest.raises(
        InputError, match=r"--kind resources: no transfer of the plan holds an .*; draw --kind pipeline"
    ):
        draw(plan, "resources")


@pytest.mark.parametrize("kind", ["topology", "resources", "convergence", "heads"])
def test_an_empty_picture_is_refused_with_what_to_draw_instead(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_plan("cupcake", tmp_path)
    assert main(["plot", str(path), "--kind", kind, "-o", str(tmp_path / "out.svg")]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), said.endswith("; draw --kind gantt\n")) == (1, True)
    assert not (tmp_path / "out.svg").exists()


def test_a_plan_without_events_has_no_picture(tmp_path: Path) -> None:
    nothing = schedule_from_events(Graph(np.ones(1, dtype=np.int64)), Topology("alone", (0,)), [])
    plan = SavedPlan("elsewhere", {}, {}, {}, nothing)
    assert pictures_of(plan) == []
    for kind in ("auto", "gantt", "memory", "topology"):
        with pytest.raises(InputError, match=r"nothing in the plan takes time; `gapless show` says what it holds"):
            draw(plan, kind)


@pytest.mark.thorough(but=("bagpipe", "monet"))
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_budget_is_drawn_only_where_one_was_asked_for(system: str, tmp_path: Path) -> None:
    legend = draw(read_saved(str(small_plan(system, tmp_path))), "memory").get_legend()
    assert any("budget" in text.get_text() for text in legend.get_texts()) == (system == "monet")


def test_a_cache_that_was_asked_for_is_a_budget(tmp_path: Path) -> None:
    path = str(tmp_path / "run.npz")
    command = [*solve_command("bagpipe", tmp_path)[:-1], path, "--cache-rows", "400", "--quiet"]
    assert main([part for part in command if part not in ("--lookahead", "3")]) == 0
    titles = [text.get_text() for text in draw(read_saved(path), "memory").get_legend().get_texts()]
    assert any(title.startswith("budget") for title in titles)


def test_a_bound_is_drawn_only_where_there_is_one() -> None:
    rows = [Point(0.5, 0.2, None), Point(0.6, 0.1, None)]
    proven = [Point(0.5, 0.2, 0.1), Point(0.6, 0.1, 0.0)]
    for points, count in ((rows, 1), (proven, 2)):
        assert len(plot_tradeoff(points).get_legend().get_texts()) == count
    for bound, count in (((None, None), 1), ((1.0, 1.5), 3)):
        axes = plot_convergence(Convergence((0.0, 1.0), (3.0, 2.0), bound, "s"))
        assert len(axes.get_legend().get_texts()) == count


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
        ('[{"memory_ratio": 1, "overhead": NaN, "overhead_bound": 0}]', "numbers must be finite, got NaN"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_sweep(path)
