"""Runs as schedules: clean when they follow the plan, and caught by rule when they don't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.checker import Report, Rule, check
from gapless.encodings.bagpipe import Planning
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import Pipeline, Spans, pipeline
from gapless.encodings.bagpipe.lowering.actions import (
    BY_USERS,
    EVERYWHERE,
    NOT_FETCHED,
    SHARED,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
    RowGroups,
)
from gapless.encodings.bagpipe.lowering.machine import SERVERS, Machine, device_names
from gapless.encodings.bagpipe.lowering.schedule import to_schedule
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.question import DESIGNS
from gapless.encodings.bagpipe.solve import machine_for
from gapless.errors import InputError
from gapless.ir.schedule import Schedule, schedule_from_events
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import Trace
from gapless.topologies.topology import Topology

TRAINERS = 3


def trace(seed: int = 0, examples: int = 240) -> Trace:
    return zipf_trace((40, 300, 5), 1.1, examples, seed)


def planned(seed: int = 0, **settings: object) -> tuple[Problem, list[Actions], Pipeline]:
    planning = Planning(TRAINERS, 24, **{"lookahead": 2, "batches": 10, **settings})  # type: ignore[arg-type]
    problem = Problem(trace(seed), planning, Cluster(TRAINERS, pass_examples=8, fetch_latency_s=1e-3))
    plans, design = list(batch_plans(problem.trace, planning)), planning.design
    actions = [Actions.of(plan, design) for plan in plans]
    return problem, actions, pipeline(counted(plans), problem.cluster, design)


def lowered(problem: Problem, actions: list[Actions], times: Pipeline) -> Schedule:
    counts = counted(batch_plans(problem.trace, problem.planning))
    return to_schedule(actions, times, machine_for(problem, counts))


def replayed(change: Callable[[list[Actions]], None] | None = None, **settings: object) -> Report:
    problem, actions, times = planned(**settings)
    if change is not None:
        change(actions)
    return check(lowered(problem, actions, times))


@pytest.mark.thorough
@examples(25)
@given(
    seed=st.integers(0, 10**6),
    lookahead=st.integers(1, 6),
    objective=st.sampled_from(["paper", "max-load"]),
    ownership=st.sampled_from(["first-touch", "hash"]),
    design=st.sampled_from(DESIGNS),
)
def test_a_run_replays_clean_at_the_time_of_its_pipeline(
    seed: int, lookahead: int, objective: str, ownership: str, design: str
) -> None:
    problem, actions, times = planned(
        seed, lookahead=lookahead, objective=objective, ownership=ownership, design=design
    )
    report = check(lowered(problem, actions, times))
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(times.makespan_s, rel=1e-9)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_replays_clean_and_moves_the_rows_that_it_is_said_to(design: str) -> None:
    problem, actions, times = planned(design=design)
    report = check(lowered(problem, actions, times))
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(times.makespan_s, rel=1e-9)
    if design == "lrpp-fine-grained":  # see `test_exchanges.py`
        return
    for number, batch in enumerate(actions):
        is_shared = batch.private_to == SHARED
        assert (batch.sync[is_shared] == SYNC_NOW).sum() == times.rows.sync_now[number]
        assert (batch.sync[is_shared] == SYNC_LATER).sum() == times.rows.sync_later[number]
        copies = np.where(batch.fetched_by == EVERYWHERE, TRAINERS, batch.fetched_by != NOT_FETCHED)
        assert copies.sum() == times.rows.fetched[number]
        owned = ~is_shared & (batch.sync != 0)
        assert (batch.users[owned].sum(axis=1) - batch.users[owned, batch.private_to[owned]]).sum() == (
            times.rows.peer_rows[number]
        )


def test_a_cache_that_holds_what_the_lookahead_counts_is_large_enough() -> None:
    assert replayed(lookahead=None, cache_rows=120).valid
    problem, actions, times = planned(lookahead=None, cache_rows=120)
    small = replace(problem, planning=replace(problem.planning, cache_rows=40))
    assert Rule.MEMORY_EXCEEDED in check(lowered(small, actions, times)).violation_counts


def _first(actions: list[Actions], **wanted: int) -> tuple[int, int]:
    """The first batch with a row of these actions, and the row's place."""
    for number, batch in enumerate(actions):
        chosen = np.ones(len(batch.ids), dtype=np.bool_)
        for title, value in wanted.items():
            chosen &= getattr(batch, title) == value
        if chosen.any():
            return number, int(chosen.argmax())
    raise AssertionError(f"no row with {wanted}")


