"""What pipeline plans decide: read from files as typed data, and from the events of old ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_plans import errors_table, gpt_profile

import gapless
from gapless.encodings.pipeline.exports.torch_csv import export_torch
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.decision import HopMode, PipelineDecision
from gapless.encodings.pipeline.programs.program import program_of
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.result import Result

PROFILE = "uniform:f=10,b=12,w=8"
UNIFORM = {"ranks": 3, "micro_batches": 4, "hop": 2}
ASKED: dict[str, dict[str, Any]] = {
    "zb-v": {**UNIFORM, "placement": "v", "method": "zb-v"},
    "recomputed": {**UNIFORM, "recomputation": "all", "backward": "whole"},
    "policies": {**UNIFORM, "profile": gpt_profile(4), "recomputation": "curve", "backward": "whole", "memory": 30_000},
    "compressed": {
        **UNIFORM, "profile": gpt_profile(4), "hop": None, "bandwidth": 400.0, "replicas": 2, "method": "1f1b",
        "compression": errors_table("half", "rank 4"), "error_budget": 0.02,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=ASKED)
def result(request: pytest.FixtureRequest) -> Result:
    return gapless.solve(problem(**{"profile": PROFILE, **ASKED[request.param]}))


@pytest.fixture
def path(result: Result, tmp_path: Path) -> Path:
    result.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_decision_is_saved_and_read_as_typed_data(result: Result, path: Path) -> None:
    decision = gapless.load(path).decision
    assert isinstance(decision, PipelineDecision)
    assert decision == result.decision
    assert list(decision.cut) == result.details["cut"]
    assert list(decision.recomputed) == result.details["recomputed"]
    assert decision.method == result.details["method"]


@pytest.mark.parametrize("ranks", [(1, 0), (1, 0, 0, 1), (0, 1, 1, 0, 1, 0), (0, 1, 0)])
def test_stages_lie_where_a_placement_of_ones_own_says(ranks: tuple[int, ...], tmp_path: Path) -> None:
    """In the plan, its file, its replay and the file for torch."""
    path, few = tmp_path / "plan.json", Parameters(heuristic_ops=2000, quick_ops=1000, exact_steps=50, rounds=2)
    question = problem(profile=gpt_profile(6), ranks=2, micro_batches=4, hop=1.0, placement=ranks)
    made = gapless.solve(question, parameters=few)
    assert made.report.valid
    made.save(path)
    saved = read_plan(path)
    assert program_of(saved).order.rank_of_stage == ranks
    export_torch(str(tmp_path / "torch.csv"), saved, "compute", compressed=False, recomputing=False)
    rows = (tmp_path / "torch.csv").read_text().splitlines()
    for rank, row in enumerate(rows):
        assert {ranks[int(word[0])] for word in row.split(",") if word} == {rank}
    damaged = changed(path, lambda data: data["problem"].update(placement=[0]))
    with pytest.raises(InputError, match="placement: must be the rank of each stage"):
        program_of(read_plan(damaged))


def test_a_plan_of_before_says_the_same_by_its_events(result: Result, path: Path) -> None:
    if result.details.get("policies"):
        return  # which are younger than decisions
    program = program_of(read_plan(path))
    old = read_plan(changed(path, lambda data: data.pop("decision")))
    assert PipelineDecision.of(old) == result.decision
    assert program_of(old) == program


def test_policies_have_a_name_for_each_layer_of_a_stage() -> None:
    decision = gapless.solve(problem(**ASKED["policies"])).decision
    assert isinstance(decision, PipelineDecision)
    ends = (0, *decision.cut, 6)
    assert any(decision.policies)
    assert all(
        len(row.split()) in (0, end - first) for row, first, end in zip(decision.policies, ends, ends[1:], strict=False)
    )


def test_compressed_hops_and_sums_have_names() -> None:
    decision = gapless.solve(problem(**ASKED["compressed"])).decision
    assert isinstance(decision, PipelineDecision)
    assert {each.mode for each in decision.hop_modes} <= {"half", "rank 4"}
    assert decision.hop_modes
    assert set(decision.sum_modes) & {"half", "rank 4"}


@pytest.fixture(scope="module")
def small() -> Result:
    return gapless.pipeline.solve(PROFILE, ranks=2, micro_batches=2, hop=2, method="1f1b")


def _swap(decision: dict[str, Any]) -> None:
    first, second, *rest = decision["order"][0].split()
    decision["order"][0] = " ".join([second, first, *rest])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda decision: decision.update(cut=[1, 1]), r"decision: cut: must be first layers that grow, got \[1, 1\]"),
        (lambda decision: decision.update(cut=[]), "decision: cut: must be 1 first layers < 2"),
        (lambda decision: decision.update(cut=[9]), "decision: cut: must be 1 first layers < 2"),
        (lambda decision: decision.pop("method"), "method"),
        (lambda decision: decision.update(recomputed=[5]), "decision: recomputed: must be stages < 2"),
        (lambda decision: decision.update(policies=["keep"]), "decision: policies: must be one for each of 2 stages"),
        (
            lambda decision: decision.update(policies=["keep input", ""]),
            r"decision: policies\[0\]: must be one for each of 1 layers, got 'keep input'",
        ),
        (lambda decision: decision.update(sum_modes=["plain"]), "decision: sum_modes: must be one for each of 2"),
        (
            lambda decision: decision.update(hop_modes=[{"hop": 1, "micro_batch": 0, "mode": "rank 4"}]),
            r"decision: hop_modes\[0\]: hop: must be < 1, got 1",
        ),
        (lambda decision: decision["order"].pop(), "decision: order: must be one for each of 2 ranks, got 1"),
        (lambda decision: decision["order"].reverse(), r"decision: order\[0\]: must be of the stages of rank 0"),
        (lambda decision: decision.update(order=["0X0", ""]), r"decision: order\[0\]: must be actions such as 0F0"),
        (lambda decision: decision.update(messages=["F"]), r"decision: messages\[0\]: must be actions such as 0F0"),
        (
            lambda decision: decision.update(messages=["7F0"]),
            r"decision: messages\[0\]: must be of stages < 2, got 7F0",
        ),
    ],
)
def test_what_is_no_pipeline_is_refused(
    small: Result, tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    small.save(tmp_path / "plan.json")
    with pytest.raises(InputError, match=says):
        gapless.load(changed(tmp_path / "plan.json", lambda data: change(data["decision"])))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_swap, r"decision: order\[0\]: must be the schedule's"),
        (lambda decision: decision["order"].__setitem__(1, ""), "must have every action of the schedule"),
        (
            lambda decision: decision.update(messages=["0F1 0F0"]),
            r"decision: messages\[0\]: must be in the schedule's order, in which 0F0 leaves before 0F1",
        ),
        (lambda decision: decision.update(messages=["0F1"]), r"decision: messages\[0\]: must be the link's 2 messages"),
    ],
)
def test_an_order_that_is_not_the_schedules_is_refused(
    small: Result, tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    small.save(tmp_path / "plan.json")
    plan = read_plan(changed(tmp_path / "plan.json", lambda data: change(data["decision"])))
    with pytest.raises(InputError, match=says):
        program_of(plan)


@pytest.mark.thorough
def test_the_order_of_messages_is_saved_and_exported(tmp_path: Path) -> None:
    result = gapless.pipeline.solve("uniform:f=5,b=9,w=14", ranks=2, micro_batches=4, placement="v", hop=12)
    decision = result.decision
    assert isinstance(decision, PipelineDecision)
    assert decision.messages == ("0F0 0F1 0F2 3I0 0F3 3I1 3I2 3I3",)
    result.save(tmp_path / "plan.json")
    again = gapless.load(tmp_path / "plan.json")
    assert again.decision == decision
    program = program_of(read_plan(tmp_path / "plan.json"))
    assert [" ".join(map(str, queue)) for queue in program.order.messages] == list(decision.messages)
    assert "keep" in result.export(tmp_path / "schedule.csv", "torch-pipeline")


def test_a_hops_mode_is_read_as_a_record() -> None:
    decision = PipelineDecision((1,), ("", ""), "1f1b", hop_modes=(HopMode(0, 3, "rank 4"),))
    assert decision.data["hop_modes"] == [{"hop": 0, "micro_batch": 3, "mode": "rank 4"}]
