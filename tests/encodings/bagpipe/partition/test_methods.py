"""One door to all methods: on the paper's objective they agree; beyond it bound, optimum and search are in order."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from bagpipe_batches import click_log_batch, random_batch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe import METHODS, Batch, Bound, Parameters, Search, capacities, cost_matrix
from gapless.encodings.bagpipe.partition.batch import Sharing
from gapless.encodings.bagpipe.partition.methods import IN_ORDER, contiguous, partition
from gapless.encodings.bagpipe.partition.transport import lower_bound
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solution import Solution, Status, StopReason

ONE_THREAD = SolveOptions(threads=1)
BEYOND = ("fetches", "max-load")
OF_A_BATCH = ("paper", *BEYOND)


def value_by_hand(batch: Batch, trainer: np.ndarray, objective: str) -> int:
    """The objective from its definition, with sets."""
    if objective == "paper":
        owners = batch.owner[batch.slot]
        return int(((owners >= 0) & (owners != trainer[:, None])).sum())
    moved = {
        (int(slot), int(place))
        for slots, place in zip(batch.slot, trainer, strict=True)
        for slot in slots
        if batch.owner[slot] != place
    }
    if objective == "fetches":
        return len(moved)
    load = [0] * batch.trainers
    for slot, place in moved:
        load[place] += 1
        if batch.owner[slot] >= 0:
            load[batch.owner[slot]] += 1
    return max(load)


@given(
    seed=st.integers(0, 2**32 - 1), examples=st.integers(0, 25), trainers=st.integers(1, 6),
    objective=st.sampled_from(OF_A_BATCH),
)  # fmt: skip
@examples(60)
def test_a_partition_is_balanced_worth_what_it_says_and_no_better_than_its_bound(
    seed: int, examples: int, trainers: int, objective: str
) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, examples, trainers)
    capacity = rng.multinomial(examples, rng.dirichlet(np.ones(trainers)))
    found = partition(batch, capacity, objective, parameters=Parameters(Search(8), Bound(3)))
    assert found is not None
    assert (np.bincount(found.trainer, minlength=trainers) == capacity).all()
    assert found.value == value_by_hand(batch, found.trainer, objective)
    assert found.bound is not None
    assert found.bound <= found.value
    for baseline in ("contiguous", "random"):
        other = partition(batch, capacity, objective, baseline)
        assert other is not None
        assert (np.bincount(other.trainer, minlength=trainers) == capacity).all()
        assert found.bound <= other.value == value_by_hand(batch, other.trainer, objective)


@pytest.mark.parametrize(("method", "solver"), [("transport", None), ("milp", "highs"), ("milp", "pulp"),
                                                ("milp", "cpsat"), ("lp", "highs"), ("lp", "pulp"),
                                                ("min_cost_flow", None)])  # fmt: skip
def test_every_exact_method_finds_the_papers_optimum(method: str, solver: str | None) -> None:
    batch = click_log_batch(400, 5, seed=3)
    best = partition(batch)
    found = partition(batch, method=method, options=SolveOptions(threads=1, solver=solver))
    assert best is not None
    assert found is not None
    assert found.value == found.bound == best.value
    assert found.bound == found.value


def test_the_prices_prove_the_papers_optimum() -> None:
    batch, capacity = click_log_batch(400, 5), capacities(400, 5)
    best = partition(batch, capacity)
    assert best is not None
    assert best.prices is not None
    assert lower_bound(cost_matrix(batch), capacity, best.prices) == best.value


@pytest.mark.parametrize("objective", BEYOND)
@pytest.mark.parametrize("seed", range(8))
def test_bound_optimum_and_search_are_in_order(objective: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    trainers = 2 + seed % 3
    batch = random_batch(rng, 9, trainers, tables=3, ids=7)
    capacity = rng.multinomial(9, np.full(trainers, 1 / trainers))
    exact = partition(batch, capacity, objective, "milp", options=ONE_THREAD)
    found = partition(batch, capacity, objective)
    assert exact is not None
    assert found is not None
    assert found.bound is not None
    assert exact.bound == exact.value
    assert found.bound <= exact.value <= found.value
    assert found.value <= 1.25 * exact.value + 1


@pytest.mark.parametrize("objective", BEYOND)
def test_cpsat_agrees_beyond_the_paper(objective: str) -> None:
    batch = random_batch(np.random.default_rng(1), 8, 3, tables=3, ids=6)
    values = {
        found.value
        for solver in ("highs", "cpsat")
        if (found := partition(batch, None, objective, "milp", options=SolveOptions(threads=1, solver=solver)))
    }
    assert len(values) == 1


@pytest.mark.parametrize("objective", BEYOND)
def test_the_bound_is_the_optimum_where_no_id_is_shared(objective: str) -> None:
    slot = np.arange(120).reshape(30, 4)
    batch = Batch(slot, np.random.default_rng(0).integers(-1, 3, 120), 3)
    found, papers = partition(batch, None, objective), partition(batch)
    assert found is not None
    assert papers is not None
    if objective == "fetches":
        assert found.bound == found.value
        assert found.value == papers.value + int((batch.owner < 0).sum())
    else:
        assert found.gap is not None
        assert found.gap < 0.1


@pytest.mark.parametrize("objective", BEYOND)
def test_search_beats_the_papers_optimum_on_a_click_log(objective: str) -> None:
    batch = click_log_batch(4096, 8)
    papers, found = partition(batch, None, objective, "transport"), partition(batch, None, objective)
    assert papers is not None
    assert found is not None
    assert found.bound is not None
    assert found.details["of_papers_optimum"] == papers.value
    assert found.value < 0.9 * papers.value
    assert 0.7 * found.value < found.bound <= found.value


def test_bounds_hold_for_skewed_owners_and_closed_trainers() -> None:
    rng = np.random.default_rng(5)
    shape = click_log_batch(600, 4)
    batch = Batch(shape.slot, rng.choice(4, len(shape.owner), p=[0.7, 0.1, 0.1, 0.1]), 4)
    capacity = np.array([0, 300, 299, 1])
    for objective in BEYOND:
        found = partition(batch, capacity, objective)
        assert found is not None
        assert found.bound is not None
        assert 0.5 * found.value < found.bound <= found.value
        assert not (found.trainer == 0).any()


def test_more_rounds_do_no_harm() -> None:
    batch = click_log_batch(1000, 4)
    found = [
        partition(batch, None, "fetches", parameters=Parameters(Search(search), Bound(bound)))
        for search, bound in ((0, 1), (4, 4), (40, 40))
    ]
    values = [entry.value for entry in found if entry]
    bounds = [entry.bound for entry in found if entry and entry.bound is not None]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)


def test_the_same_seed_gives_the_same_partition() -> None:
    batch = click_log_batch(500, 4)
    for objective, method in (("fetches", "search"), ("max-load", "search"), ("paper", "random")):
        first, again, other = (
            partition(batch, None, objective, method, Parameters(bound=Bound(rounds=0)), SolveOptions(seed=seed))
            for seed in (7, 7, 8)
        )
        assert first is not None
        assert again is not None
        assert other is not None
        assert first.bound is None
        assert (first.trainer == again.trainer).all()
        assert (first.trainer != other.trainer).any()


def test_a_stopped_search_answers_with_its_start() -> None:
    stop = threading.Event()
    stop.set()
    found = partition(click_log_batch(300, 4), None, "fetches", options=SolveOptions(stop=stop))
    assert found is not None
    assert found.details["rounds"] == 0
    assert found.bound is not None
    assert found.bound <= found.value


def test_one_trainer_and_no_examples_are_no_special_cases() -> None:
    empty = Batch(np.empty((0, 3), np.int64), np.array([0, -1]), 2)
    single = Batch(np.array([[0, 1], [1, 2]]), np.array([0, -1, 0]), 1)
    for objective in OF_A_BATCH:
        for method in ("auto", "milp", "contiguous", "random"):
            nothing, everything = (partition(batch, None, objective, method) for batch in (empty, single))
            assert nothing is not None
            assert everything is not None
            assert nothing.value == 0
            assert everything.value == (0 if objective == "paper" else 1)


def test_traffic_counts_rows_by_where_they_come_from() -> None:
    batch = Batch(np.array([[0, 2], [0, 3], [1, 2]]), np.array([0, 1, -1, 1]), 2)
    traffic = Sharing.of(batch).traffic(np.array([0, 1, 1]))
    assert traffic.from_trainers.tolist() == [0, 1]
    assert traffic.from_servers.tolist() == [1, 1]
    assert traffic.sent.tolist() == [1, 0]
    assert (traffic.fetches, traffic.max_load) == (3, 2)


def test_unknown_names_and_methods_that_do_not_suit_are_named() -> None:
    batch = click_log_batch(10, 2)
    with pytest.raises(InputError, match="objective: must be one of paper, fetches, max-load, got 'max_load'"):
        partition(batch, objective="max_load")
    with pytest.raises(InputError, match=r"method: must be one of auto, .*, got 'simplex'"):
        partition(batch, method="simplex")
    with pytest.raises(InputError, match="method: search is for fetches"):
        partition(batch, method="search")
    with pytest.raises(InputError, match="method: lp is for the paper's objective"):
        partition(batch, objective="fetches", method="lp")
    with pytest.raises(InputError, match="rounds: must be >= 0, got -1"):
        Search(rounds=-1)
    assert set(METHODS) >= {"transport", "milp", "lp", "min_cost_flow"}


@pytest.mark.parametrize(
    ("objective", "choice", "method"),
    [
        ("paper", MethodChoice(), "transport"),
        ("fetches", MethodChoice(), "search"),
        ("fetches", MethodChoice(without=("search",)), "transport"),
        ("fetches", MethodChoice(without=("search", "transport")), "contiguous"),
        ("max-load", MethodChoice(only=("milp", "lp")), "milp+highs"),
        ("paper", MethodChoice(only=("search", "lp")), "lp+highs"),
    ],
)
def test_a_parameter_file_leaves_methods_out(objective: str, choice: MethodChoice, method: str) -> None:
    batch = random_batch(np.random.default_rng(1), 8, 3, tables=3, ids=6)
    parameters = Parameters(bound=Bound(rounds=0), methods=choice)
    found = partition(batch, None, objective, parameters=parameters)
    assert found is not None
    assert found.method == method
    by_name = partition(batch, None, objective, "random", parameters)
    assert by_name is not None
    assert by_name.method == "random"


def test_a_choice_without_a_method_for_the_objective_is_refused() -> None:
    batch, parameters = click_log_batch(10, 2), Parameters(methods=MethodChoice(only=("lp",)))
    with pytest.raises(InputError, match="methods: lp is for the paper's objective, fetches has search, transport, "):
        partition(batch, None, "fetches", parameters=parameters)
    with pytest.raises(InputError, match=r"methods.only: 'simplex' is no method"):
        Parameters(methods=MethodChoice(only=("simplex",)))
    assert [each.name for each in IN_ORDER if each.name not in METHODS] == []
    assert len(IN_ORDER) == len(METHODS) - 1


def test_a_false_optimum_of_a_solver_is_refuted_by_our_own_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that isn't the best, which the solver calls optimal."""
    batch = click_log_batch(40, 4)
    optimum = partition(batch)
    assert optimum is not None

    def claims(model: Model, options: SolveOptions, solver: str) -> Solution:
        values = np.zeros((40, 4))
        values[np.arange(40), contiguous(capacities(40, 4))] = 1.0
        objective = model.arrays().objective(values.ravel())
        reason = StopReason.FINISHED
        return Solution(Status.OPTIMAL, reason, solver, "", 0, 0.0, values.ravel(), objective, objective)

    monkeypatch.setattr("gapless.encodings.bagpipe.partition.methods.solve_model", claims)
    found = partition(batch, method="milp")
    assert found is not None
    assert found.value > found.bound == optimum.value
    assert found.details == {"contradicted": found.value}
