"""Rooted rows: where they go is what users say, their replay is clean, and what is broken is caught by rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless import bagpipe
from gapless.checker import Report, Rule, check
from gapless.encodings.bagpipe import Planning
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.designs.rows import design_rows
from gapless.encodings.bagpipe.lowering.actions import BY_USERS, SENT_LATER, SENT_NOW, SYNC_LATER, SYNC_NOW, Actions
from gapless.encodings.bagpipe.lowering.schedule import to_schedule
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.solve import machine_for
from gapless.errors import InputError
from gapless.ir.schedule import EventKind, schedule_from_events
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.generators import zipf_trace

TRAINERS, DESIGN = 3, "lrpp-fine-grained"


def problem_of(seed: int = 0, batch_size: int = 24, **settings: object) -> Problem:
    placement = str(settings.pop("placement", "apart"))
    planning = Planning(TRAINERS, batch_size, **{"lookahead": 3, "batches": 10, "design": DESIGN, **settings})  # type: ignore[arg-type]
    cluster = Cluster(TRAINERS, fetch_latency_s=1e-3, placement=placement)
    return Problem(zipf_trace((40, 300, 5), 1.1, 240, seed), planning, cluster)


def replayed(change: Callable[[list[Actions]], None] | None = None, leave_out: str = "", **settings: object) -> Report:
    """The replay of a run whose actions are changed before it is lowered, or that lacks an op afterwards."""
    problem = problem_of(**settings)  # type: ignore[arg-type]
    plans = list(batch_plans(problem.trace, problem.planning))
    actions, counts = [Actions.of(plan, DESIGN) for plan in plans], counted(plans)
    if change is not None:
        change(actions)
    schedule = to_schedule(actions, pipeline(counts, problem.cluster, DESIGN), machine_for(problem, counts))
    events = [
        event for event in schedule.events() if event.op < 0
        or not (leave_out and re.fullmatch(leave_out, schedule.graph.ops[event.op].name))
    ]  # fmt: skip
    return check(schedule_from_events(schedule.graph, schedule.topology, events, schedule.name))


def test_whoever_sends_a_row_away_keeps_no_copy_of_it() -> None:
    problem = problem_of()
    plans = list(batch_plans(problem.trace, problem.planning))
    counts = counted(plans)
    actions, times = [Actions.of(plan, DESIGN) for plan in plans], pipeline(counts, problem.cluster, DESIGN)
    schedule = to_schedule(actions, times, machine_for(problem, counts))
    held: set[tuple[int, int]] = set()
    for event in sorted(schedule.events(), key=lambda event: event.end_s):
        if event.kind is EventKind.TRANSFER:
            held |= {(tensor, schedule.topology.links[event.place].target) for tensor in event.moves}
        held -= set(event.frees)
    names = schedule.graph.tensor_names
    assert not {(names[tensor], device) for tensor, device in held if names[tensor].startswith("rows ") and device}


def by_hand(plans: list[BatchPlan]) -> dict[str, list[int]]:
    """What moves in each batch, row by row, from the examples' trainers alone."""
    users: list[dict[int, set[int]]] = [
        {int(id_): set(np.flatnonzero(uses).tolist()) for id_, uses in zip(plan.step.ids, plan.users, strict=True)}
        for plan in plans
    ]
    found: dict[str, list[int]] = {name: [] for name in ("now", "later", "fetched", "messages_now")}
    last: dict[int, int] = {}
    for number, plan in enumerate(plans):
        new = set(plan.step.prefetch_ids.tolist())
        after = users[number + 1] if number + 1 < len(plans) else {}
        now = later = messages = 0
        for row, using in users[number].items():
            if row not in new:
                before = users[last[row]][row]
                is_kept = len(before) == 1 and before == using
                now += last[row] == number - 1 and not is_kept
                later += last[row] < number - 1 and len(before) == 1 and not is_kept
            later += len(using) > 1 and row not in after
            messages += (len(using) - 1) * (row in after)
            last[row] = number
        found["now"].append(now)
        found["later"].append(later)
        found["fetched"].append(sum(len(users[number][row]) for row in new))
        found["messages_now"].append(messages)
    return found


