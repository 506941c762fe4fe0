"""The question in plain values: what is not said is as the documentation says, what is wrong is named."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from bagpipe_batches import find_cluster

from gapless import bagpipe
from gapless.encodings.bagpipe.advice.advise import advise
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.problem import Planning, problem
from gapless.encodings.bagpipe.question import DESIGNS, TRAINER_FLOPS_PER_S
from gapless.errors import InputError

IDS = np.arange(400).reshape(200, 2) % 37


def test_a_question_has_defaults() -> None:
    asked = problem(IDS, trainers=2, batch_size=10)
    assert (asked.planning.lookahead, asked.planning.cache_rows, asked.planning.batches) == (200, None, 50)
    assert asked.cluster == find_cluster(2, batch_size=10)
    assert asked.cluster.ideal_s < Cluster(2).ideal_s  # 5 examples each instead of 2,048
    assert problem(IDS, trainers=2, batch_size=10, cache_rows=90).planning.lookahead is None


def test_a_cluster_is_that_of_its_model_where_nothing_else_is_said() -> None:
    assert asdict(find_cluster(8)) == pytest.approx(asdict(Cluster(8)))
    assert find_cluster(8, trainer_flops=2 * TRAINER_FLOPS_PER_S).forward_s == pytest.approx(Cluster(8).forward_s / 2)
    cluster = find_cluster(
        4, model="deepfm", dimension=16, server_bandwidth=12.5e9, fetch_latency=2.7, control=0.0, forward=1e-3
    )
    assert (cluster.trainers, cluster.row_bytes, cluster.server_bytes_per_s) == (4, 64, 12.5e9)
    assert (cluster.fetch_latency_s, cluster.control_s, cluster.forward_s) == (2.7, 0, 1e-3)
    assert cluster.dense_bytes == 4 * 33_851_283
    assert cluster.backward_s == pytest.approx(4 * 90_624 * 2048 / TRAINER_FLOPS_PER_S)


def test_advice_has_plain_values_and_a_text() -> None:
    advice = advise(IDS, trainers=2, batch_size=10, lookahead=3, forward=1e-3)
    assert advice.data["cluster"]["forward_s"] == 1e-3
    assert [row["design"] for row in advice.data["designs"]] == list(DESIGNS)
    assert advice.text.splitlines()[-1].startswith("best: ")
    tuned = advise(IDS, trainers=2, batch_size=10, cache_size=192 * 37)
    assert tuned.data["tuning"]["cache_rows"] == 37


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"objective": "cost"}, "objective: must be one of auto, paper, .*, time, got 'cost'"),
        ({"design": "lrp"}, "design: must be one of replicated, .*; did you mean 'lrpp'"),
        ({"cache_rows": 9, "cache_size": 999}, "cache_rows: give it or cache_size, not both"),
        ({"cache_size": 10}, "cache_size: must hold a row of 192 bytes, got 10"),
        ({"model": "dlmr"}, "model: must be one of .*, got 'dlmr'; did you mean"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        advise(IDS, trainers=2, batch_size=10, **options)


@pytest.mark.parametrize(
    ("optimizer", "row_bytes"), [("sgd", 64), ("rowwise-adagrad", 68), ("adagrad", 128), ("adam", 192)]
)
def test_state_of_the_optimizer_moves_with_the_row_and_not_with_its_gradient(optimizer: str, row_bytes: int) -> None:
    cluster = find_cluster(4, dimension=16, optimizer=optimizer)
    assert (cluster.row_bytes, cluster.gradient_bytes) == (row_bytes, 64)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_run_with_state_replays_and_only_its_servers_are_slower(design: str) -> None:
    ids = np.random.default_rng(0).integers(0, 60, (80, 3))
    asked: dict[str, Any] = {"trainers": 4, "batch_size": 16, "lookahead": 2, "design": design, "latency": 0.0}
    plain, adam = (bagpipe.solve(ids, **asked, optimizer=name) for name in ("sgd", "adam"))
    assert plain.report.valid
    assert adam.report.valid
    times, others = adam.windows.times, plain.windows.times
    for name in ("sync_now", "sync_later"):
        mine, plain_s = getattr(times, name).duration_s, getattr(others, name).duration_s
        if design == "lrpp-fine-grained":  # a row is sent with its state
            assert (mine >= plain_s - 1e-12).all()
        else:
            np.testing.assert_allclose(mine, plain_s)
    if design == "lrpp-fine-grained":
        assert times.is_relayed.any()
        np.testing.assert_allclose(times.relay_fetch.duration_s, 3 * others.relay_fetch.duration_s)
    for name in ("prefetch", "write_late"):
        np.testing.assert_allclose(getattr(times, name).duration_s, 3 * getattr(others, name).duration_s)


@pytest.mark.parametrize("state_bytes", [-1, 192])
def test_state_is_a_part_of_the_row(state_bytes: int) -> None:
    with pytest.raises(
        InputError, match=f"state_bytes must be >= 0 and below the 192 bytes of a row, got {state_bytes}"
    ):
        Cluster(2, state_bytes=state_bytes)


def test_shares_give_trainers_their_parts_of_each_batch() -> None:
    ids = np.random.default_rng(0).integers(0, 60, (80, 3))
    plan = bagpipe.solve(ids, trainers=4, batch_size=16, lookahead=2, shares=[3, 2, 2, 1])
    assert plan.report.valid
    for trainer in map(plan.windows.trainer, range(plan.windows.count)):
        assert np.bincount(trainer).tolist() == [6, 4, 4, 2]


@pytest.mark.parametrize(
    ("shares", "rule"),
    [
        ([3, 2, 1], "shares: must be one per trainer, 4 in all, got 3"),
        ([3, 2, 1, 0], "shares: must be > 0, got 0 for trainer 3; leave such a trainer out"),
        ([3, 2, 1, float("nan")], "shares: must be > 0, got nan for trainer 3"),
    ],
)
def test_wrong_shares_are_refused(shares: list[float], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        Planning(4, 16, shares=tuple(shares))
