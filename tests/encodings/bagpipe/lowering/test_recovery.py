"""A lost trainer: its successor gets the others' state and trains the batch again; the replay misses what it lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapless.checker import Rule, check
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.lowering.recovery import recovery_schedule
from gapless.errors import InputError
from gapless.ir.schedule import schedule_from_events

CLUSTER = Cluster(8)
ROWS = 3_529_063
"""Of L = 200 on a Criteo-like trace."""


def test_recovery_takes_as_long_as_the_state_on_one_network_and_a_batch() -> None:
    report = check(recovery_schedule(CLUSTER, ROWS, batch=7, lost=2, checkpoint_s=0.1))
    assert report.valid, report.summary()
    state_s = (CLUSTER.dense_bytes + ROWS * 192) / 1.25e9 + 7 * CLUSTER.latency_s
    assert report.makespan_s == pytest.approx(0.1 + state_s + CLUSTER.forward_s + CLUSTER.backward_s, rel=1e-6)
    assert report.makespan_s < 60  # Figure 5.13
    assert check(recovery_schedule(CLUSTER, ROWS, batch=7, lost=2)).makespan_s == pytest.approx(0.56, abs=0.005)


@pytest.mark.parametrize("lost", [0, 1])
def test_any_of_two_trainers_can_be_lost(lost: int) -> None:
    assert check(recovery_schedule(replace(CLUSTER, trainers=2), 10, batch=0, lost=lost)).valid


@pytest.mark.parametrize("place", [3, 8, 14])
def test_a_step_that_is_left_out_is_missed(place: int) -> None:
    """The fourth survivor's checkpoint, a slice to the new trainer, and putting them together."""
    schedule = recovery_schedule(CLUSTER, ROWS, batch=7, lost=2)
    events = [event for k, event in enumerate(schedule.events()) if k != place]
    found = check(schedule_from_events(schedule.graph, schedule.topology, events, schedule.name))
    assert Rule.INPUT_MISSING in found.violation_counts


def test_a_copy_faster_than_the_network_is_too_short() -> None:
    slow = recovery_schedule(CLUSTER, ROWS, batch=7, lost=2)
    fast = recovery_schedule(replace(CLUSTER, trainer_bytes_per_s=1e10), ROWS, batch=7, lost=2)
    found = check(schedule_from_events(slow.graph, slow.topology, list(fast.events()), "too fast"))
    assert Rule.DURATION_TOO_SHORT in found.violation_counts


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"lost": 8}, r"lost: must be a trainer of at least two, in 0\.\.7, got 8 of 8"),
        ({"cache_rows": -1}, "cache_rows: must be finite and >= 0, got -1"),
        ({"checkpoint_s": float("nan")}, "checkpoint_s: must be finite and >= 0, got nan"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, float], rule: str) -> None:
    asked: dict[str, float] = {"cache_rows": 10, "batch": 1, "lost": 0, **changes}
    with pytest.raises(InputError, match=rule):
        recovery_schedule(CLUSTER, **asked)  # type: ignore[arg-type]
