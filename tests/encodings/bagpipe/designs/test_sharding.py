"""Tables on the trainers, without a cache: what moves is what a count by hand says, and rows come from their shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gapless
from gapless.checker import Report, Rule, check
from gapless.encodings.bagpipe.advice.advise import advise
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.designs.sharding import pooled_vectors, shard_of
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.lowering.replay import replay_run
from gapless.encodings.bagpipe.lowering.schedule import to_schedule
from gapless.encodings.bagpipe.problem import Planning, Problem
from gapless.encodings.bagpipe.question import SHARDED
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.encodings.bagpipe.solve import machine_for
from gapless.errors import InputError
from gapless.ir.schedule import schedule_from_events
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import global_ids

TABLES, TRAINERS = (40, 300, 5, 7), 3
CLUSTER = Cluster(TRAINERS, control_s=5.0, fetch_latency_s=5.0)  # neither of which is theirs


def problem_of(design: str, **settings: object) -> Problem:
    planning = Planning(TRAINERS, 25, **{"batches": 5, "design": design, **settings})  # type: ignore[arg-type]
    return Problem(zipf_trace(TABLES, 1.1, 118, 0), planning, CLUSTER)


def by_hand(examples: Sequence[int], tables: int, design: str) -> tuple[int, int, int]:
    """Every vector on its way: for each example, table and trainer that has a part of it."""
    sent, got = [0] * len(examples), [0] * len(examples)
    for trainer, count in enumerate(examples):
        for table in range(tables):
            for shard in range(len(examples)):
                has_part = design == "row-wise" or table % len(examples) == shard
                if has_part and shard != trainer:
                    sent[shard] += count
                    got[trainer] += count
    return sum(sent), max(*sent, *got), max(s + g for s, g in zip(sent, got, strict=True))


@pytest.mark.parametrize("design", SHARDED)
@pytest.mark.parametrize("examples", [(8, 8, 8), (9, 8, 8), (1, 5, 2, 7), (4,), (0, 3)])
@pytest.mark.parametrize("tables", [1, 2, 3, 26])
def test_vectors_are_those_that_a_count_one_by_one_finds(design: str, examples: tuple[int, ...], tables: int) -> None:
    expected = by_hand((*examples,), tables, design) if len(examples) > 1 else (0, 0, 0)
    assert pooled_vectors(np.array(examples), tables, design) == expected


def test_a_table_lies_on_one_trainer_or_its_rows_on_all() -> None:
    ids = global_ids(np.array([[0, 0], [1, 1], [2, 2], [3, 3]]))
    assert shard_of(ids, 2, "table-wise").tolist() == [[0, 1]] * 4
    assert shard_of(ids, 2, "row-wise").tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("design", SHARDED)
@pytest.mark.parametrize("settings", [{}, {"method": "random"}, {"shares": (2.0, 1.0, 1.0)}])
def test_a_run_replays_clean_at_the_time_that_its_vectors_take(design: str, settings: dict[str, object]) -> None:
    problem = problem_of(design, **settings)
    result = gapless.solve(problem)
    assert result.valid
    planned = result.plan.windows
    assert isinstance(planned, RunPlan)
    expected_s = 0.0
    for number in range(5):
        examples = planned.actions(number).examples
        _, most, _ = by_hand(examples.tolist(), len(TABLES), design)
        once_s = CLUSTER.latency_s + most * CLUSTER.gradient_bytes / CLUSTER.trainer_bytes_per_s
        passes_s = sum(CLUSTER.pass_s(float(examples.max())))
        expected_s += 2 * once_s + passes_s + CLUSTER.all_reduce_s(float(CLUSTER.dense_bytes))
    assert result.report is not None
    assert result.report.makespan_s == pytest.approx(expected_s)
    assert {result.details[name] for name in ("fetched_rows", "evicted_rows", "sync_now_rows")} == {0}
    assert result.solution.bound <= result.report.makespan_s


def replayed(design: str, change: Callable[[list[Actions]], None] | None = None, leave_out: str = "") -> Report:
    problem = problem_of(design)
    plans = list(batch_plans(problem.trace, problem.planning))
    actions, counts = [Actions.of(plan, design) for plan in plans], counted(plans, design)
    if change is not None:
        change(actions)
    times, machine = pipeline(counts, problem.cluster, design), machine_for(problem, counts)
    schedule = to_schedule(actions, times, machine)
    events = [
        event for event in schedule.events()
        if event.op < 0 or not (leave_out and re.fullmatch(leave_out, schedule.graph.ops[event.op].name))
    ]  # fmt: skip
    return check(schedule_from_events(schedule.graph, schedule.topology, events, schedule.name))


def _move(actions: list[Actions]) -> None:
    """The first row of batch 2 on another trainer than its shard."""
    holder = actions[2].private_to.copy()
    holder[0] = (holder[0] + 1) % TRAINERS
    actions[2] = replace(actions[2], private_to=holder)


@pytest.mark.parametrize("design", SHARDED)
def test_what_is_broken_is_caught_by_rule(design: str) -> None:
    assert replayed(design).valid
    elsewhere = {violation.rule for violation in replayed(design, change=_move).violations}
    assert Rule.INPUT_MISSING in elsewhere
    for op, rule in (("exchange 3", Rule.INPUT_MISSING), ("return 3", Rule.INPUT_STALE)):
        assert rule in {violation.rule for violation in replayed(design, leave_out=op).violations}


@pytest.mark.parametrize("design", SHARDED)
def test_window_by_window_and_from_a_file_the_replay_is_the_same(design: str, tmp_path: Path) -> None:
    result = gapless.solve(problem_of(design))
    planned = result.plan.windows
    assert isinstance(planned, RunPlan)
    report = replay_run(planned, planned.times, planned.machine, most_rows=60)
    assert report.valid
    assert report.makespan_s == result.report.makespan_s  # type: ignore[union-attr]
    result.save(tmp_path / "run.npz")
    again = gapless.load(tmp_path / "run.npz").check()
    assert again.valid
    assert again.makespan_s == report.makespan_s


def test_a_run_that_stops_and_goes_on_is_the_whole_one() -> None:
    short, whole = (gapless.solve(problem_of("table-wise", batches=count)) for count in (2, 5))
    assert short.valid
    assert short.report.makespan_s < whole.report.makespan_s  # type: ignore[union-attr]


def test_advice_has_them_beside_the_caches() -> None:
    asked = {"trainers": 4, "batch_size": 64, "lookahead": 2, "table_rows": (3000, 3000), "examples": 640}
    found = {row["design"]: row for row in advise("zipf", **asked, baselines=True).data["designs"]}  # type: ignore[arg-type]
    for design in SHARDED:
        assert found[design]["fetched_rows"] == found[design]["background_rows"] == 0
        examples = np.full(4, 16)
        assert found[design]["critical_rows"] == pooled_vectors(examples, 2, design)[2]
    assert found["row-wise"]["iteration_s"] > found["table-wise"]["iteration_s"]


def test_what_goes_with_a_cache_alone_is_refused() -> None:
    for title in ("lookahead", "cache_rows"):
        with pytest.raises(InputError, match=f"{title}: goes with a cache, which design row-wise has none of, got 90"):
            Planning(2, 16, design="row-wise", **{title: 90})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method: must be auto, contiguous or random with design table-wise"):
        Planning(2, 16, design="table-wise", method="milp")
    with pytest.raises(InputError, match="objective: synchronised"):
        Planning(2, 16, design="table-wise", objective="synchronised")
    with pytest.raises(InputError, match="replicate_budget: goes with a design of"):
        gapless.solve(replace(problem_of("table-wise"), replicate_budget_bytes=10**6))
