"""Solving sharding: optima by enumeration, exact whole numbers, what is forbidden, and what no plan answers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sharding_instances import cheapest, random_instance

import gapless
from gapless.cli.main import main
from gapless.encodings.sharding.instances.drawn import instance_of_words
from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance, read_instance
from gapless.encodings.sharding.parameters import Parameters
from gapless.encodings.sharding.problem import Problem
from gapless.methods import MethodChoice
from gapless.options import SolveOptions
from gapless.solution import Status


def contest_text(instance: Instance) -> str:
    """The instance as a file of the contest."""
    nodes = {
        "intervals": instance.intervals.tolist(),
        "costs": [row.tolist() for row in instance.costs],
        "usages": [row.tolist() for row in instance.usages],
    }
    edges = {"nodes": instance.edges.tolist(), "costs": [table.reshape(-1).tolist() for table in instance.tables]}
    return json.dumps({"problem": {"nodes": nodes, "edges": edges, "usage_limit": instance.usage_limit}})


def scaled(instance: Instance, factor: int, more: int) -> Instance:
    """The same question with other costs: what is open times a factor, and more."""

    def grown(row: np.ndarray) -> np.ndarray:
        return np.where(row < FORBIDDEN, np.minimum(row, FORBIDDEN // factor) * factor + more, row)

    return replace(instance, costs=tuple(map(grown, instance.costs)), tables=tuple(map(grown, instance.tables)))


@pytest.mark.parametrize("tightness", [-0.05, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_small_questions_have_the_cost_of_the_best_plan(seed: int, tightness: float) -> None:
    instance = random_instance(seed, tightness=tightness, forbidden=0.3 if seed % 2 else 0.05)
    result, known = gapless.solve(Problem(instance), SolveOptions(threads=1)), cheapest(instance)
    if known is None:
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    assert result.valid
    assert result.solution.objective == known[0]
    found = instance.evaluate(np.array(result.decision.choices))
    assert (found.cost, found.forbidden) == (known[0], "")
    assert found.peak == result.report.peak_bytes[0] <= instance.usage_limit


@pytest.mark.parametrize("seed", range(3))
def test_costs_beyond_what_floats_hold_stay_exact(seed: int) -> None:
    """Whole numbers of 59 bits, whose sums leave 64 bits."""
    instance = scaled(random_instance(seed, tightness=0.4, forbidden=0.05), 10**15 + 1, 7 * 10**17)
    result, known = gapless.solve(Problem(instance), SolveOptions(threads=1)), cheapest(instance)
    assert known is not None
    choices = np.array(result.decision.choices)
    assert result.data["objective"] == instance.evaluate(choices).cost >= known[0]
    assert result.data["bound"] is None or result.data["bound"] <= known[0]
    assert json.loads(json.dumps(result.data))["objective"] % 2**10 == instance.evaluate(choices).cost % 2**10


def test_every_method_alone_says_nothing_false() -> None:
    instance = random_instance(7, nodes=7, tightness=0.3)
    known = cheapest(instance)
    assert known is not None
    for name in ("descent", "exact"):
        parameters = Parameters(methods=MethodChoice(only=(name,)))
        result = gapless.solve(Problem(instance), SolveOptions(threads=1), parameters)
        assert result.solution.bound is None or result.solution.bound <= known[0]
        assert result.solution.objective is None or result.solution.objective >= known[0]


def test_the_command_answers_in_whole_numbers_and_exports_the_contests_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = random_instance(3, tightness=0.5, forbidden=0.05)
    file, plan, out = tmp_path / "one.json", tmp_path / "plan.json", tmp_path / "choices.json"
    file.write_text(contest_text(instance))
    assert read_instance(file).tables[0].tolist() == instance.tables[0].tolist()
    assert main(["solve", "sharding", "--instance", str(file), "-o", str(plan), "--json", "--quiet"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["objective"], data["bound"], data["gap"]) == (cheapest(instance)[0], cheapest(instance)[0], 0.0)
    assert main(["export", str(plan), "--format", "iopddl", "-o", str(out)]) == 0
    choices = json.loads(out.read_text())
    assert instance.evaluate(np.array(choices)).cost == data["objective"]
    first = plan.read_text()
    assert main(["solve", "sharding", "--instance", str(file), "-o", str(plan), "--quiet"]) == 0
    strip = [json.loads(text) | {"run": None} for text in (first, plan.read_text())]
    assert strip[0] == strip[1]


def test_the_model_is_written_for_other_solvers(tmp_path: Path) -> None:
    file = tmp_path / "model.lp"
    words = ["solve", "sharding", "--instance", "drawn:nodes=12,choices=3", "--quiet"]
    assert main([*words, "--write-model", str(file), "-o", str(tmp_path / "plan.json")]) == 0
    assert "memory_suffices" in file.read_text()


def test_a_changed_choice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = random_instance(3, tightness=0.5, forbidden=0.0)
    file, plan = tmp_path / "one.json", tmp_path / "plan.json"
    file.write_text(contest_text(instance))
    assert main(["solve", "sharding", "--instance", str(file), "-o", str(plan), "--quiet"]) == 0
    assert main(["check", str(plan)]) == 0
    saved = json.loads(plan.read_text())
    node = next(node for node, cost in enumerate(instance.costs) if len(cost) > 1)
    other = (saved["decision"]["choices"][node] + 1) % len(instance.costs[node])
    saved["decision"]["choices"][node] = other
    plan.write_text(json.dumps(saved))
    assert main(["check", str(plan)]) == 5
    saved["graph"]["tensor_names"][node] = f"{node}:{other}"
    plan.write_text(json.dumps(saved))
    capsys.readouterr()
    assert main(["check", str(plan)]) == 5
    assert "decision-broken" in capsys.readouterr().out
    file.unlink()
    saved["decision"]["choices"][node] = 99
    plan.write_text(json.dumps(saved))
    assert main(["check", str(plan)]) == 5


def test_another_instance_in_the_plans_file_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, plan = tmp_path / "one.json", tmp_path / "plan.json"
    file.write_text(contest_text(random_instance(3, forbidden=0.0)))
    assert main(["solve", "sharding", "--instance", str(file), "-o", str(plan), "--quiet"]) == 0
    file.write_text(contest_text(random_instance(4, forbidden=0.0)))
    assert main(["check", str(plan)]) == 5
    assert "isn't the instance that the plan was made for" in capsys.readouterr().out
    file.unlink()
    assert main(["check", str(plan)]) == 0
    assert "the instance isn't here" in capsys.readouterr().err


def test_what_is_infeasible_and_what_is_unknown_have_their_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = random_instance(3, forbidden=0.0)
    instance = replace(drawn, usages=tuple(usage + 1 for usage in drawn.usages), usage_limit=0)
    file = tmp_path / "one.json"
    file.write_text(contest_text(instance))
    assert main(["solve", "sharding", "--instance", str(file), "-o", str(tmp_path / "p.json"), "--quiet"]) == 3
    tuned = tmp_path / "none.toml"
    tuned.write_text('exact_entries = 1\nmethods.only = ["exact"]\n')
    words = ["solve", "sharding", "--instance", "drawn:nodes=40", "--parameters", str(tuned), "--quiet"]
    assert main(words) == 4
    capsys.readouterr()


def test_time_that_is_up_in_presolve_is_said_and_ends_the_solve(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["solve", "sharding", "--instance", "drawn:nodes=3000,choices=2", "--time-limit", "0.000001", "--json"]
    assert main(words) == 4
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["stop_reason"]) == ("no_solution", "time_limit")
    assert (data["objective"], data["bound"]) == (None, None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:-40], "not JSON"),
        (lambda text: text.replace('"usage_limit"', '"limit"'), "usage_limit"),
        (lambda text: text.replace('"usage_limit": ', '"usage_limit": -'), "usage_limit: must be"),
        (lambda text: text.replace('"usages": [[', '"usages": [[1, 1, 1, 1, '), r"usages\[0\]: must be as many"),
        (lambda text: text.replace('"costs": [[', '"costs": [[-1, ', 1), r"costs\[0\]: must be whole numbers in 0"),
        (lambda text: text.replace('"costs": [[', '"costs": [[NaN, ', 1), "NaN"),
        (lambda text: text.replace('"costs": [[', '"costs": [[1e3, ', 1), r"costs\[0\]: must be whole numbers"),
    ],
)
def test_bad_input_is_one_line(change, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.json"
    file.write_text(change(contest_text(random_instance(3))))
    assert main(["solve", "sharding", "--instance", str(file), "-o", str(tmp_path / "p.json")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(says, err), err


@pytest.mark.parametrize("words", ["drawn:nodes=0", "drawn:layers=3", "drawn:nodes=x", "nothing.json"])
def test_words_of_no_instance_are_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "sharding", "--instance", words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_drawn_instance_has_a_plan_whatever_its_numbers() -> None:
    for words in ("drawn:", "drawn:nodes=2,choices=1", "drawn:nodes=9,choices=64,seed=3,tightness=100"):
        instance = instance_of_words(words)
        found = instance.evaluate(np.zeros(len(instance.costs), dtype=np.int64))
        assert found.peak <= instance.usage_limit
        assert not found.forbidden
