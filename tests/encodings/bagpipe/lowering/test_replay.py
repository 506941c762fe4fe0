"""A run replayed window by window: as the whole replay says, and what is broken across a border is found by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.checker import Report, Rule, check
from gapless.encodings.bagpipe import Cluster, Planning, Problem
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import Times, pipeline
from gapless.encodings.bagpipe.lowering import replay as run_replay
from gapless.encodings.bagpipe.lowering.actions import (
    EVERYWHERE,
    NOT_FETCHED,
    SENT_LATER,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
)
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.encodings.bagpipe.lowering.replay import Settled, replay_run
from gapless.encodings.bagpipe.lowering.schedule import Stretch, lowered, to_schedule
from gapless.encodings.bagpipe.solve import machine_for
from gapless.profiles.traces.generators import zipf_trace

TRAINERS, BATCHES, FINE = 3, 14, "lrpp-fine-grained"
EACH_ALONE = 1
"""Rows of a window: a border before each prefetch and each pass."""
ALL_IN_ONE = 10**12
"""Rows of a window: no border."""


@dataclass
class Batches:
    """A run in memory."""

    batches: list[Actions]

    @property
    def rows(self) -> np.ndarray:
        return np.array([len(batch.ids) for batch in self.batches])

    def actions(self, number: int) -> Actions:
        return self.batches[number]


def planned(seed: int = 0, lookahead: int = 2, design: str = "lrpp-delayed") -> tuple[list[Actions], Times, Machine]:
    planning = Planning(TRAINERS, 24, lookahead=lookahead, batches=BATCHES, design=design)
    cluster = Cluster(TRAINERS, fetch_latency_s=1e-3 * (seed % 2))
    problem = Problem(zipf_trace((40, 300, 5), 1.1, 24 * BATCHES, seed), planning, cluster)
    plans = list(batch_plans(problem.trace, planning))
    counts = counted(plans)
    times = pipeline(counts, cluster, design)
    return [Actions.of(plan, design) for plan in plans], times, machine_for(problem, counts)


@examples(40)
@given(
    seed=st.integers(0, 10**6),
    lookahead=st.integers(1, 8),
    design=st.sampled_from(["replicated", "partitioned", "lrpp", "lrpp-delayed", FINE]),
    most_rows=st.sampled_from([EACH_ALONE, 100, 400]),
)
def test_windows_say_what_the_whole_replay_says(seed: int, lookahead: int, design: str, most_rows: int) -> None:
    actions, times, machine = planned(seed, lookahead, design)
    machine = replace(machine, gradient_bytes=10**9)
    whole, parts = check(to_schedule(actions, times, machine)), replay_run(Batches(actions), times, machine, most_rows)
    assert whole.valid
    assert parts.valid, parts.summary()
    assert parts.makespan_s == whole.makespan_s
    assert parts.event_count == whole.event_count
    assert parts.peak_bytes[1:] == whole.peak_bytes[1:]  # of the servers' rows, windows see those that are at hand
    assert parts.busy_s.links == pytest.approx(whole.busy_s.links)
    assert parts.busy_s.engines == pytest.approx(whole.busy_s.engines)
    assert parts.busy_s.resources == pytest.approx(whole.busy_s.resources)


def with_change(actions: list[Actions], title: str, value: int, **wanted: int) -> list[Actions]:
    """One row of these actions is changed, in a batch in the middle."""
    changed = list(actions)
    for number in range(3, len(actions)):
        batch = actions[number]
        chosen = np.logical_and.reduce([getattr(batch, name) == have for name, have in wanted.items()])
        if chosen.any():
            column = getattr(batch, title).copy()
            column[chosen.argmax()] = value
            changed[number] = replace(batch, **{title: column})
            return changed
    raise AssertionError(f"no row with {wanted}")


def rules(report: Report) -> set[Rule]:
    """A read before a later window's write is missing, not late."""
    return {Rule.INPUT_MISSING if rule is Rule.INPUT_LATE else rule for rule in report.violation_counts}


CHANGES: dict[Rule, Callable[[list[Actions]], list[Actions]]] = {
    Rule.INPUT_STALE: lambda actions: with_change(actions, "sync", 0, sync=SYNC_NOW),
    Rule.INPUT_MISSING: lambda actions: with_change(actions, "evicted", 1, sync=SYNC_NOW, evicted=0),
    Rule.REQUIRED_MISSING: lambda actions: with_change(actions, "evicted", 0, sync=SYNC_LATER, evicted=1),
}


@examples(300)
@given(
    seed=st.integers(0, 10**6),
    design=st.sampled_from(["partitioned", "lrpp-delayed", FINE]),
    most_rows=st.sampled_from([EACH_ALONE, 100, 400]),
    title=st.sampled_from(["fetched_by", "sync", "evicted", "private_to"]),
)
def test_a_run_that_any_change_breaks_is_broken_in_any_windows(
    seed: int, design: str, most_rows: int, title: str
) -> None:
    """They name one rule at least that a single window names, and none where that finds nothing."""
    actions, times, machine = planned(seed % 50, design=design)
    chance = np.random.default_rng(seed)
    number, donor = chance.integers(2, BATCHES, 2)
    column = getattr(actions[number], title).copy()
    column[chance.integers(len(column))] = chance.choice(getattr(actions[donor], title))
    actions[number] = replace(actions[number], **{title: column})
    one, parts = (replay_run(Batches(actions), times, machine, rows) for rows in (ALL_IN_ONE, most_rows))
    assert parts.valid == one.valid
    assert one.valid or rules(parts) & rules(one)


