"""Squeezed orders: within memory, never stuck, and what the literature's schedules become."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from examples import share
from tiny_pipelines import tiny, trial

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.order.orders import number
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.schedules.bases import all_bases
from gapless.encodings.pipeline.schedules.blocks import Block, repeated, stretched
from gapless.encodings.pipeline.schedules.rules.rounds import RoundRules, all_round_rules, in_rounds
from gapless.encodings.pipeline.schedules.squeeze import best_squeezed, kept_peaks, squeezed

EVEN = {"profile": "uniform:f=20,b=20,w=20", "hop": 0.0}


def best_s(stages: Stages, placement: str, most_ops: int = 100_000) -> float:
    found = best_squeezed(stages, all_bases(stages, placement), most_ops)
    assert found is not None
    order, timeline = found
    again = timed(stages, order)
    assert again is not None
    assert again.step_s == timeline.step_s
    assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
    return timeline.step_s


def placement_of(stages: Stages) -> str:
    if stages.count == stages.ranks:
        return "linear"
    return "v" if stages.rank[0] == stages.rank[-1] else "looped"


@pytest.mark.parametrize("seed", range(share(100)))
def test_no_squeezed_order_is_faster_than_the_best_of_all(seed: int) -> None:
    """Each runs every op once, keeps within memory, and gets never stuck."""
    stages, least_s = tiny(seed)
    for sequences, weights_last in islice(all_bases(stages, placement_of(stages)), 40):
        order = squeezed(stages, sequences, weights_last)
        if order is None:
            assert (kept_peaks(stages, sequences) > stages.room_bytes).any()
            continue
        for made, given in zip(order.sequences, sequences, strict=True):
            assert sorted(made.tolist()) == sorted(given)
        timeline = timed(stages, order)
        assert timeline is not None
        assert timeline.step_s >= least_s * (1 - 1e-9)
        assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()


def test_an_op_overtakes_only_what_it_does_not_delay() -> None:
    """One rank, two stages: the second's forward stands behind a forward that isn't ready; both are run in time."""
    _, stages = trial(2, 2, 2)
    zero, one = ([number(stages, kind, stage, m) for m in range(2) for kind in Kind] for stage in range(2))
    order = squeezed(stages, [zero, one], weights_last=False)
    assert order is not None
    assert order.sequences[0][:2].tolist() == [number(stages, Kind.FORWARD, 0, m) for m in range(2)]


def test_sequences_that_wait_for_each_other_are_refused() -> None:
    _, stages = trial(2, 1, 1)
    zero, one = ([number(stages, kind, stage, 0) for kind in Kind] for stage in range(2))
    assert squeezed(stages, [zero[::-1], one], weights_last=False) is not None  # what is ready overtakes what isn't
    assert squeezed(stages, [zero, one[:1]], weights_last=False) is None


def test_what_does_not_fit_is_refused() -> None:
    _, stages = trial(4, 8, 3)
    sequences = repeated(stages, Block())
    assert (kept_peaks(stages, sequences) > stages.room_bytes).any()
    assert squeezed(stages, sequences, weights_last=True) is None


@pytest.mark.parametrize("in_flight", [1, 2, 3])
@pytest.mark.parametrize("placement", ["linear", "looped", "v"])
def test_a_block_is_repeated_less_often_until_it_fits(placement: str, in_flight: int) -> None:
    _, stages = trial(4, 8, in_flight, placement)
    sequences = stretched(stages, Block())
    assert sequences is not None
    assert (kept_peaks(stages, sequences) <= stages.room_bytes).all()
    assert squeezed(stages, sequences, weights_last=True) is not None
    assert stretched(replace(stages, memory_bytes=np.zeros(4)), Block()) is None


@pytest.mark.parametrize(
    ("in_flight", "most_s"), [(5, 1130), (4, 1190), (3, 1330)],
)  # fmt: skip
def test_a_v_in_little_memory(in_flight: int, most_s: float) -> None:
    """The public programs take 1,130 and 1,230 s with room for five and four micro-batches, and have none for three."""
    assert best_s(trial(8, 16, in_flight, "v", **EVEN)[1], "v", 60_000) <= most_s


@pytest.mark.parametrize(
    ("ranks", "micro_batches", "in_flight", "figure"),
    [(8, 16, 9, 604), (8, 16, 10, 590), (8, 32, 9, 1084), (16, 64, 18, 2190)],
)
def test_squeezed_rounds_are_optimal(ranks: int, micro_batches: int, in_flight: int, figure: float) -> None:
    _, stages = trial(ranks, micro_batches, in_flight)
    assert best_s(stages, "linear", 1) <= best_s(stages, "linear") == max(bounds_of(stages).values()) == figure


def test_the_rounds_are_the_papers() -> None:
    """What its program makes of 16 ranks, 64 micro-batches and room for 18 of them."""
    _, stages = trial(16, 64, 18)
    orders = [in_rounds(stages, rules) for rules in all_round_rules()]
    times = [
        timeline.step_s for order in orders if order is not None and (timeline := timed(stages, order)) is not None
    ]
    assert len(times) == 8
    assert min(times) == 2218
    heuristic = zero_bubble(stages, 20_000)
    assert heuristic is not None
    assert heuristic[1].step_s == 2230


@pytest.mark.parametrize("seed", range(share(50)))
def test_rounds_keep_within_memory(seed: int) -> None:
    stages, least_s = tiny(seed)
    for rules in all_round_rules():
        order = in_rounds(stages, rules)
        if order is None:
            continue
        timeline = timed(stages, order)
        assert timeline is not None
        assert timeline.step_s >= least_s * (1 - 1e-9)
        assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()


def test_rounds_are_for_one_stage_a_rank_and_split_gradients() -> None:
    rules = RoundRules(delays_first=False, skips=False, fills=False)
    assert in_rounds(trial(4, 8, 8, "v")[1], rules) is None
    assert in_rounds(trial(4, 8, 8, backward="whole")[1], rules) is None
