"""Runs of all designs, carried out by processes: the tables' bits, what moves, and when on emulated links."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from carried_runs import carried, cluster, on_placement, run_of

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.execution.report import moved_rows, values_apart
from gapless.encodings.bagpipe.question import DESIGNS, LAYOUTS, SHARDED
from gapless.encodings.bagpipe.training.reference import trained_in_parts
from gapless.torch.embeddings.alone import distances, trained_alone

pytestmark = pytest.mark.usefixtures("one_thread")

CLUSTERS = {
    "apart": cluster(2, "rowwise-adagrad", servers=2),
    "same-network": on_placement(cluster(3), "same-network"),
    "colocated": on_placement(cluster(3), "colocated"),
}


@cache
def on(name: str) -> Any:
    """What comes of all designs on a cluster; on three trainers with unequal shares, and one with a table on all."""
    of: Cluster = CLUSTERS[name]
    given = {"shares": (3.0, 2.0, 1.0)} if of.trainers == 3 else {}
    runs = {design: (run_of(design, of, **given), design) for design in LAYOUTS}
    if given:
        runs["table-on-all"] = run_of("lrpp-delayed", of, replicated=(1,), **given), "lrpp-delayed"
    optimizer = "rowwise-adagrad" if of.state_bytes else "sgd"
    return runs, *carried(runs, of, optimizer)


WHERE = [
    pytest.param("apart"),
    pytest.param("same-network", marks=pytest.mark.thorough),
    pytest.param("colocated", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("where", WHERE)
def test_tables_have_the_bits_of_training_without_a_cache(where: str) -> None:
    runs, task, to_carry, found = on(where)
    for name, (_, design) in runs.items():
        if design not in SHARDED:
            assert values_apart(task, trained_in_parts(task, to_carry[name].batches), found[name]) == 0, name


@pytest.mark.parametrize("where", WHERE)
def test_all_designs_end_within_rounding_of_whole_batches_in_one_process(where: str) -> None:
    runs, task, to_carry, found = on(where)
    alone = trained_alone(task, to_carry["replicated"].batches)
    for name in runs:
        assert max(distances(task, alone, found[name].of_ranks).values()) < 1e-4, name


@pytest.mark.parametrize("where", WHERE)
def test_rows_move_as_the_plan_says(where: str) -> None:
    runs, _, to_carry, found = on(where)
    for name, (_, design) in runs.items():
        (fetched, got), (evicted, written) = moved_rows(to_carry[name], found[name])
        assert (got, written) == (fetched, evicted), name
        assert (fetched > 0) == (design not in SHARDED), name


@pytest.mark.parametrize("where", WHERE)
def test_messages_are_through_when_the_plan_says(where: str) -> None:
    """But for ranks that are not equally busy, which the plan takes for one exchange, no faster than its busiest."""
    runs, _, _, found = on(where)
    for name, (run, _) in runs.items():
        np.testing.assert_allclose(found[name].emulated_s, run.times.ready_s, rtol=0.01, err_msg=name)


def test_rows_are_relayed_by_servers_that_have_a_network_of_their_own() -> None:
    runs, _, _, found = on("apart")
    assert runs["lrpp-fine-grained"][0].times.is_relayed.any()
    moved = found["lrpp-fine-grained"].moved_rows
    assert 0 < moved["relay_write"] <= moved["relay_fetch"]
    assert {design: "relay_write" in found[design].moved_rows for design in DESIGNS}["lrpp-delayed"] is False
