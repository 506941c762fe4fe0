"""When collectives and passes happen."""

from __future__ import annotations

from dataclasses import replace

from small_steps import costs_of

from gapless.encodings.fsdp.step.costs import Collective, Kind, Order
from gapless.encodings.fsdp.step.timeline import timeline


def test_a_scatter_begins_once_few_enough_are_under_way_on_both_networks() -> None:
    """Three kept layers of a parameter; a scatter is a second inside nodes, then five between them."""
    costs = costs_of(
        [1, 1, 1], [1, 1, 1], [1, 1, 1], latency_s=0, gather_s=0, scatter_s=5, takes_when_begun=True, inner_s=1
    )
    gathers = [Collective(Kind.FORWARD, layer, layer, kept=True) for layer in range(3)]
    scatters = [Collective(Kind.SCATTER, layer, layer) for layer in (2, 1, 0)]
    free, held = (
        timeline(costs, Order((*gathers, *scatters), holds)) for holds in ((0, 0, 0), (len(gathers) + 1, 0, 0))
    )
    assert free is not None
    assert held is not None
    assert free.start_s[4] == free.over_s[4] < free.end_s[3]
    assert held.start_s[4] == held.end_s[3] == held.begin_s[5] > held.over_s[4]
    alone = replace(costs, inner=None)
    one = timeline(alone, Order((*gathers, *scatters), (4, 0, 0)))
    assert one is not None
    assert one.start_s[4] == one.end_s[3]
