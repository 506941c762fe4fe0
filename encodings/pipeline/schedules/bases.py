"""Sequences that are squeezed: zero-bubble's rounds, blocks in slots, the field's schedules, repeated blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.placement.named import Placement
from gapless.encodings.pipeline.schedules.baselines import BASELINES, apart, suits, whole
from gapless.encodings.pipeline.schedules.blocks import Block, all_blocks, stretched
from gapless.encodings.pipeline.schedules.rules.rounds import all_round_rules, in_rounds
from gapless.encodings.pipeline.schedules.rules.slots import V_HALF, V_MIN, SlotBlock, in_slots
from gapless.encodings.pipeline.schedules.rules.v_rounds import all_v_round_rules, in_v_rounds, is_v
from gapless.encodings.pipeline.schedules.sliced import sliced_orders
from gapless.encodings.pipeline.schedules.squeeze import Base

__all__ = ["all_bases", "round_orders"]


_FIRST_IN_V: tuple[tuple[SlotBlock | Block, bool], ...] = (
    (V_HALF, False),
    (V_HALF, True),
    (Block((1.0, 1.0), (1.0, 1.0), at_end=2.0), True),
    (Block((0.0, 1.0), (1.0, 1.0)), False),
    (Block((1.0, 1.0), (1.0, 1.0)), True),
    (V_MIN, True),
    (Block((0.0, 1.0), (1.0, 1.0), at_end=2.0), True),
    (Block((0.0, 0.0), (1.0, 1.0), at_end=3.0), True),
    (V_MIN, False),
)
"""Blocks for two stages a rank in a V, and whether gradients of weights go last: the best few of all for 60 random
questions, about in the order of what they add to those before them."""


def all_bases(stages: Stages, placement: Placement, rounds: Iterable[Order] | None = None) -> Iterator[Base]:
    """In the order in which they are tried, those that win most often first. `rounds`: what `round_orders` makes of the
    stages, if that was made before."""
    first = _FIRST_IN_V if is_v(stages) else ()
    in_slots_once = cache(partial(in_slots, stages))
    for block, weights_last in first:
        sequences = in_slots_once(block) if isinstance(block, SlotBlock) else stretched(stages, block)
        if sequences is not None:
            yield sequences, weights_last
    for order in round_orders(stages) if rounds is None else rounds:
        yield _sequences(order), False
    for name, baseline in BASELINES.items():
        if suits(name, placement, stages):
            is_whole = stages.splits and not baseline.splits
            own = baseline.order(whole(stages)) if is_whole else baseline.order(stages)
            yield _sequences(apart(stages, own) if is_whole else own), False
    if stages.slices > 1:
        for order in sliced_orders(whole(stages)) if placement == "linear" else ():
            for weights_last in (True, False) if stages.splits else (False,):
                yield _sequences(apart(stages, order) if stages.splits else order), weights_last
        return
    for weights_last in (True, False) if stages.splits else (False,):
        for block in all_blocks(stages):
            sequences = None if (block, weights_last) in first else stretched(stages, block)
            if sequences is not None:
                yield sequences, weights_last


def round_orders(stages: Stages) -> Iterator[Order]:
    """Those that zero-bubble's rules for a line or a V give, those that win most often first; for a V, where all stages
    cost the same to its program, also those of stages that take as long as they do in the mean.
    """
    if not is_v(stages):
        found = (in_rounds(stages, rules) for rules in all_round_rules())
    else:
        even = _evened(stages)
        each = (stages,) if even is None else (stages, even)
        found = (in_v_rounds(costs, rules) for costs in each for rules in all_v_round_rules())
    return (order for order in found if order is not None)


def _evened(stages: Stages) -> Stages | None:
    """The same with the mean times of each kind of op; None where that changes nothing."""
    times_s = {name: getattr(stages, name) for name in ("forward_s", "backward_s", "weight_s")}
    even_s = {name: np.full_like(each, each.mean()) for name, each in times_s.items()}
    is_even = all(np.allclose(each, even_s[name]) for name, each in times_s.items())
    return None if is_even else replace(stages, **even_s)


def _sequences(order: Order) -> list[list[int]]:
    return [sequence.tolist() for sequence in order.sequences]
