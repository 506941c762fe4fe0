"""A run of `--design auto` is behind no baseline, and is one where that is faster."""

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
from gapless.encodings.bagpipe import Parameters, Search
from gapless.encodings.bagpipe.parameters import Baselines

SLOW_SERVERS: dict[str, Any] = {"lookahead": 1, "server_bandwidth": "10Mbps"}


def ids(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 30, (64, 2))


@examples(30, cases=4)
@given(
    seed=st.integers(0, 10**6), lookahead=st.integers(1, 3), placement=st.sampled_from(["apart", "same-network"]),
    server_bandwidth=st.sampled_from(["10Mbps", "1Gbps", "25Gbps"]), fetch_latency=st.sampled_from(["0s", "50ms"]),
)  # fmt: skip
def test_no_baseline_is_ahead(seed: int, **asked: Any) -> None:
    found = bagpipe.solve(ids(seed), trainers=2, batch_size=8, **asked)
    assert found.report is not None
    assert found.valid, found.report.summary()
    for name in ("partitioned", "lrpp-delayed", "lrpp-fine-grained"):
        alone = bagpipe.solve(ids(seed), trainers=2, batch_size=8, design=name, **asked)
        assert found.report.makespan_s <= alone.report.makespan_s * (1 + 1e-9)
        compared = found.details.get("compared_s", {})
        assert alone.report.makespan_s == pytest.approx(compared.get(name, alone.report.makespan_s))


def test_a_faster_baseline_is_the_plan_that_is_written(tmp_path: Path) -> None:
    found = bagpipe.solve(ids(0), trainers=2, batch_size=8, **SLOW_SERVERS)
    assert found.decision.design == "partitioned"
    found.save(tmp_path / "run.npz")
    saved = gapless.load(tmp_path / "run.npz")
    assert saved.check().valid
    assert saved.decision.design == "partitioned"
    again = bagpipe.solve(ids(0), trainers=2, batch_size=8, **SLOW_SERVERS, resume=str(tmp_path / "run.npz"))
    assert again.decision.design == "partitioned"
    assert again.report.makespan_s == found.report.makespan_s


def test_more_rounds_of_search_never_end_behind_the_rounds_by_default() -> None:
    for seed in range(3):
        asked: dict[str, Any] = {"trainers": 2, "batch_size": 16, "lookahead": 2}
        few, many = (
            bagpipe.solve(ids(seed), **asked, parameters=Parameters(search=Search(rounds=rounds)))
            for rounds in (24, 100)
        )
        assert "24 rounds" in many.details.get("compared_s", {"24 rounds": 0.0})
        assert many.report.makespan_s <= few.report.makespan_s


@pytest.mark.parametrize("asked", [{"design": "lrpp-fine-grained"}, {"objective": "paper"}, {"time_limit": 100.0}])
def test_nothing_is_compared_where_something_else_is_asked(asked: dict[str, Any]) -> None:
    found = bagpipe.solve(ids(0), trainers=2, batch_size=8, **SLOW_SERVERS, **asked)
    assert "compared_s" not in found.details
    assert found.decision.design == "lrpp-fine-grained"


def test_a_longer_run_is_compared_by_its_first_batches() -> None:
    few = Parameters(baselines=Baselines(batches=3))
    found = bagpipe.solve(ids(0), trainers=2, batch_size=8, lookahead=2, parameters=few)
    assert found.details["compared_batches"] == 3
    assert max(found.details["compared_s"].values()) < found.report.makespan_s