@pytest.mark.thorough("fine-grained-1-")
@pytest.mark.parametrize("rule", CHANGES)
@pytest.mark.parametrize("most_rows", [EACH_ALONE, 150])
@pytest.mark.parametrize("design", ["lrpp-delayed", FINE])
def test_what_is_broken_across_a_border_is_found_by_name(rule: Rule, most_rows: int, design: str) -> None:
    actions, times, machine = planned(seed=2, design=design)
    actions = CHANGES[rule](actions)
    whole, parts = check(to_schedule(actions, times, machine)), replay_run(Batches(actions), times, machine, most_rows)
    assert rule in rules(parts)
    assert rules(parts) == rules(whole)


def test_a_synchronisation_skipped_long_before_the_next_use_is_stale() -> None:
    """The row is used again windows later, and nothing happens to it in between."""
    actions, times, machine = planned(seed=1, lookahead=6)
    for number, batch in enumerate(actions):
        later = (batch.sync == SYNC_LATER) & (batch.evicted == 0)
        later &= ~np.isin(batch.ids, np.concatenate([each.ids for each in actions[number + 1 : number + 4]]))
        if later.any():
            break
    sync = batch.sync.copy()
    sync[later.argmax()] = 0
    actions[number] = replace(batch, sync=sync)
    report = replay_run(Batches(actions), times, machine, EACH_ALONE)
    assert Rule.INPUT_STALE in report.violation_counts, report.summary()


@pytest.mark.parametrize("most_rows", [EACH_ALONE, 150])
def test_a_row_written_back_windows_before_its_root_sends_it_is_missing(most_rows: int) -> None:
    actions, times, machine = planned(seed=1, lookahead=6, design=FINE)
    for number, batch in enumerate(actions):
        later = (batch.fetched_by == SENT_LATER) & ~np.isin(batch.ids, actions[number - 3].ids)
        later &= batch.users.sum(axis=1) > 1  # so that it is sent
        if number > 3 and later.any():
            break
    row = batch.ids[later.argmax()]
    last = max(before for before in range(number) if row in actions[before].ids)
    evicted = actions[last].evicted.copy()
    evicted[np.searchsorted(actions[last].ids, row)] = 1
    actions[last] = replace(actions[last], evicted=evicted)
    report = replay_run(Batches(actions), times, machine, most_rows)
    assert Rule.INPUT_MISSING in report.violation_counts
    assert any(f"send {number} later" in found.message for found in report.violations), report.summary()


def test_holders_at_a_border_are_those_that_the_plans_say_and_what_was_written_back_has_none() -> None:
    planning = Planning(TRAINERS, 24, lookahead=5, batches=BATCHES, design=FINE)
    settled, plans = Settled(), list(batch_plans(zipf_trace((40, 300, 5), 1.1, 24 * BATCHES, 3), planning))
    for plan in plans:
        assert np.array_equal(settled.of(plan.step.ids), plan.past.root)
        settled.add(Actions.of(plan, FINE))
    assert (settled.of(np.unique(np.concatenate([plan.step.ids for plan in plans]))) == -1).all()


def test_a_cache_that_is_too_small_is_found_whichever_window_fills_it() -> None:
    actions, times, machine = planned(lookahead=4)
    held = replay_run(Batches(actions), times, machine, EACH_ALONE).peak_bytes[machine.replicas]
    small = replace(machine, cache_rows=held // machine.cluster.row_bytes - 1)
    assert rules(replay_run(Batches(actions), times, small, EACH_ALONE)) == {Rule.MEMORY_EXCEEDED}


def test_a_prefetch_left_out_is_missing() -> None:
    actions, times, machine = planned()
    actions = with_change(actions, "fetched_by", NOT_FETCHED, fetched_by=EVERYWHERE)
    assert Rule.INPUT_MISSING in rules(replay_run(Batches(actions), times, machine, EACH_ALONE))


def test_progress_ends_with_all_batches() -> None:
    actions, times, machine = planned()
    shares: list[float] = []
    replay_run(Batches(actions), times, machine, 100, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(("design", "most"), [("lrpp-delayed", 4), (FINE, 5)])
def test_a_batch_that_waits_between_its_prefetch_and_its_pass_is_in_no_window(
    monkeypatch: pytest.MonkeyPatch, design: str, most: int
) -> None:
    actions, times, machine = planned(lookahead=10, design=design)
    used: list[int] = []

    def counted_lowering(groups: Any, seen: Any, stretch: Stretch, *others: Any) -> Any:
        used.append(len(stretch.trains))
        return lowered(groups, seen, stretch, *others)

    monkeypatch.setattr(run_replay, "lowered", counted_lowering)
    assert replay_run(Batches(actions), times, machine, EACH_ALONE).valid
    assert max(used) <= most
