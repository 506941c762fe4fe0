"""Mirrors: the second phase of an ALLREDUCE is the first one seen from elsewhere, and its routings are routings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.flow.paths import shortest_path_routing
from gapless.encodings.taccl.milp.routers import find_mirror
from gapless.topologies.files import load_topology

MIRRORED = [("dgx2-sk-1", "dgx2"), ("dgx2-sk-2", "dgx2"), ("dgx-a100-sk-1", "dgx-a100"), ("mi300x-sk-1", "mi300x")]


def _allreduce(sketch: str, machine: str) -> Chunked:
    return Chunked.of(load_topology(machine, 2), "allreduce", 64 * 10**6, load_sketch(sketch))


@pytest.mark.parametrize(("sketch", "machine"), MIRRORED)
def test_a_routing_of_the_first_phase_is_one_of_the_second(sketch: str, machine: str) -> None:
    problem = _allreduce(sketch, machine)
    mirror = find_mirror(problem)
    assert mirror is not None
    first, second = (phase.problem for phase in problem.phases)
    routing = mirror.image(shortest_path_routing(first))
    assert second.usable[routing.chunk, routing.link].all()
    topology = second.logical.topology
    at = {(chunk, int(owner)) for chunk, owner in enumerate(second.owners)}
    for chunk, link, parent in zip(routing.chunk.tolist(), routing.link.tolist(), routing.parent, strict=True):
        assert (chunk, int(topology.link_source[link])) in at
        assert parent < 0 or topology.link_target[routing.link[parent]] == topology.link_source[link]
        at.add((chunk, int(topology.link_target[link])))
    assert at >= {(int(chunk), int(rank)) for chunk, rank in np.argwhere(second.wanted)}


@pytest.mark.thorough
def test_what_is_routed_once_replays_clean() -> None:
    result = gapless.solve(_allreduce("dgx2-sk-1", "dgx2"), SolveOptions(gap=0.05))
    assert result.valid
    (one_at_a_time_s,) = (
        known_s for name, known_s in result.details["bounds_s"].items() if name.endswith("one at a time inside nodes")
    )
    assert result.report is not None
    assert result.report.makespan_s <= 1.06 * one_at_a_time_s


def test_one_phase_has_no_mirror() -> None:
    problem = Chunked.of(load_topology("dgx2", 2), "reducescatter", 64 * 10**6, load_sketch("dgx2-sk-1"))
    assert find_mirror(problem) is None


def test_links_of_other_costs_are_no_mirror() -> None:
    """Fast one way and slow the other: forwards and backwards differ."""
    topology = load_topology("line:8", 1)
    links = [
        replace(link, beta_s_per_byte=link.beta_s_per_byte * (2 if link.source < link.target else 1))
        for link in topology.links
    ]
    links = [replace(link, alpha_s=3e-6) if (link.source, link.target) == (0, 1) else link for link in links]
    problem = Chunked.of(replace(topology, links=tuple(links)), "allreduce", 10**6)
    assert find_mirror(problem) is None
