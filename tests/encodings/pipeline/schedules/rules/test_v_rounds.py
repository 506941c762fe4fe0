"""Rounds in a V: zero-bubble V's own orders, within memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from examples import share
from schedule_programs import CASES, Case, recorded
from tiny_pipelines import random_stages, tiny, trial

from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.schedules.bases import round_orders
from gapless.encodings.pipeline.schedules.rules.v_rounds import all_v_round_rules, in_v_rounds, is_v

PUBLIC = [case for case in CASES if case.program == "zero-bubble V"]


def letters(stages: Stages, order: Order) -> list[str]:
    """As orders are recorded."""
    names = ("F", "f"), ("B", "b"), ("W", "w")
    parts = [divmod(sequence // stages.micro_batches, stages.count) for sequence in order.sequences]
    return [
        "".join(names[k][s >= stages.ranks] for k, s in zip(kind.tolist(), stage.tolist(), strict=True))
        for kind, stage in parts
    ]


def best_s(stages: Stages, orders: Iterable[Order | None]) -> float:
    timelines = [timed(stages, order) for order in orders if order is not None]
    return min(timeline.step_s for timeline in timelines if timeline is not None)


@pytest.mark.parametrize("case", PUBLIC, ids=lambda case: case.name)
def test_a_set_of_rules_makes_the_programs_own_order(case: Case) -> None:
    """Op for op, whatever ops cost, and messages."""
    f, b, w, hop = case.costs
    _, stages = trial(case.ranks, case.micro_batches, case.ranks, "v", profile=f"uniform:f={f},b={b},w={w}", hop=hop)
    orders = [in_v_rounds(stages, rules) for rules in all_v_round_rules()]
    assert recorded()[case.name] in [letters(stages, order) for order in orders if order is not None]


def test_orders_of_mean_costs_are_tried_too() -> None:
    """What the program makes for the mean is faster than what its rules give for the stages themselves."""
    _, even = trial(8, 32, 8, "v", profile="uniform:f=12,b=10,w=14", hop=3.0)
    share = 1 + 0.2 * np.random.default_rng(0).permutation(np.linspace(-1, 1, even.count))
    costs = {name: getattr(even, name) * share for name in ("forward_s", "backward_s", "weight_s")}
    stages = replace(even, **costs)
    mean, own = ([in_v_rounds(each, rules) for rules in all_v_round_rules()] for each in (even, stages))
    mean_s, own_s, all_s = (best_s(stages, orders) for orders in (mean, own, round_orders(stages)))
    assert all_s == min(mean_s, own_s)
    assert mean_s < own_s


def test_rounds_in_a_v_keep_within_memory() -> None:
    played = []
    for stages, least_s in [tiny(seed) for seed in range(share(100)) if is_v(random_stages(seed))]:
        for order in [in_v_rounds(stages, rules) for rules in all_v_round_rules()]:
            if order is not None:
                timeline = timed(stages, order)
                assert timeline is not None
                assert timeline.step_s >= least_s * (1 - 1e-9)
                assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
                played.append(timeline)
    assert played


def test_rounds_in_a_v_are_for_two_stages_a_rank_and_split_gradients() -> None:
    rules = next(all_v_round_rules())
    assert in_v_rounds(trial(4, 8, 8)[1], rules) is None
    assert in_v_rounds(trial(4, 8, 8, "looped")[1], rules) is None
    assert in_v_rounds(trial(4, 8, 8, "v", backward="whole")[1], rules) is None
