"""A trainer's memory is shared out: gradients, rows with state, tables that stay; and the replay stays within it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless import bagpipe
from gapless.checker import Rule, check
from gapless.encodings.bagpipe.advice.memory import fits, within_memory
from gapless.encodings.bagpipe.lowering.actions import SHARED, SYNC_LATER, SYNC_NOW
from gapless.encodings.bagpipe.question import DESIGNS
from gapless.errors import InputError
from gapless.ir.schedule import Ragged
from gapless.options import Deadline, SolveOptions

LATE: dict[str, Any] = {"forward": "1ms", "backward": "2ms", "fetch_latency": "25ms", "dimension": 4, "model": "dlrm"}
"""A round trip of several iterations."""


def ids(seed: int, rows: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(rows, size=(160, 2))


def planned(memory: int | None, trace: object, **asked: Any) -> Any:
    return bagpipe.solve(trace, **{"trainers": 2, "batch_size": 8, "memory": memory, **asked})


def held_gradients(found: Any) -> int:
    """Of how many rows a trainer has gradients at most, by what each batch of a plan does."""
    batches = [found.windows.actions(number) for number in range(found.windows.count)]
    most, left = 0, np.zeros(2, dtype=np.int64)
    for batch in batches:
        trainers = np.arange(2)
        on_all = (batch.private_to == SHARED)[:, None] & np.ones(2, dtype=np.bool_)
        sums = on_all | (batch.private_to[:, None] == trainers)
        later, now = ((batch.sync == sync)[:, None] for sync in (SYNC_LATER, SYNC_NOW))
        in_passes = batch.users.sum(axis=0) + left
        at_once = (batch.users | (sums & now)).sum(axis=0)
        left = ((batch.users | sums) & later).sum(axis=0)
        most = max(most, *in_passes.tolist(), *at_once.tolist(), *left.tolist())
    return most


@pytest.mark.parametrize(
    ("design", "rows"), [("partitioned", 6), ("lrpp", 6), ("lrpp-delayed", 11), ("lrpp-fine-grained", 7)]
)
def test_gradients_that_are_freed_before_the_next_batch_take_no_memory_beside_its_own(design: str, rows: int) -> None:
    """Batches of 4 x 3: one row is in all examples of its batch alone, one in all batches, the others once."""
    once = np.arange(12).reshape(3, 4)
    shared = np.repeat(np.arange(100, 103), 4).reshape(3, 4)
    trace = np.stack([once, shared, np.full((3, 4), 7)], axis=2).reshape(12, 3)
    found = planned(10**5, trace, batch_size=4, dimension=8, design=design)
    assert found.valid
    assert found.details["memory_gradient_bytes"] == rows * 8 * 4
    assert held_gradients(found) <= rows
    assert 0 < max(found.report.peak_bytes[6:]) <= held_gradients(found) * 8 * 4


@examples(30, cases=4)
@given(
    seed=st.integers(0, 10**6), design=st.sampled_from(["auto", *DESIGNS]), optimizer=st.sampled_from(["sgd", "adam"]),
    memory=st.integers(12_000, 60_000), lookahead=st.sampled_from([None, 3]),
)  # fmt: skip
def test_the_parts_are_within_the_memory_and_rows_within_theirs(seed: int, memory: int, **asked: Any) -> None:
    found = planned(memory, ids(seed), dimension=8, **asked)
    assert found.valid, found.report.summary()
    parts = [found.details[f"memory_{name}_bytes"] for name in ("gradient", "cache", "table")]
    assert sum(parts) <= memory
    assert min(parts[:2]) > 0 <= parts[2] >= found.details.get("replicated_bytes", 0)
    row_bytes = 8 * 4 * (3 if asked["optimizer"] == "adam" else 1)
    assert held_gradients(found) * 8 * 4 <= parts[0] <= 2 * 16 * 8 * 4
    assert max(found.report.peak_bytes[6:]) <= held_gradients(found) * 8 * 4
    replicas = found.report.peak_bytes[3]
    assert replicas <= parts[1] + found.details.get("replicated_bytes", 0)
    assert found.details["cache_rows_peak"] * row_bytes <= parts[1] + found.details.get("replicated_bytes", 0)
    assert found.details["smallest_lookahead"] <= (asked["lookahead"] or 200)


@pytest.mark.parametrize("design", ["partitioned", "lrpp-delayed", "lrpp-fine-grained"])
def test_gradients_that_are_never_freed_or_are_more_than_was_set_aside_exceed_the_memory(
    design: str, tmp_path: Path
) -> None:
    found = planned(4 * 10**4, ids(4), dimension=8, design=design)
    schedule, gradients = found.schedule, found.windows.machine.gradients(0)
    assert check(schedule).valid
    of_trainer = schedule.freed_device.values == gradients
    kept = schedule.freed_device.owner[of_trainer]
    frees = [[] if row in kept else list(event.frees) for row, event in enumerate(schedule.events())]
    held = replace(
        schedule,
        freed_tensor=Ragged.of([tensor for tensor, _ in each] for each in frees),
        freed_device=Ragged.of([device for _, device in each] for each in frees),
    )
    assert set(check(held).violation_counts) == {Rule.MEMORY_EXCEEDED}
    assert {violation.device for violation in check(held).violations} == {gradients}
    peak = max(found.report.peak_bytes[6:])
    machine = replace(found.windows.machine, gradient_bytes=peak - 1)
    report = replace(found.windows, machine=machine).replay()
    assert set(report.violation_counts) == {Rule.MEMORY_EXCEEDED}
    found.save(tmp_path / "run.npz")
    again = gapless.load(tmp_path / "run.npz")
    assert again.windows.machine.gradient_bytes == found.details["memory_gradient_bytes"]
    assert again.check().peak_bytes == found.report.peak_bytes


def test_a_baseline_whose_gradients_take_more_than_is_set_aside_does_not_fit() -> None:
    asked = bagpipe.problem(ids(0), trainers=2, batch_size=8, memory=10**5, dimension=8)
    chosen, shared = within_memory(asked, Deadline(SolveOptions()))
    delayed = replace(chosen, planning=replace(chosen.planning, design="lrpp-delayed", objective="paper"))
    assert fits(chosen, shared)
    assert not fits(delayed, shared)


def test_more_memory_is_a_longer_lookahead_where_fetches_take_long_and_none_where_they_do_not() -> None:
    trace = ids(1, 10_000)
    tight, roomy = (planned(memory, trace, batches=20, **LATE) for memory in (600, 10_000))
    assert tight.details["smallest_lookahead"] < 4 < roomy.details["smallest_lookahead"]
    assert roomy.report.makespan_s < 0.6 * tight.report.makespan_s
    fast = planned(10_000, trace, batches=20, **{**LATE, "fetch_latency": "0ms"})
    assert fast.details["smallest_lookahead"] < roomy.details["smallest_lookahead"]


def test_memory_that_a_batch_does_not_fit_into_is_refused_with_what_does(tmp_path: Path) -> None:
    trace = np.arange(64).reshape(32, 2)
    with pytest.raises(
        InputError, match="memory: must hold the 16 rows of a batch, and the gradients of 8: 4,608 bytes"
    ):
        planned(4607, trace)
    found = planned(4608, trace)
    assert found.details["smallest_lookahead"] == 1
    found.save(tmp_path / "run.npz")
    assert gapless.load(tmp_path / "run.npz").check().valid
    again = planned(4608, trace, resume=str(tmp_path / "run.npz"))
    assert again.report.makespan_s == found.report.makespan_s


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cache_rows": 50}, "cache_rows: give it or memory, which decides it, not both; got 50"),
        ({"replicate_budget": 10**4}, "replicate_budget: give it or memory, which decides it, not both; got 10000"),
        ({"design": "table-wise"}, "memory: goes with a design of replicated, partitioned, lrpp"),
    ],
)
def test_what_memory_decides_is_not_given_too(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planned(10**6, ids(0), **asked)


def test_tables_get_what_the_cache_leaves() -> None:
    """Slow servers and few rows: all of them are worth to stay."""
    found = planned(
        10**6, "zipf", table_rows=(30, 400), examples=400, design="lrpp-delayed", server_bandwidth="10Mbps",
        trainer_bandwidth="100Gbps",
    )  # fmt: skip
    assert found.valid, found.report.summary()
    assert found.decision.replicated_tables
    assert 0 < found.details["replicated_bytes"] <= found.details["memory_table_bytes"]
