"""What a challenge finds: bounds that were raised, plans that were slowed; and what it leaves standing."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from compression_traces import small_trace
from fusion_instances import known_instance
from hand_training import chain
from published import PUBLISHED

import gapless
from gapless.challenges import Attempt, ChallengeParameters, ChallengeReport, Verdict, challenge
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.options import SolveOptions
from gapless.profiles.compression.trace import write_compression_trace
from gapless.profiles.gradients.profile_file import write_fusion_profile
from gapless.profiles.training.graph_file import write_training_graph
from gapless.result import Result
from gapless.solution import PlanClass, Solution, Status, StopReason
from gapless.system import Problem

QUICK = ChallengeParameters(work=5, seeds=1, events=200_000)
UNIFORM = "uniform:f=10,b=12,w=8"

WEAK: Mapping[str, dict[str, Any]] = {
    "taccl": {"topology": "line:3", "collective": "sendrecv", "root": 0, "target": 2, "size": "1MB", "chunks": 1},
    "monet": {"graph": "chain.json", "budget": "0.6x", "method": "checkmate"},
    "bagpipe": {"trace": "zipf", "table_rows": "50,400", "examples": 300, "trainers": 4, "batch_size": 30,
                "lookahead": 3, "method": "contiguous"},
    "cupcake": {"profile": "costs.json", "method": "layer-wise"},
    "oktopk": {"indices": "clustered:elements=5000,steps=2", "ranks": 4, "density": 0.02, "method": "even"},
    "pipeline": {"profile": UNIFORM, "ranks": 3, "micro_batches": 4, "hop": "2", "in_flight": 3, "method": "1f1b"},
    "chai": {"profile": "synthetic:layers=3,heads=6", "kv_saving": 0.25, "method": "random"},
    "ranks": {"trace": "trace.npz", "data": "0.5x", "phases": "epoch", "method": "constant"},
}  # fmt: skip
"""A question of each system by a method, or in chunks, whose plan another one beats."""

OPTIMAL: Mapping[str, dict[str, Any]] = {
    "taccl": {"topology": "ring:3", "size": "1MB", "collective": "scatter"},
    "monet": {"graph": "chain.json", "budget": "45B"},
    "cupcake": {"profile": "costs.json"},
    "chai": {"profile": "synthetic:layers=3,heads=6", "kv_saving": 0.25},
    "ranks": {"trace": "trace.npz", "data": "0.5x", "phases": "epoch"},
}
"""Questions whose first plan is proven to be the best of all."""


@pytest.fixture(autouse=True)
def _in_a_folder_with_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_training_graph(tmp_path / "chain.json", chain(6))
    write_compression_trace(tmp_path / "trace.npz", small_trace())
    write_fusion_profile(tmp_path / "costs.json", known_instance())


def solved(system: str, values: Mapping[str, Any]) -> SavedPlan:
    plan: SavedPlan = getattr(gapless, system).solve(**values).plan
    return plan


def claiming(plan: SavedPlan, **changes: Any) -> SavedPlan:
    """The plan with another claim; `bounds` in pairs of class and value."""
    unit = next(name.removeprefix("objective_") for name in plan.claim if name.startswith("objective_"))
    claim = {**plan.claim, **{name: value for name, value in changes.items() if name != "bounds"}}
    if "bounds" in changes:
        listed = [
            {**{"source": "", "plans": f"plans of {plans}", "gap": 0.0}, "class": plans, "bound": value}
            for plans, value in changes["bounds"]
        ]
        widest = next((value for plans, value in changes["bounds"] if plans == "question"), None)
        claim |= {"bounds": listed, f"bound_{unit}": widest}
    return replace(plan, claim=claim)


def cost(plan: SavedPlan) -> float:
    found: float = next(value for name, value in plan.claim.items() if name.startswith("objective_"))
    return found


@cache
def weak(system: str) -> SavedPlan:
    return solved(system, WEAK[system])


def attempt(report: ChallengeReport, name: str) -> Attempt:
    return next(each for each in report.attempts if each.name == name)


@pytest.mark.thorough("pipeline")
@pytest.mark.parametrize("system", WEAK)
def test_a_bound_that_was_raised_is_refuted(system: str) -> None:
    plan = weak(system)
    raised = claiming(plan, bounds=[("question", cost(plan))], status="optimal", gap=0.0)
    report = challenge(raised, parameters=QUICK)
    assert report.verdict == "refuted"
    assert not report.false, "the plan's own replay says nothing against it"
    best = report.best
    assert best is not None
    assert best.verdict is Verdict.REFUTED
    assert best.valid
    assert best.cost is not None
    assert best.cost < cost(plan)


@pytest.mark.thorough(but=("ranks", "taccl"))
@pytest.mark.parametrize("system", WEAK)
def test_a_weak_plan_without_a_bound_is_only_beaten(system: str) -> None:
    plan = claiming(weak(system), bounds=[], status="feasible", gap=None)
    report = challenge(plan, parameters=QUICK)
    assert report.verdict == "better"
    assert report.gain is not None
    assert report.gain > 0


@pytest.mark.parametrize("system", OPTIMAL)
def test_a_plan_that_is_proven_optimal_survives(system: str) -> None:
    plan = solved(system, OPTIMAL[system])
    assert plan.claim["status"] == "optimal"
    report = challenge(plan, parameters=QUICK)
    assert report.verdict == "stands", report.text
    assert not report.left_out


@pytest.mark.thorough(but=("cupcake", "taccl"))
@pytest.mark.parametrize("system", ["taccl", "monet", "cupcake", "oktopk", "pipeline"])
def test_a_plan_that_was_slowed_is_beaten_by_its_own_events(system: str) -> None:
    plan = claiming(weak(system), bounds=[], status="feasible", gap=None)
    schedule = plan.schedule
    slow = replace(plan, schedule=replace(schedule, start_s=1.5 * schedule.start_s, end_s=1.5 * schedule.end_s))
    report = challenge(claiming(slow, objective_s=1.5 * cost(plan)), parameters=QUICK)
    again = attempt(report, "the plan's events as early as possible")
    assert again.verdict is Verdict.BETTER
    assert again.cost == pytest.approx(cost(plan))


def test_a_bound_of_a_narrower_class_is_not_refuted_by_a_wider_one() -> None:
    plan = weak("taccl")
    within = claiming(plan, bounds=[("chunks", cost(plan))], status="feasible", gap=None)
    report = challenge(within, parameters=QUICK)
    assert report.verdict == "better"
    assert attempt(report, "without --chunks").plans is PlanClass.QUESTION
    assert attempt(report, "without --chunks").verdict is Verdict.BETTER
    assert attempt(report, "--seed 1, without presolve").plans is PlanClass.CHUNKS


def test_without_a_sketch_the_same_nodes_and_bytes_are_asked_for() -> None:
    from gapless.encodings.taccl.solve import narrowing

    problem = gapless.taccl.problem("ndv2", sketch="ndv2-sk-1", size="1MB")
    (found,) = narrowing(problem, {"topology": "ndv2", "sketch": "ndv2-sk-1"})
    assert found.plans is PlanClass.SKETCH
    wider = gapless.taccl.problem("ndv2", **{name: value for name, value in found.without.items() if value is not None})
    assert (wider.topology.device_count, wider.size_bytes) == (problem.topology.device_count, problem.size_bytes)
    assert wider.sketch is None


def test_the_same_plan_meets_the_same_attempts_twice() -> None:
    plan = weak("taccl")
    assert challenge(plan, parameters=QUICK).data == challenge(plan, parameters=QUICK).data


def test_a_dirty_replay_is_an_alarm() -> None:
    plan = weak("pipeline")
    schedule = plan.schedule
    hasty = replace(plan, schedule=replace(schedule, start_s=0.5 * schedule.start_s, end_s=0.5 * schedule.end_s))
    report = challenge(claiming(hasty, objective_s=0.5 * cost(plan), bounds=[]), time_limit=1e-6)
    assert not report.valid
    assert report.verdict == "refuted"
    assert "doesn't replay clean" in report.refuted[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective_s": 1.0}, "is claimed, and the plan costs"),
        ({"bounds": [("question", 1e6)]}, "is above the plan's own"),
        ({"status": "optimal", "bounds": []}, "optimal is claimed, with the bound -"),
    ],
)
def test_a_claim_that_its_own_plan_refutes_is_an_alarm(changes: dict[str, Any], said: str) -> None:
    report = challenge(claiming(weak("pipeline"), **changes), time_limit=1e-6)
    assert any(said in line for line in report.false), report.false
    assert report.is_alarm


@pytest.mark.parametrize("is_infeasible", [True, False])
def test_a_false_claim_of_an_attempt_is_an_alarm(is_infeasible: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = claiming(weak("ranks"), bounds=[], status="feasible", gap=None)

    def lying(problem: Problem, options: SolveOptions, parameters: Any) -> Result:
        status = Status.INFEASIBLE if is_infeasible else Status.NO_SOLUTION
        bound = None if is_infeasible else 1.5 * cost(plan)
        solution = Solution(status, StopReason.FINISHED, "", "", 0, 0.0, bound=bound, unit="error")
        return Result(problem, solution, None, None, {})

    monkeypatch.setattr("gapless.challenges.attempts.solve", lying)
    report = challenge(plan, parameters=QUICK)
    said = "claims that the question is infeasible" if is_infeasible else "claims the bound"
    assert all(said in line for line in report.refuted)
    assert report.refuted
    assert report.verdict == "refuted"


def test_a_time_limit_leaves_attempts_out_and_says_which() -> None:
    report = challenge(weak("pipeline"), time_limit=1e-6)
    assert not report.attempts
    assert report.why_ended == "time limit"
    assert "--seed 1" in report.left_out[-2]


def test_whoever_stops_it_gets_what_was_found_so_far() -> None:
    stop, plan = threading.Event(), claiming(weak("chai"), bounds=[], status="feasible")
    made: list[str] = []

    def look(done: int, total: int, attempt: Attempt) -> None:
        made.append(attempt.name)
        if done == 2:
            stop.set()

    report = challenge(plan, options=SolveOptions(threads=1, stop=stop), on_attempt=look)
    assert [each.name for each in report.attempts] == made
    assert len(made) == 2
    assert report.why_ended == "interrupted"
    assert report.left_out


def test_an_interrupt_of_python_ends_it_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = weak("chai")

    def interrupted(done: int, total: int, attempt: Attempt) -> None:
        import gapless.challenges.recipe as engine

        def press(*values: object) -> Attempt:
            raise KeyboardInterrupt

        monkeypatch.setattr(engine, "attempted", press)

    report = challenge(plan, parameters=QUICK, on_attempt=interrupted)
    assert len(report.attempts) == 1
    assert report.why_ended == "interrupted"


def test_the_best_plan_is_written_and_can_be_challenged_in_turn(tmp_path: Path) -> None:
    report = challenge(weak("ranks"), parameters=QUICK)
    report.save(tmp_path / "better.json")
    best = report.best
    assert best is not None
    again = gapless.load(tmp_path / "better.json")
    assert again.solution.objective == pytest.approx(best.cost)
    assert not gapless.challenge(tmp_path / "better.json", parameters=QUICK).is_alarm


def test_a_result_challenges_itself_also_where_python_asked_with_objects() -> None:
    result = gapless.monet.solve(chain(6), budget="45B")
    report = result.challenge(parameters=QUICK)
    assert report.verdict == "stands"
    assert {each.name for each in report.attempts} >= {"the plan as a start", "--seed 1, without presolve"}


def test_a_plan_asked_with_objects_of_python_is_refused(tmp_path: Path) -> None:
    gapless.monet.solve(chain(6), budget="45B").save(tmp_path / "plan.json")
    with pytest.raises(InputError, match=r"plan.json: question: must be kept in the file in words"):
        challenge(tmp_path / "plan.json")


def test_a_plan_of_a_system_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"system: must be one of bagpipe, .* got 'elsewhere'"):
        challenge(replace(weak("chai"), system="elsewhere"))


def test_a_question_whose_file_has_changed_is_refused(tmp_path: Path) -> None:
    plan = solved("monet", WEAK["monet"])
    write_training_graph(tmp_path / "chain.json", chain(7))
    with pytest.raises(InputError, match="question: is another one now"):
        challenge(plan)
    (tmp_path / "chain.json").unlink()
    with pytest.raises(InputError, match="question: can't be asked again: "):
        challenge(plan)


def test_a_run_that_was_cut_short_is_refused() -> None:
    plan = weak("bagpipe")
    part = replace(plan, decision={**plan.decision, "batches_planned": 1})
    with pytest.raises(InputError, match="must answer all of its question"):
        challenge(part)


@pytest.mark.parametrize(("name", "value"), [("work", 0), ("seeds", -1), ("own", 1.5), ("wider", True)])
def test_parameters_below_their_least_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        ChallengeParameters(**{name: value})


def test_the_report_is_plain_json_and_lines_for_people() -> None:
    report = challenge(weak("ranks"), parameters=QUICK)
    data = json.loads(json.dumps(report.data))
    assert data["verdict"] == report.verdict
    assert {each["name"] for each in data["attempts"]} == {each.name for each in report.attempts}
    assert "a better plan: " in report.text


def rows(parameters: Any) -> list[dict[str, Any]]:
    """Each parameter with its value, those of parts among them."""
    found: list[dict[str, Any]] = []
    for entry in fields(parameters):
        value = getattr(parameters, entry.name)
        inner = rows(value) if is_dataclass(value) else [{"name": "", "default": value}]
        found += [{"name": f"{entry.name}.{row['name']}", "default": row["default"]} for row in inner]
    return found


def test_work_bounds_the_searches_of_every_system() -> None:
    from gapless.system import find_system, system_names

    for name in system_names():
        kind = find_system(name).parameters
        if kind is None:
            assert name not in PUBLISHED
            continue
        parameters = kind()()
        assert parameters.with_share(0.5) != parameters, name
        least = {row["name"]: row["default"] for row in rows(parameters.with_share(1e-12))}
        most = {row["name"]: row["default"] for row in rows(parameters)}
        changed = [title for title in most if most[title] != least[title]]
        assert changed
        assert all(float(least[title]) <= 1 for title in changed), name