@examples(30)
@given(seed=st.integers(0, 10**6), lookahead=st.integers(1, 6), method=st.sampled_from(["auto", "random"]))
def test_rows_and_messages_are_those_that_users_say(seed: int, lookahead: int, method: str) -> None:
    problem = problem_of(seed, lookahead=lookahead, method=method, batches=6)
    plans = list(batch_plans(problem.trace, problem.planning))
    expected, counts = by_hand(plans), counted(plans).rooted
    assert counts.moved_now.tolist() == expected["now"]
    assert counts.moved_later.tolist() == expected["later"]
    assert counts.fetched.tolist() == expected["fetched"]
    assert counts.gathered_now.tolist() == expected["messages_now"]
    for plan in plans:
        assert plan.users[np.arange(len(plan.root)), plan.root].all()


@pytest.mark.thorough("12", "3")
@pytest.mark.parametrize("lookahead", [1, 3, 12])
def test_a_run_replays_clean_at_the_time_of_its_pipeline(lookahead: int) -> None:
    problem = problem_of(lookahead=lookahead)
    result = gapless.solve(problem)
    assert result.report is not None
    assert result.valid, result.report.summary()
    counts = counted(batch_plans(problem.trace, problem.planning))
    assert result.report.makespan_s == pytest.approx(pipeline(counts, problem.cluster, DESIGN).makespan_s, rel=1e-9)
    rows = design_rows(counts, DESIGN)
    assert result.details["sync_now_rows"] == rows.sync_now.sum() < counts.sync_now.sum()
    assert result.details["sync_later_rows"] == rows.sync_later.sum()


@pytest.mark.parametrize("batches", [1, 2, 3, 7])
def test_a_run_that_ends_early_replays_clean(batches: int) -> None:
    """What is cached then is written back by its roots."""
    problem = problem_of(lookahead=5)
    stopped = replace(problem, planning=replace(problem.planning, batches=batches))
    result = gapless.solve(stopped)
    assert result.report is not None
    assert result.valid, result.report.summary()


# -- broken on purpose -------------------------------------------------------------------------------------------------


def where(actions: list[Actions], chosen: Callable[[Actions], np.ndarray]) -> tuple[int, int]:
    """The first batch from 2 on that has such a row, and the row's place."""
    for number, batch in enumerate(actions[2:], start=2):
        rows = np.flatnonzero(chosen(batch))
        if len(rows):
            return number, int(rows[0])
    raise AssertionError("no such row")


def changed(title: str, value: int, chosen: Callable[[Actions], np.ndarray]) -> Callable[[list[Actions]], None]:
    """One row's action, changed where it is first found."""

    def change(actions: list[Actions]) -> None:
        number, place = where(actions, chosen)
        column = getattr(actions[number], title).copy()
        column[place] = value
        actions[number] = replace(actions[number], **{title: column})

    return change


def several(batch: Actions) -> np.ndarray:
    return np.asarray(batch.users.sum(axis=1) > 1)


