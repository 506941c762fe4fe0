"""Partitions for the cache that runs: exact where it is small, between bound and start where it isn't."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe import Bound, Parameters, Planning, Search
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.parameters import Synchronised
from gapless.encodings.bagpipe.partition.batch import add_uses
from gapless.encodings.bagpipe.partition.bounds import away_bound
from gapless.encodings.bagpipe.partition.cuts import Cuts, Past, Terminal
from gapless.encodings.bagpipe.partition.windows import Window, WindowBatch
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.generators import zipf_trace

FINE = "lrpp-fine-grained"
QUICK = Parameters(bound=Bound(rounds=0))


def plans(seed: int = 0, trainers: int = 4, parameters: Parameters = QUICK, **settings: object) -> list[BatchPlan]:
    asked = {"lookahead": 3, "design": FINE, "objective": "synchronised", **settings}
    planning = Planning(trainers, 64, **asked)  # type: ignore[arg-type]
    return list(batch_plans(zipf_trace((400, 900, 60), 1.1, 640, seed), planning, parameters))


def small_window(seed: int, batches: int, examples: int = 4, trainers: int = 2) -> tuple[list[WindowBatch], Past]:
    """Batches of few examples with two rows each, and a past in which about half of the rows were used at once."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 6, (batches, examples, 2)) + np.array([0, 100])
    window = []
    for number, batch in enumerate(ids):
        own, index = np.unique(batch, return_inverse=True)
        in_next = np.isin(own, ids[number + 1]) if number + 1 < batches else rng.random(len(own)) < 0.5
        evicted = ~in_next & (rng.random(len(own)) < 0.7)
        places = np.full(trainers, examples // trainers)
        window.append(WindowBatch(index.reshape(batch.shape).astype(np.int32), own, in_next, evicted, places))
    rows = len(window[0].ids)
    at_once = rng.random(rows) < 0.6
    past = Past(np.where(at_once, rng.integers(0, trainers, rows), -1), at_once & (rng.random(rows) < 0.7), at_once)
    return window, past


def best_by_hand(window: list[WindowBatch], past: Past, is_rooted: bool) -> int:
    """The least number of rows that are synchronised over all partitions of all batches."""
    splits = [sorted(set(permutations(np.repeat(np.arange(len(b.places)), b.places).tolist()))) for b in window]
    least = 10**9
    for trainers in product(*splits):
        users = [
            {id_: {t for t, uses in zip(trainer, batch.index, strict=True) if row in uses}
             for row, id_ in enumerate(batch.ids.tolist())}
            for batch, trainer in zip(window, trainers, strict=True)
        ]  # fmt: skip
        if is_rooted:
            cost = sum(
                bool(at_once) and not (alone and users[0][id_] == {root})
                for id_, root, alone, at_once in zip(window[0].ids.tolist(), past.root, past.alone, past.at_once,
                                                     strict=True)
            )  # fmt: skip
            for one, other in pairwise(users):
                cost += sum(not (len(one[id_]) == 1 and one[id_] == other[id_]) for id_ in one if id_ in other)
        else:
            cost = sum(
                not (evicted and len(used[id_]) == 1)
                for batch, used in zip(window, users, strict=True)
                for id_, evicted in zip(batch.ids.tolist(), batch.evicted, strict=True)
            )
        least = min(least, cost)
    return least


@pytest.mark.parametrize("batches", [1, 2, 3])
@examples(30, cases=3)
@given(seed=st.integers(0, 10**6), is_rooted=st.booleans())
def test_a_small_window_is_solved_exactly(seed: int, batches: int, is_rooted: bool) -> None:
    window, past = small_window(seed, batches)
    optimum = best_by_hand(window, past, is_rooted)
    parameters = Parameters(bound=Bound(rounds=20))
    whole = Window(tuple(window), past, is_rooted, parameters)
    exact, searched = whole.modelled(SolveOptions()), whole.searched(SolveOptions())
    assert exact is not None
    assert sum(each.value for each in exact) == optimum == sum(each.bound or 0 for each in exact)
    assert sum(each.value for each in searched) >= optimum
    for each in searched:
        assert each.bound is not None
        assert each.bound <= each.value
    if batches == 1:
        assert searched[0].bound is not None
        assert searched[0].bound <= optimum


@pytest.mark.parametrize("window", [2, 3])
def test_a_run_in_exact_windows_synchronises_no_more_than_one_in_searched_windows(window: int) -> None:
    """Four batches of a run: windows of two, or one of three and one of one."""
    trace, parameters = zipf_trace((6, 9), 1.1, 16, 1), replace(QUICK, synchronised=Synchronised(window=window))
    planning = Planning(2, 4, lookahead=3, design=FINE, objective="synchronised")
    exact, searched = (
        list(batch_plans(trace, replace(planning, method=method), parameters)) for method in ("milp", "search")
    )
    first = slice(0, window)  # the windows after it depend on what the first one has chosen
    values = [sum(plan.partition.value for plan in plans[first]) for plans in (exact, searched)]
    assert values[0] <= values[1]
    assert values[0] == sum(plan.partition.bound or 0 for plan in exact[first])
    assert counted(exact).rooted.moved_now.tolist() == [plan.partition.value for plan in exact]


@examples(20)
@given(seed=st.integers(0, 10**6))
def test_no_partition_beats_the_bound(seed: int) -> None:
    window, past = small_window(seed, 1, examples=6, trainers=3)
    root = np.where(past.alone, past.root, -1)
    bound = away_bound(window[0].index, root, window[0].places, Bound(rounds=30), Deadline(SolveOptions()))
    fixed = int(np.count_nonzero(past.at_once & ~past.alone))
    assert bound + fixed <= best_by_hand(window, past, True)


@pytest.mark.parametrize("design", ["lrpp-delayed", FINE])
@pytest.mark.parametrize("method", ["search", "transport", "contiguous", "random"])
def test_the_value_is_what_the_run_synchronises(design: str, method: str) -> None:
    found = plans(design=design, method=method)
    counts, values = counted(found), [plan.partition.value for plan in found]
    assert {plan.partition.objective for plan in found} == {"synchronised"}
    if design == FINE:
        assert values == counts.rooted.moved_now.tolist()
    else:
        assert values == (counts.distinct - counts.private).tolist()
    for plan in found:
        assert np.bincount(plan.trainer, minlength=4).tolist() == [16] * 4


def test_search_synchronises_less_than_the_papers_optimum_and_a_window_less_than_batches() -> None:
    def at_once(**settings: object) -> int:
        return int(counted(plans(**settings)).rooted.moved_now.sum())  # type: ignore[arg-type]

    papers, start, own = at_once(objective="paper"), at_once(method="transport"), at_once()
    together = at_once(parameters=replace(QUICK, synchronised=Synchronised(window=5)))
    assert together < own <= start < papers
    assert own < 0.8 * papers


def test_rows_that_are_not_private_fall_to_their_bound() -> None:
    found = plans(design="lrpp-delayed", parameters=Parameters(Search(rounds=200), Bound(rounds=1)))
    contiguous = plans(design="lrpp-delayed", method="contiguous")
    for plan, other in zip(found, contiguous, strict=True):
        assert plan.partition.bound is not None
        assert plan.partition.bound <= plan.partition.value <= other.partition.value
    assert sum(plan.partition.value for plan in found) < sum(plan.partition.value for plan in contiguous)


def test_windows_hold_what_is_left_of_a_trace() -> None:
    """Ten batches, four together: two windows and a half."""
    found = plans(parameters=replace(QUICK, synchronised=Synchronised(window=4)))
    assert [plan.step.batch for plan in found] == list(range(10))


def test_marginal_costs_are_what_one_more_example_costs() -> None:
    rng = np.random.default_rng(3)
    index = rng.permuted(np.tile(np.arange(12), (10, 1)), axis=1)[:, :3].astype(np.int32)
    cuts = Cuts(
        index, 3, (Terminal(rng.integers(-1, 3, 12), 1.0), Terminal(rng.integers(-1, 3, 12), 1.0)),
        rng.integers(0, 3, 12) / 2.0, rng.integers(0, 3, 12) / 4.0, rng.integers(-1, 3, 12),
    )  # fmt: skip
    trainer = rng.integers(0, 3, 10)
    counts = cuts.counts(trainer)
    add_uses(index, counts, np.array([7]), trainer[7:8], -1)
    without, marginal = cuts.cost(counts), cuts.marginal_costs(np.array([7]), counts)[0]
    for other in range(3):
        placed = counts.copy()
        add_uses(index, placed, np.array([7]), np.array([other]), 1)
        assert cuts.cost(placed) - without == pytest.approx(marginal[other] / 128)


@pytest.mark.parametrize("design", ["replicated", "partitioned"])
def test_an_objective_of_another_design_is_refused(design: str) -> None:
    with pytest.raises(InputError, match=f"synchronised goes with the designs lrpp, .*, got design {design}"):
        Planning(2, 8, objective="synchronised", design=design)
    assert Planning(2, 8, design=design).objective == "paper"
    assert (Planning(2, 8).objective, Planning(2, 8, design=FINE).objective) == ("synchronised", "time")
    assert Planning(2, 8, method="lp").objective == "paper"
