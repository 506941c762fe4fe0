"""The question as users ask it."""

from __future__ import annotations

import pytest

import gapless
from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.parameters import Parameters
from gapless.encodings.fsdp.search.baselines import BUILDERS
from gapless.encodings.fsdp.system import SYSTEM
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.solution import Status

LITTLE = Parameters(most_extensions=5000)
ASKED = {"profile": "gpt:layers=4,hidden=1024", "ranks": 8, "bandwidth": "5GB/s"}


def solved(**more: object) -> gapless.Result:
    return gapless.solve(gapless.fsdp.problem(**{**ASKED, **more}), SolveOptions(), LITTLE)


def step_s(result: gapless.Result) -> float:
    """As it was replayed."""
    assert result.report is not None
    return result.report.makespan_s


@pytest.mark.parametrize("executor", ["fsdp2", "any"])
def test_a_plan_replays_and_is_no_slower_than_any_baseline(executor: str) -> None:
    result = solved(memory="1GB", executor=executor)
    assert result.valid
    baselines_s = result.details["baselines_s"]
    assert set(baselines_s) <= set(BUILDERS)
    assert step_s(result) <= min(baselines_s.values()) * (1 + 1e-9)
    assert result.solution.bound is not None
    assert result.solution.bound <= step_s(result) * (1 + 1e-9)


def test_shared_groups_are_the_same_for_gathers_and_scatters() -> None:
    decision = solved(memory="1GB").decision
    assert isinstance(decision, ShardedDecision)
    assert decision.groups is not None
    assert decision.groups[0][0] == 0


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_a_baseline_by_name_is_that(name: str) -> None:
    nodes = {"ranks_per_node": 4, "inner_bandwidth": "9GB/s", "sharding": "full,secondary,hybrid"}
    result = solved(method=name, **(nodes if name in ("secondary", "hybrid") else {"executor": "any"}))
    assert result.valid
    assert result.solution.solver == name


def test_two_networks_are_planned_and_replayed_and_no_faster_inside_is_slower() -> None:
    asked = {"memory": "1GB", "bandwidth": "1GB/s", "ranks_per_node": 4}
    slow, fast = (solved(**asked, inner_bandwidth=bandwidth) for bandwidth in ("3GB/s", "300GB/s"))
    assert slow.valid
    assert fast.valid
    assert step_s(fast) <= step_s(slow)
    for each in (slow, fast):
        assert each.solution.bound is not None
        assert each.solution.bound <= step_s(each) * (1 + 1e-9)
        assert step_s(each) <= min(each.details["baselines_s"].values()) * (1 + 1e-9)


def test_more_kinds_of_sharding_are_no_slower_and_keep_layers_in_nodes() -> None:
    asked = {
        "profile": "gpt:layers=6,hidden=1024,vocabulary=8000", "memory": "200MB", "bandwidth": "1GB/s",
        "ranks_per_node": 4, "inner_bandwidth": "300GB/s",
    }  # fmt: skip
    full, more = solved(**asked), solved(**asked, sharding="full,secondary,hybrid")
    assert full.valid
    assert more.valid
    assert step_s(more) < step_s(full)
    assert isinstance(more.decision, ShardedDecision)
    assert any(each.in_node for each in more.decision.collectives)
    assert more.solution.bound is not None
    assert more.solution.bound <= step_s(more)


def test_more_memory_is_never_slower() -> None:
    steps_s = [step_s(solved(memory=memory)) for memory in ("400MB", "600MB", "1GB")]
    assert steps_s == sorted(steps_s, reverse=True)


def test_a_layer_that_memory_cannot_hold_is_infeasible_and_says_the_least() -> None:
    result = solved(memory="1MB")
    assert result.status is Status.INFEASIBLE
    assert float(result.details["least_memory_bytes"]) > 1e6
    assert "give at least as much memory" in SYSTEM.remarks(result.details)[0]


def test_exact_precisions_are_taken_where_they_cost_nothing() -> None:
    """With a fast network every gradient goes in single precision; on a slow one most in fewer bytes."""
    fast = solved(bandwidth="900GB/s", scatter="fp32,bf16").decision
    slow = solved(bandwidth="1GB/s", scatter="fp32,bf16").decision
    assert isinstance(fast, ShardedDecision)
    assert isinstance(slow, ShardedDecision)
    fast_, slow_ = ([each.precision for each in one.collectives if each.kind == "scatter"] for one in (fast, slow))
    assert fast_.count("fp32") > slow_.count("fp32")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ranks": 1}, "ranks: must be"),
        ({"gather": "fp12"}, "gather: must be one of fp32, bf16, fp8"),
        ({"profile": "uniform:f=1,b=1,w=1"}, "profile: must have parameters to shard"),
        ({"ranks_per_node": 3, "inner_bandwidth": "9GB/s"}, "ranks_per_node: must divide the 8 ranks, got 3"),
        ({"ranks_per_node": 4}, "inner_bandwidth: goes with ranks_per_node above 1"),
        ({"ranks_per_node": 4, "inner_bandwidth": "9GB/s", "executor": "any"}, "any has one network"),
        ({"sharding": "hybrid"}, "sharding: must have full among them"),
        ({"sharding": "full,secondary"}, "sharding: goes with several nodes"),
        ({"method": "hybrid"}, "method: hybrid goes with sharding full,hybrid"),
        ({"executor": "all"}, "executor: must be one of fsdp2, any"),
    ],
)
def test_what_makes_no_sense_gets_a_line(more: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        solved(**more)
