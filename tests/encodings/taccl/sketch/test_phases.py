"""Phases of collectives that reduce."""

from __future__ import annotations

import pytest
from shapes import line

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.ir.collective import allgather, allreduce, broadcast, reduce, reducescatter


def _problem(collective: object) -> Chunked:
    return Chunked(line(4, lambda k: (1e-6, (k + 1) * 1e-10)), collective, 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("collective", "spread", "backwards"),
    [
        (reducescatter(4, 2), allgather(4, 2), [True]),
        (reduce(4), broadcast(4), [True]),
        (allreduce(4, 2), allgather(4, 2), [True, False]),
        (allgather(4), allgather(4), [False]),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_phases_spread_what_is_summed(collective: object, spread: object, backwards: list[bool]) -> None:
    phases = _problem(collective).phases
    assert [phase.backwards for phase in phases] == backwards
    for phase in phases:
        assert phase.problem.collective.owners == spread.owners  # type: ignore[attr-defined]
        assert phase.problem.collective.destinations == spread.destinations  # type: ignore[attr-defined]


def test_links_keep_their_numbers_when_turned_round() -> None:
    topology = line(3, lambda k: (1e-6, (k + 1) * 1e-10))
    back = turned_round(topology)
    for link, other in zip(topology.links, back.links, strict=True):
        assert (link.source, link.target, link.beta_s_per_byte) == (other.target, other.source, other.beta_s_per_byte)