BROKEN = {
    "gradients that aren't gathered": (
        changed("sync", 0, lambda batch: several(batch) & (batch.sync == SYNC_NOW)), Rule.INPUT_STALE,
    ),
    "gradients gathered too late": (
        changed("sync", SYNC_LATER, lambda batch: several(batch) & (batch.sync == SYNC_NOW)), Rule.INPUT_STALE,
    ),
    "a row that isn't gathered before it is written back": (
        changed("sync", 0, lambda batch: several(batch) & (batch.evicted == 1)), Rule.REQUIRED_MISSING,
    ),
    "a row sent before its last update": (
        changed("fetched_by", SENT_LATER, lambda batch: several(batch) & (batch.fetched_by == SENT_NOW)),
        Rule.INPUT_STALE,
    ),
    "a cached row that is fetched": (
        changed("fetched_by", BY_USERS, lambda batch: batch.fetched_by == SENT_NOW), Rule.INPUT_MISSING,
    ),
    "a row sent that no trainer holds": (
        changed("fetched_by", SENT_NOW, lambda batch: batch.fetched_by == BY_USERS), Rule.INPUT_MISSING,
    ),
    "a row evicted that is used again": (
        changed("evicted", 1, lambda batch: batch.sync == SYNC_NOW), Rule.INPUT_MISSING,
    ),
    "a root that has no copy": (
        changed("private_to", 0, lambda batch: (batch.sync == 0) & (batch.private_to == 1) & (batch.evicted == 1)),
        Rule.INPUT_MISSING,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_caught_by_rule(name: str) -> None:
    change, rule = BROKEN[name]
    assert rule in replayed(change).violation_counts


@pytest.mark.parametrize(
    ("op", "rule"),
    [
        ("gather 1 now", Rule.INPUT_STALE),
        ("gather . later", Rule.REQUIRED_MISSING),
        ("send 2 now", Rule.INPUT_MISSING),
        ("send . later", Rule.INPUT_MISSING),
    ],
)
def test_an_exchange_that_is_left_out_is_caught(op: str, rule: Rule) -> None:
    assert replayed(placement="same-network").valid
    assert rule in replayed(leave_out=op, placement="same-network").violation_counts


def relayed(left_out: str) -> Report:
    """The replay of a run whose rows are relayed, without what goes over the servers' network while that happens."""
    problem = problem_of()
    plans = list(batch_plans(problem.trace, problem.planning))
    counts = counted(plans)
    times = pipeline(counts, problem.cluster, DESIGN)
    assert times.is_relayed[1]
    schedule = to_schedule([Actions.of(plan, DESIGN) for plan in plans], times, machine_for(problem, counts))
    span = getattr(times, left_out) if left_out else None
    events = [
        event for event in schedule.events()
        if span is None or not (
            event.kind is EventKind.TRANSFER and span.start_s[1] <= event.start_s and event.end_s <= span.end_s[1]
            and event.end_s > event.start_s
        )
    ]  # fmt: skip
    return check(schedule_from_events(schedule.graph, schedule.topology, events, schedule.name))


@pytest.mark.parametrize(("left_out", "rule"), [("relay_write", Rule.INPUT_STALE), ("relay_fetch", Rule.INPUT_MISSING)])
def test_a_relay_that_is_left_out_is_caught(left_out: str, rule: Rule) -> None:
    assert relayed("").valid
    assert rule in relayed(left_out).violation_counts


def test_rows_that_are_sent_to_the_first_batch_are_refused() -> None:
    def change(actions: list[Actions]) -> None:
        actions[0] = replace(actions[0], fetched_by=np.full_like(actions[0].fetched_by, SENT_NOW))

    with pytest.raises(InputError, match="batch 0 has rows sent now, when no batch has used them yet"):
        replayed(change)


def test_a_rooted_row_without_a_root_is_refused() -> None:
    with pytest.raises(InputError, match="private_to: must be a trainer where users fetch or send a row, got -1"):
        replayed(changed("private_to", -1, several))


@pytest.mark.thorough("3", "4")
@pytest.mark.parametrize("seed", [0, 3, 4])
def test_gradients_are_gathered_within_their_activity_to_the_last_bit(seed: int) -> None:
    """Sums of durations in another order may end a bit later than the activity, and after the next batch's start."""
    chance = np.random.default_rng(seed)
    lengths = 1 + chance.integers(0, 4, (60, 2))
    bags = Bags(chance.integers(0, 24, int(lengths.sum())), lengths)
    plan = bagpipe.solve(bags, trainers=2, batch_size=3, lookahead=5, design="lrpp-fine-grained", dimension=5)
    assert plan.report.valid, plan.report.summary()
