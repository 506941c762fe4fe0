"""Pinned operators: what would be faster than a plan's, and a graph in which it has to be."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from monet_proofs import questions
from random_training import random_keep, training_graphs

from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.search.keepset import Keeper
from gapless.encodings.monet.search.pins import pinned, pins_of
from gapless.profiles.training.graph import TrainingGraph


@examples(200)
@given(
    st.one_of(training_graphs(), questions().map(lambda question: question[0])),
    st.integers(0, 2**32 - 1),
    st.floats(0.3, 1.0),
)
def test_what_fits_with_a_pin_fits_the_question_in_as_much_memory_and_takes_no_longer(
    graph: TrainingGraph, seed: int, share: float
) -> None:
    keep = random_keep(graph, np.random.default_rng(seed))
    keeper = Keeper(graph, 2**60)
    budget_bytes = int(share * evaluate(graph, keeper.decide(keep)).peak_bytes)
    decisions = Keeper(graph, budget_bytes).decide(keep)
    for pin in pins_of(graph, decisions):
        assert pin.saved_s > 0
        fast = pinned(graph, pin)
        judged = evaluate(fast, Keeper(fast, 2**60).decide(keep))
        found = Keeper(graph, judged.peak_bytes).state(keep).outcome
        assert found.overflow_bytes == 0
        assert found.cost_s <= judged.cost_s * (1 + 1e-9)