def _set(actions: list[Actions], number: int, title: str, place: int, value: int) -> None:
    column = getattr(actions[number], title).copy()
    column[place] = value
    actions[number] = replace(actions[number], **{title: column})


def test_a_skipped_synchronisation_is_stale() -> None:
    def skip(actions: list[Actions]) -> None:
        number, place = _first(actions, sync=SYNC_NOW)
        _set(actions, number, "sync", place, 0)

    assert Rule.INPUT_STALE in replayed(skip).violation_counts


@pytest.mark.parametrize("name", ["exchange", "return"])
def test_a_partitioned_row_that_does_not_reach_its_users_or_comes_back_is_caught(name: str) -> None:
    """Without the exchange, users have no row; without the return, owners have an old one."""
    problem, actions, times = planned(design="partitioned")
    schedule = lowered(problem, actions, times)
    left_out = next(
        k for k, event in enumerate(schedule.events()) if event.op >= 0
        and schedule.graph.ops[event.op].name == f"{name} 1"
    )  # fmt: skip
    events = [event for k, event in enumerate(schedule.events()) if k != left_out]
    found = check(schedule_from_events(schedule.graph, schedule.topology, events, schedule.name)).violation_counts
    assert (Rule.INPUT_MISSING if name == "exchange" else Rule.INPUT_STALE) in found


def test_an_exchange_faster_than_the_busiest_trainer_is_too_short() -> None:
    problem, actions, times = planned(design="partitioned")
    shorter = {
        name: Spans(getattr(times, name).start_s - 1e-3, getattr(times, name).end_s - 1e-3)
        for name in ("forward", "backward")
    }
    report = check(lowered(problem, actions, replace(times, **shorter)))
    assert Rule.DURATION_TOO_SHORT in report.violation_counts


def test_an_owner_that_is_another_in_the_next_batch_has_no_row() -> None:
    def swap(actions: list[Actions]) -> None:
        owners = actions[2].private_to
        actions[2] = replace(actions[2], private_to=(owners + 1) % TRAINERS)

    assert Rule.INPUT_MISSING in replayed(swap, design="partitioned").violation_counts


def test_an_evicted_row_that_is_needed_is_missing() -> None:
    def evict(actions: list[Actions]) -> None:
        number, place = _first(actions, sync=SYNC_NOW, evicted=0)
        _set(actions, number, "evicted", place, 1)

    assert Rule.INPUT_MISSING in replayed(evict).violation_counts


def test_a_prefetch_that_is_left_out_is_missing() -> None:
    def forget(actions: list[Actions]) -> None:
        number, place = _first(actions, fetched_by=EVERYWHERE)
        _set(actions, number, "fetched_by", place, NOT_FETCHED)

    found = replayed(forget).violation_counts
    assert Rule.INPUT_MISSING in found or Rule.INPUT_LATE in found


def test_a_row_fetched_by_another_trainer_than_its_user_is_missing() -> None:
    def misdirect(actions: list[Actions]) -> None:
        number, place = next(
            (number, int(np.flatnonzero((batch.private_to == 0) & (batch.fetched_by == 0))[0]))
            for number, batch in enumerate(actions)
            if ((batch.private_to == 0) & (batch.fetched_by == 0)).any()
        )
        _set(actions, number, "fetched_by", place, 1)

    found = replayed(misdirect).violation_counts
    assert Rule.INPUT_MISSING in found or Rule.INPUT_LATE in found


def test_a_row_that_is_never_written_back_is_required_missing() -> None:
    def keep(actions: list[Actions]) -> None:
        place = int(np.flatnonzero((actions[-1].private_to == SHARED) & (actions[-1].evicted == 1))[0])
        _set(actions, len(actions) - 1, "evicted", place, 0)

    assert Rule.REQUIRED_MISSING in replayed(keep).violation_counts


def test_a_trainer_with_more_than_its_share_overflows_its_buffer_and_trains_longer() -> None:
    def unbalance(actions: list[Actions]) -> None:
        examples = actions[0].examples + np.array([1, -1, 0])
        actions[0] = replace(actions[0], examples=examples)

    assert replayed(unbalance).violation_counts == {Rule.MEMORY_EXCEEDED: 1, Rule.DURATION_TOO_SHORT: 1}


