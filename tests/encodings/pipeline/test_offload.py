"""What micro-batches keep on the hosts of ranks: bounds, orders, replays, and what goes without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exact_pipeline import exact_step, with_hosts
from examples import share

import gapless
from gapless.checker import Rule, check
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.bounds.offload import without_link
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.exports.torch_csv import export_torch
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.order.orders import Timeline
from gapless.encodings.pipeline.order.room import held_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.programs.memory import held_bytes as held_in_truth
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.methods import MethodChoice
from gapless.options import Deadline, SolveOptions


def asked(**values: Any) -> Problem:
    """Each micro-batch keeps 1 GB of a stage, which a copy takes as long for as its forward."""
    least = {"profile": "uniform:f=10,b=12,w=8", "hop": 2.0, "in_flight": 2, "offload": "100MB/s"}
    return problem(**{**least, "ranks": 4, "micro_batches": 8, **values})


def played(name: str = "1f1b", **values: Any) -> tuple[Problem, Stages, Timeline | None]:
    question = asked(**values)
    stages = stages_of(question, even_cut(question.profile.layer_count, question.stage_count))
    stages = stages if BASELINES[name].splits else whole(stages)
    return question, stages, timed(stages, BASELINES[name].order(stages))


@pytest.mark.thorough(but=("[3]", "[10]"))
@pytest.mark.parametrize("seed", range(share(200)))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    """Of a model in which micro-batches overtake one another as they like."""
    stages = with_hosts(seed)
    best_s, proven_s = exact_step(stages, 20.0)
    bounds_s = bounds_of(stages)
    assert max(bounds_s.values()) <= best_s
    for other in without_link(stages, best_s):
        least = max(bounds_s.values())
        assert time_indexed_bound(other, least, best_s, 60, 4, Deadline(SolveOptions())) <= best_s
    assert proven_s <= best_s


@pytest.mark.thorough(but=["[1]"])
@pytest.mark.parametrize("seed", range(share(100)))
def test_orders_with_copies_are_no_better_than_the_optimum_and_no_worse_than_those_without(seed: int) -> None:
    stages = with_hosts(seed)
    best_s, proven_s = exact_step(stages, 20.0)
    question = asked(ranks=stages.ranks, micro_batches=stages.micro_batches)
    little = replace(DEFAULTS, heuristic_ops=5000, rounds=4, exact_steps=100)
    options = SolveOptions(threads=1)
    search, without = (best_orders(question, (), each, options, Deadline(options), little)
                       for each in (stages, replace(stages, offload_s=None)))  # fmt: skip
    found, without = search.best, without.best
    assert search.bound_s <= best_s
    assert found is not None
    assert has_room(found.stages, found.order, found.timeline)
    assert found.timeline.step_s >= proven_s
    assert without is None or found.timeline.step_s <= without.timeline.step_s or found.timeline.step_s <= best_s


def test_ranks_hold_what_the_replay_finds_where_ops_take_no_time() -> None:
    question, stages, timeline = played(profile="uniform:f=0,b=12,w=8")
    assert timeline is not None
    assert len(timeline.offloaded) > 0
    held = held_in_truth(question, stages, BASELINES["1f1b"].order(stages), timeline)
    assert held == pytest.approx([2e9, 2e9, 2e9, 1e9], rel=0.003), "of ranks, with messages; no host is among them"


@pytest.mark.thorough
def test_no_link_makes_a_plan_slower() -> None:
    little, options = DEFAULTS.with_share(0.001), SolveOptions(threads=1)
    profile = {"profile": "gpt:layers=6,hidden=512,sequence=512,micro_batch=1", "hop": None, "in_flight": None}
    more = {"recomputation": "auto", "bandwidth": "10Gbps", "memory": "700MB"}
    found = []
    for link in (None, "1MB/s", "5GB/s"):
        plan = gapless.solve(asked(micro_batches=6, offload=link, **profile, **more), options, little)
        assert plan.valid
        found.append(plan.report.makespan_s)
    assert max(found) == found[0]


def test_1f1b_takes_no_longer_in_half_of_its_memory_where_the_rest_is_on_hosts() -> None:
    _, _, free = played(in_flight=4, offload=None)
    _, stages, timeline = played()
    assert timeline is not None
    assert free is not None
    assert timeline.step_s == free.step_s == 362
    assert len(timeline.offloaded) > 0
    held = held_bytes(stages, np.zeros((3, 8), dtype=np.int64), timeline)
    assert (held <= stages.room_bytes).all()


def test_slow_links_make_ops_wait() -> None:
    steps_s = [played(offload=f"{rate}MB/s")[2] for rate in (1000, 100, 25, 5)]
    found = [timeline.step_s for timeline in steps_s if timeline is not None]
    assert found == sorted(found)
    assert len(found) == 4
    assert found[-1] > found[0]


GPT = {"in_flight": None, "hop": None, "bandwidth": "100Gbps", "profile": "gpt-2.5b", "memory": "110GB",
       "offload": "500GB/s", "host_memory": "1TB"}  # fmt: skip


@pytest.mark.parametrize("values", [{}, {"recomputation": "all"}, {"backward": "whole"}, GPT])
def test_the_replay_plays_copies_and_finds_the_same_times(values: dict[str, Any]) -> None:
    question, stages, _ = played(**values)
    order = BASELINES["1f1b"].order(stages)
    timeline = timed(stages, order)
    assert timeline is not None
    report = check(to_schedule(question, stages, order, timeline))
    assert report.valid, report.violations
    assert report.makespan_s == pytest.approx(timeline.step_s)
    assert len(report.peak_bytes) == 8


def test_the_replay_refutes_too_much_on_a_host_and_a_copy_in_haste() -> None:
    question, stages, timeline = played()
    assert timeline is not None
    order = BASELINES["1f1b"].order(stages)
    small = replace(stages, host_bytes=1e9)
    rules = {each.rule for each in check(to_schedule(question, small, order, timeline)).violations}
    assert rules == {Rule.MEMORY_EXCEEDED}
    assert stages.offload_s is not None
    hasty = replace(stages, offload_s=stages.offload_s / 2)
    rules = {each.rule for each in check(to_schedule(question, hasty, order, timeline)).violations}
    assert Rule.DURATION_TOO_SHORT in rules
    early = np.array(timeline.offloaded_s)
    early[1] = early[0]
    rules = {each.rule for each in check(to_schedule(question, stages, order, replace(
        timeline, offloaded_s=early))).violations}  # fmt: skip
    assert Rule.INPUT_LATE in rules or Rule.INPUT_MISSING in rules


def test_a_host_holds_no_more_than_it_may() -> None:
    for most in (2, 3):
        _, _, timeline = played(host_memory=f"{most}GB", in_flight=3)
        assert timeline is not None
        assert timeline.offloaded_s is not None
        for out_s, back_s in zip(*timeline.offloaded_s, strict=True):
            begins_s = out_s[np.isfinite(out_s)]
            assert max(np.sum((out_s <= at_s) & (at_s < back_s + 10.0)) for at_s in [0.0, *begins_s]) <= most


def test_a_plan_says_what_travels_and_no_framework_is_given_it(tmp_path: Any) -> None:
    little = replace(DEFAULTS, quick_ops=500, heuristic_ops=500, methods=MethodChoice(only=("1f1b",)))
    found = gapless.solve(asked(method="1f1b"), SolveOptions(threads=1), little)
    assert found.report is not None
    assert found.report.valid
    found.save(tmp_path / "plan.json")
    plan = read_plan(tmp_path / "plan.json")
    decision = PipelineDecision.of(plan)
    assert plan.details["offloaded_stashes"] == len(decision.on_host) > 0
    assert plan.details["offloaded_bytes"] == 10**9 * len(decision.on_host)
    assert program_of(plan).offloaded == decision.on_host
    with pytest.raises(InputError, match="offloaded: a schedule of torch copies nothing to hosts; run it with"):
        export_torch(str(tmp_path / "plan.csv"), plan, "compute", compressed=False, recomputing=False)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"in_flight": None}, "offload: goes with a limit of memory"),
        ({"offload": None, "host_memory": "1GB"}, "host_memory: goes with offload"),
        ({"minimise": "span"}, "offload: goes without minimise span"),
        ({"slices": 2}, "offload: goes without slices"),
        ({"placement": "bidirectional"}, "offload: goes without placement bidirectional"),
        ({"work": [1.0] * 8}, "offload: goes without work"),
        ({"blocking_sends": True}, "offload: goes without blocking_sends"),
        ({"overlap_cost": 0.6}, "offload: goes without overlap_cost"),
    ],
)
def test_what_goes_without_it_is_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        asked(**values)
