"""Adding takes time, bucket by bucket while the next is received: in plans, rivals, bounds, and what runs read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gapless
from gapless.checker import check
from gapless.encodings.oktopk.allreduce.bounds import step_bound_s
from gapless.encodings.oktopk.allreduce.lowering import StepSizes, lower, received_words
from gapless.encodings.oktopk.allreduce.network import Adding, Network, flat_topology
from gapless.encodings.oktopk.allreduce.others import gtopk, topka, topkdsa
from gapless.encodings.oktopk.commands.advice import advise
from gapless.encodings.oktopk.cuts.boundaries import even_cuts
from gapless.encodings.oktopk.cuts.loads import region_counts
from gapless.ir.schedule import Schedule
from gapless.options import SolveOptions
from gapless.profiles.sparsity.index_file import find_index_sets

RANKS, BYTES_PER_S = 8, 8e6  # an entry takes a microsecond
SETS = find_index_sets("uniform:elements=8000,steps=1,overlap=0", RANKS, 0.08)
CUTS = even_cuts(SETS.elements, RANKS)
SIZES = StepSizes(region_counts(SETS, CUTS)[0], np.diff(np.searchsorted(SETS.global_top(0, 640), CUTS)))


def network(entry_s: float = 0.0, start_s: float = 0.0) -> Network:
    return Network(flat_topology(RANKS, BYTES_PER_S, 0.0), 0.0, Adding(start_s, entry_s))


def planned(on: Network, bucket: int) -> Schedule:
    found = lower(SIZES, np.arange(RANKS), on, "rotation", "direct", False, bucket)
    assert found is not None
    return found


def when_reduced_s(schedule: Schedule) -> float:
    """When the last sum is there."""
    return max(event.end_s for event in schedule.events() if event.op >= 0)


def test_only_the_last_bucket_is_added_after_all_is_received() -> None:
    received = SIZES.counts.sum(axis=0) - SIZES.counts.diagonal()
    last_s = 0.5e-6 * max(SIZES.counts.max(axis=0))
    free_s = when_reduced_s(planned(network(), 0))
    at_once, overlapped = (planned(network(0.5e-6), bucket) for bucket in (0, 1))
    assert check(at_once).valid
    assert check(overlapped).valid
    assert when_reduced_s(at_once) >= 0.5e-6 * received.max() + 1e-6 * received.min()
    assert free_s < when_reduced_s(overlapped) <= free_s + last_s * (1 + 1e-9)
    assert received_words(at_once).tolist() == received_words(overlapped).tolist()


def test_adding_that_is_slower_than_the_network_decides() -> None:
    received = SIZES.counts.sum(axis=0) - SIZES.counts.diagonal()
    assert when_reduced_s(planned(network(10e-6), 1)) >= 10e-6 * received.max()


@pytest.mark.parametrize("entry_s", [0.0, 0.5e-6, 5e-6])
def test_no_allreduce_is_sooner_than_the_bound(entry_s: float) -> None:
    on, union = network(entry_s), SETS.union(0)
    bound_s = step_bound_s(SETS, 0, union, on)
    gathered = [topka(SETS, 0, on, "direct"), topkdsa(SETS, 0, on, "direct")]
    times_s = [check(one).makespan_s for one in gathered if one is not None]
    assert len(times_s) == 2
    assert bound_s <= min(times_s) * (1 + 1e-9)
    assert bound_s >= entry_s * (int(SETS.counts.sum()) - len(union)) / RANKS * (1 - 1e-9)


def test_rivals_pay_for_adding_too() -> None:
    free, paid = network(), network(2e-6)
    for make in (lambda on: topka(SETS, 0, on, "doubling"), lambda on: gtopk(SETS, 0, on)):
        before, after = check(make(free)), check(make(paid))
        assert after.valid, after.summary()
        assert after.makespan_s > before.makespan_s
    entries = int(SETS.counts.sum() - SETS.counts.max())
    assert check(topka(SETS, 0, network(100e-6), "direct")).makespan_s >= 100e-6 * entries


def test_a_plan_takes_the_bucket_that_is_soonest_done(tmp_path: Path) -> None:
    asked = {"ranks": 4, "density": 0.05, "method": "even", "bandwidth": 1e6}
    indices = "clustered:elements=4000,steps=2"
    plain = gapless.oktopk.solve(indices, **asked)
    assert plain.decision.bucket == 0
    eager = gapless.oktopk.solve(indices, **asked, add=1e-6, objective="mean")
    assert eager.decision.bucket == 1
    eager.save(tmp_path / "eager.json")
    rare = gapless.oktopk.solve(indices, **asked, add=1e-9, add_start=1.0)
    assert rare.decision.bucket == 0
    assert rare.report.valid
    assert 1.0 <= rare.report.makespan_s < 1.1
    pytest.importorskip("torch")
    from gapless.torch.sparse.plan import read_sparse_plan

    pairs = {(rank, owner) for rank in range(4) for owner in range(4) if rank != owner}
    assert {route[2:] for route in read_sparse_plan(tmp_path / "eager.json").contributions} == pairs


def test_advice_counts_adding() -> None:
    asked = "clustered:elements=4000,steps=1"
    free, paid = (
        advise(asked, options=SolveOptions(), ranks=4, latency=0.0, add=add_s).rows[0] for add_s in (0.0, 1e-6)
    )
    assert paid.sparse_s > free.sparse_s
    assert paid.topka_s - free.topka_s > paid.sparse_s - free.sparse_s
