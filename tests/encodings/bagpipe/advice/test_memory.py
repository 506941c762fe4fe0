"""A trainer's memory is shared out: gradients, cached rows with state, tables that stay; the replay counts rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless import bagpipe
from gapless.encodings.bagpipe.question import DESIGNS
from gapless.errors import InputError

LATE: dict[str, Any] = {"forward": "1ms", "backward": "2ms", "fetch_latency": "25ms", "dimension": 4, "model": "dlrm"}
"""A round trip of several iterations."""


def ids(seed: int, rows: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(rows, size=(160, 2))


def planned(memory: int | None, trace: object, **asked: Any) -> Any:
    return bagpipe.solve(trace, **{"trainers": 2, "batch_size": 8, "memory": memory, **asked})


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
    largest = max(len(np.unique(np.add(batch, [0, 100]))) for batch in ids(seed).reshape(20, 8, 2))
    assert parts[0] == 2 * min(largest, 8) * 8 * 4, "gradients of two batches, of a trainer's 4 x 2 lookups"
    replicas = found.report.peak_bytes[3]
    assert replicas <= parts[1] + found.details.get("replicated_bytes", 0)
    assert found.details["cache_rows_peak"] * row_bytes <= parts[1] + found.details.get("replicated_bytes", 0)
    assert found.details["smallest_lookahead"] <= (asked["lookahead"] or 200)


def test_more_memory_is_a_longer_lookahead_where_fetches_take_long_and_none_where_they_do_not() -> None:
    trace = ids(1, 10_000)
    tight, roomy = (planned(memory, trace, batches=20, **LATE) for memory in (600, 10_000))
    assert tight.details["smallest_lookahead"] < 4 < roomy.details["smallest_lookahead"]
    assert roomy.report.makespan_s < 0.6 * tight.report.makespan_s
    fast = planned(10_000, trace, batches=20, **{**LATE, "fetch_latency": "0ms"})
    assert fast.details["smallest_lookahead"] < roomy.details["smallest_lookahead"]


def test_memory_that_a_batch_does_not_fit_into_is_refused_with_what_does(tmp_path: Path) -> None:
    trace = np.arange(64).reshape(32, 2)
    with pytest.raises(InputError, match="memory: must hold the 16 rows of a batch, and gradients of two: 6,144 bytes"):
        planned(6143, trace)
    found = planned(6144, trace)
    assert found.details["smallest_lookahead"] == 1
    found.save(tmp_path / "run.npz")
    assert gapless.load(tmp_path / "run.npz").check().valid
    again = planned(6144, trace, resume=str(tmp_path / "run.npz"))
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