def test_prefetches_before_the_write_back_are_stale() -> None:
    """The rows that batch x fetches and an earlier batch wrote back, fetched two batches before the rule allows it."""
    problem, actions, times = planned(lookahead=1, seed=3)
    early = times.prefetch
    shift_s = np.zeros(len(actions))
    for number, batch in enumerate(actions):
        if batch.prefetch_after >= 2:
            written = max(times.write_late.end_s[batch.prefetch_after], times.write_early.end_s[batch.prefetch_after])
            before = min(
                times.write_early.start_s[batch.prefetch_after - 1], times.write_late.start_s[batch.prefetch_after - 1]
            )
            shift_s[number] = min(0.0, before - written - early.duration_s[number])
    moved = replace(early, start_s=early.start_s + shift_s, end_s=early.end_s + shift_s)
    report = check(lowered(problem, actions, replace(times, prefetch=moved)))
    assert Rule.INPUT_STALE in report.violation_counts


# -- groups ------------------------------------------------------------------------------------------------------------


@examples(30)
@given(seed=st.integers(0, 10**6), lookahead=st.integers(1, 5), design=st.sampled_from(DESIGNS))
def test_rows_share_a_group_exactly_if_they_share_their_fate(seed: int, lookahead: int, design: str) -> None:
    """Of rows that are owned or rooted, whose users differ, so does the fate."""
    _, actions, _ = planned(seed, lookahead=lookahead, design=design, batches=6)
    ids = np.unique(np.concatenate([batch.ids for batch in actions]))
    groups = RowGroups.of(actions, ids, np.zeros_like(ids))
    fates: dict[int, list[tuple[int, ...]]] = {}
    for number, batch in enumerate(actions):
        is_owned = (batch.private_to != SHARED) & ((batch.sync != 0) | (batch.fetched_by <= BY_USERS))
        users = np.where(is_owned, batch.users @ (1 << np.arange(TRAINERS)), 0)
        columns = (batch.ids, batch.fetched_by, batch.private_to, batch.sync, batch.evicted, users)
        for id_, *fate in zip(*(column.tolist() for column in columns), strict=True):
            fates.setdefault(id_, []).append((number, *fate))
    sizes: dict[tuple[tuple[int, ...], ...], int] = {}
    for fate in fates.values():
        sizes[tuple(fate)] = sizes.get(tuple(fate), 0) + 1
    assert sorted(groups.rows.tolist()) == sorted(sizes.values())
    for number, batch in enumerate(groups.batches):
        assert groups.rows[batch.group].sum() == len(actions[number].ids)


# -- problems ----------------------------------------------------------------------------------------------------------


def test_a_solved_problem_replays_clean_and_counts_what_the_plans_say() -> None:
    problem, actions, _ = planned()
    result = gapless.solve(problem)
    assert result.valid
    assert result.report is not None
    assert result.report.makespan_s == result.solution.objective
    details = result.details
    assert details["evicted_rows"] == sum(int(batch.evicted.sum()) for batch in actions)
    assert details["fetched_rows"] == details["evicted_rows"]
    assert details["partition_cost"] >= details["partition_bound_after_history"] > 0
    assert details["examples"] == 240
    assert details["median"]["sync_now_rows"] <= details["sync_now_rows"]


def test_a_cluster_of_other_trainers_is_refused() -> None:
    with pytest.raises(InputError, match="cluster: trainers must be 3, got 4"):
        Problem(trace(), Planning(3, 24), Cluster(4))


# -- names of devices --------------------------------------------------------------------------------------------------


def test_names_stand_in_the_order_of_the_machine() -> None:
    machine = Machine(Cluster(trainers=3), np.array([1, 1, 1]), 10)
    names = device_names(machine.topology())
    assert names[SERVERS] == "servers"
    assert names[machine.replicas] == "replicas"
    assert [names[machine.trainer(k)] for k in range(3)] == ["trainer 0", "trainer 1", "trainer 2"]
    assert names[machine.buffer(2)] == "input of trainer 2"
    assert len(names) == machine.topology().device_count
    counting = replace(machine, gradient_bytes=100)
    more = device_names(counting.topology())
    assert more[: len(names)] == names
    assert more[counting.gradients(2)] == "gradients of trainer 2"
    assert len(more) == counting.topology().device_count


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_other_topologies_are_refused(devices: int) -> None:
    with pytest.raises(InputError, match="two or three devices a trainer"):
        device_names(Topology("other", (0,) * devices))
