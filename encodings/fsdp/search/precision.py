"""Which collective travels in which precision: the most exact that costs no time.

Searches price every collective in the fastest precision that is offered. Then each in turn, from the first on the
network, takes the most exact one that leaves the step as long as it was, and memory as it may be.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from gapless.encodings.fsdp.step.costs import Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import timeline

__all__ = ["with_precisions"]

_ROUNDING = 1e-9
"""Of a step: sums in another order differ by less."""


def with_precisions(costs: Costs, order: Order) -> Order:
    """The order with a precision of each collective."""
    fastest = tuple(replace(each, precision=_by_speed(costs, each.kind)[0]) for each in order.collectives)
    order = replace(order, collectives=fastest)
    first = timeline(costs, order)
    assert first is not None, "an order that a search has made can be run"
    most_s, most_bytes = first.step_s * (1 + _ROUNDING), max(first.peak_bytes, costs.memory_bytes) * (1 + _ROUNDING)
    for numbers in _together(costs, order):
        for precision in reversed(_by_speed(costs, order.collectives[numbers[0]].kind)[1:]):
            changed = [*order.collectives]
            for number in numbers:
                changed[number] = replace(changed[number], precision=precision)
            other = replace(order, collectives=tuple(changed))
            times = timeline(costs, other)
            if times is not None and times.step_s <= most_s and times.peak_bytes <= most_bytes:
                order = other
                break
    return order


def _together(costs: Costs, order: Order) -> list[list[int]]:
    """Collectives that have one precision: each by itself; of FSDP2 both gathers of a group."""
    numbers: dict[Hashable, list[int]] = {}
    for number, each in enumerate(order.collectives):
        is_by_itself = each.kind == Kind.SCATTER or not costs.takes_when_begun
        numbers.setdefault(number if is_by_itself else (each.first, each.last), []).append(number)
    return list(numbers.values())


def _by_speed(costs: Costs, kind: str) -> list[str]:
    """The precisions of a kind, the fastest first."""
    each_s = costs.scatters_s if kind == Kind.SCATTER else costs.gathers_s
    return sorted(each_s, key=lambda name: each_s[name])
