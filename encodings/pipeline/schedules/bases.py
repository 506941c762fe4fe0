"""Sequences that are squeezed: zero-bubble's rounds, blocks in slots, the field's schedules, repeated blocks."""

from __future__ import annotations

from collections.abc import Iterator

from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.placement.named import Placement
from gapless.encodings.pipeline.schedules.baselines import BASELINES, apart, suits, whole
from gapless.encodings.pipeline.schedules.blocks import all_blocks, stretched
from gapless.encodings.pipeline.schedules.rounds import all_round_rules, in_rounds
from gapless.encodings.pipeline.schedules.sliced import sliced_orders
from gapless.encodings.pipeline.schedules.slots import V_HALF, V_MIN, in_slots
from gapless.encodings.pipeline.schedules.squeeze import Base
from gapless.encodings.pipeline.schedules.v_rounds import all_v_round_rules, in_v_rounds, is_v

__all__ = ["all_bases", "round_orders"]


def all_bases(stages: Stages, placement: Placement) -> Iterator[Base]:
    """In the order in which they are tried, those that win most often first."""
    for order in round_orders(stages):
        yield _sequences(order), False
    for in_six, weights_last in (
        ((V_HALF, False), (V_HALF, True), (V_MIN, True), (V_MIN, False)) if is_v(stages) else ()
    ):
        slots = in_slots(stages, in_six)
        if slots is not None:
            yield slots, weights_last
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
            sequences = stretched(stages, block)
            if sequences is not None:
                yield sequences, weights_last


def round_orders(stages: Stages) -> Iterator[Order]:
    """Those that zero-bubble's rules for a line or a V give, those that win most often first."""
    found = (
        (in_v_rounds(stages, rules) for rules in all_v_round_rules())
        if is_v(stages)
        else (in_rounds(stages, rules) for rules in all_round_rules())
    )
    return (order for order in found if order is not None)


def _sequences(order: Order) -> list[list[int]]:
    return [sequence.tolist() for sequence in order.sequences]
