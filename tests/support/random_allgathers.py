"""Random schedules of ALLGATHER on random topologies, for hypothesis."""

from __future__ import annotations

import networkx as nx
from hypothesis import strategies as st

from gapless.ir.collective import Collective, allgather
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology


@st.composite
def allgathers(draw: st.DrawFn) -> tuple[Collective, Schedule]:
    """A strongly connected topology; each chunk goes down a random tree of it, in random groups, in a random order."""
    ranks, per_rank = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    rng = draw(st.randoms(use_true_random=False))
    pairs = {(rank, (rank + 1) % ranks) for rank in range(ranks)}
    pairs |= {(a, b) for a in range(ranks) for b in range(ranks) if a != b and rng.random() < 0.4}
    links = tuple(Link(a, b, alpha_s=0.0, beta_s_per_byte=1.0) for a, b in sorted(pairs))
    topology = Topology("random", (0,) * ranks, links)
    collective = allgather(ranks, per_rank)
    network = nx.DiGraph([(link.source, link.target) for link in links])
    depth, edges = {}, []
    for owner in range(ranks):
        for chunks in _groups(list(collective.inputs[owner]), rng):
            reached = {owner: 0}
            while len(reached) < ranks:
                frontier = [(a, b) for a, b in network.edges if a in reached and b not in reached]
                source, target = rng.choice(frontier)
                reached[target] = reached[source] + 1
                edges.append((source, target, tuple(chunks)))
                depth[edges[-1]] = reached[target]
    rng.shuffle(edges)
    edges.sort(key=depth.__getitem__)
    number = {(link.source, link.target): index for index, link in enumerate(links)}
    events = [
        Event(EventKind.TRANSFER, float(depth[edge]), depth[edge] + 1.0, place=number[edge[:2]], moves=edge[2])
        for edge in edges
    ]
    return collective, schedule_from_events(collective.graph(1), topology, events)


def _groups(chunks, rng):
    rng.shuffle(chunks)
    cut = rng.randrange(len(chunks) + 1)
    return [part for part in (chunks[:cut], chunks[cut:]) if part]
