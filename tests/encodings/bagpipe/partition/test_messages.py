"""The objective `time`: messages on the critical path are those that the run counts, and least where MILPs say so."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe import Parameters, Planning, Search
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.partition.cuts import Past
from gapless.encodings.bagpipe.partition.message_state import State
from gapless.encodings.bagpipe.partition.messages import MessageBatch
from gapless.encodings.bagpipe.partition.methods import contiguous
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.generators import zipf_trace

FINE = "lrpp-fine-grained"


def small_batch(seed: int, trainers: int = 2, size: int = 6, rounds: int = 24) -> MessageBatch:
    """A batch of examples with two rows each, and a past in which about half of the rows were used at once."""
    rng = np.random.default_rng(seed)
    ids, index = np.unique(rng.integers(0, 5, (size, 2)) + np.array([0, 100]), return_inverse=True)
    rows = len(ids)
    at_once = rng.random(rows) < 0.5
    past = Past(np.where(at_once | (rng.random(rows) < 0.3), rng.integers(0, trainers, rows), -1), at_once, at_once)
    return MessageBatch(
        index.reshape(size, 2).astype(np.int32), rng.random(rows) < 0.6, past, np.full(trainers, size // trainers),
        Parameters(search=Search(rounds=rounds)),
    )  # fmt: skip


def messages_by_hand(batch: MessageBatch, trainer: tuple[int, ...]) -> int:
    users: list[set[int]] = [set() for _ in range(batch.rows)]
    for rows, where in zip(batch.index, trainer, strict=True):
        for row in rows:
            users[row].add(where)
    gathered = sum(len(users[row]) - 1 for row in np.flatnonzero(batch.in_next))
    return gathered + sum(len(users[row] - {batch.past.root[row]}) for row in np.flatnonzero(batch.past.at_once))


@examples(60, cases=6)
@given(seed=st.integers(0, 10**6), trainers=st.sampled_from([2, 3]))
def test_a_small_batch_is_solved_exactly_and_no_search_is_better(seed: int, trainers: int) -> None:
    batch = small_batch(seed, trainers)
    least = min(messages_by_hand(batch, each) for each in set(permutations(contiguous(batch.places).tolist())))
    exact, searched = batch.modelled(SolveOptions()), batch.searched(SolveOptions())[0]
    assert exact is not None
    assert (exact[0].value, exact[0].bound) == (least, least)
    assert least <= searched.value <= batch.worth([contiguous(batch.places)], "contiguous")[0].value
    assert searched.value == messages_by_hand(batch, tuple(searched.trainer.tolist()))


@pytest.mark.parametrize("method", ["search", "transport", "contiguous", "random"])
def test_the_value_is_what_the_run_sends_and_gathers_at_once(method: str) -> None:
    planning = Planning(4, 64, lookahead=3, design=FINE, method=method)
    plans = list(batch_plans(zipf_trace((400, 900, 60), 1.1, 640), planning))
    counts = counted(plans).rooted
    assert {plan.partition.objective for plan in plans} == {"time"}
    assert [plan.partition.value for plan in plans] == (counts.gathered_now + counts.sent_now).tolist()


def test_a_longer_search_sends_less_and_never_ends_worse() -> None:
    found = [small_batch(3, 4, 64, rounds).searched(SolveOptions())[0].value for rounds in (0, 2, 8, 24, 96)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


@pytest.mark.parametrize("seed", range(4))
def test_what_moving_an_example_costs_is_what_the_partition_costs_more(seed: int) -> None:
    batch = small_batch(seed, 3, 12)
    trainer = contiguous(batch.places)
    state = State(batch.shared, trainer)
    for example in range(12):
        one = np.array([example])
        state.take(one, trainer[one])
        without, marginal = state.cost(), state.costs(one)[0]
        for to in range(3):
            state.put(one, np.array([to]))
            assert state.cost() - without == marginal[to]
            state.take(one, np.array([to]))
        state.put(one, trainer[one])
    assert state.cost() == State(batch.shared, trainer).cost()


@pytest.mark.parametrize("seed", range(4))
def test_contiguous_costs_and_messages_are_counted_with_the_uses(seed: int) -> None:
    batch = small_batch(seed, 3, 12)
    whole, uses = contiguous(batch.places), batch.shared
    assert uses.contiguous_cost == State(uses, whole).cost()
    by_hand = messages_by_hand(batch, tuple(whole.tolist()))
    assert batch.contiguous_messages == by_hand == batch.worth([whole], "contiguous")[0].value


def test_costs_are_kept_up_to_date_of_bags_too() -> None:
    batch = small_batch(1, 3, 12)
    bags = MessageBatch(
        Bags(batch.index.reshape(-1), np.full((12, 1), 2)), batch.in_next, batch.past, batch.places, batch.parameters
    )
    for each in (batch, bags):
        state, block = State(each.shared, contiguous(each.places)), np.array([1, 5, 9])
        state.take(block, state.trainer[block])
        state.put(block, np.array([2, 0, 1]))
        state.trainer[block] = [2, 0, 1]
        assert state.cost() == State(each.shared, state.trainer).cost()
    assert np.array_equal(batch.searched(SolveOptions())[0].trainer, bags.searched(SolveOptions())[0].trainer)


def test_a_row_that_every_run_of_many_examples_uses_is_left_out_of_the_search() -> None:
    """Row 0 is in all examples, row 1 in the first half: the one is left out, the other counts."""
    index = np.column_stack([np.zeros(64), 1 + np.maximum(np.arange(64) - 31, 0)]).astype(np.int32)
    rows = int(index.max()) + 1
    past = Past.none(rows)
    batch = MessageBatch(index, np.ones(rows, dtype=np.bool_), past, np.full(2, 32), Parameters())
    assert batch.shared.shared.tolist() == [0] * 32
    assert batch.shared.weight.tolist() == [batch.weight[1]]
    found = batch.searched(SolveOptions())[0]
    assert found.value == messages_by_hand(batch, tuple(found.trainer.tolist())) == 1


def test_another_design_has_no_such_objective() -> None:
    with pytest.raises(InputError, match="objective: time goes with design lrpp-fine-grained, got design lrpp"):
        Planning(2, 8, objective="time", design="lrpp")
