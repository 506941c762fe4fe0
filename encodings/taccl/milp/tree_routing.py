"""Stage 1, routing: which links each chunk takes (TACCL, section 5.5.1, equations 5.1-5.15).

The model is the thesis's with three changes that keep its optimum. There is no send variable: a chunk is sent as soon
as it is there, since nothing in this stage keeps it waiting. Variables that a symmetry makes equal are one variable (an
orbit) instead of several tied by equality rows (5.12-5.14). And (5.15) is stated for every node that a chunk must
enter, without which the relaxation lets chunks turn up in a node by going round in circles inside it.

Where chunks may be grouped, a chunk counts with `beta * size` only: whatever the grouping, it occupies the link that
long. So the optimum of this model is a lower bound on the makespan of every schedule of the problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.paths import shortest_path_links, time_of, trees_from_links
from gapless.encodings.taccl.milp.router import (
    Router,
    add_distinct,
    time_covers_every_link_and_side,
    used_links_are_counted,
)
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.rotations import orbits
from gapless.model import Model

__all__ = ["TreeRouter", "tree_router"]


@dataclass(frozen=True, kw_only=True)
class TreeRouter(Router):
    """The model of the trees.

    `is_sent[c, l]`: column of chunk c on link l, -1 where the sketch forbids it. `start[c, r]`: column of the time at
    which chunk c is at rank r. Columns are shared along orbits. In units of `unit_s`: `lat[l]` (with alpha),
    `earliest[c, r]`, and `horizon`, the time of a routing that is known, so an upper limit of every time that matters.
    """

    is_sent: Ids
    start: Ids
    lat: Floats
    earliest: Floats
    horizon: float

    @property
    def proves(self) -> bool:
        """Unless a slack of paths leaves fewer routings in the model."""
        return self.problem.path_slack is None

    @property
    def ties(self) -> tuple[Floats, Ids]:
        """The arrivals."""
        arrivals = np.unique(self.start[self.problem.wanted])
        return np.ones(len(arrivals)), arrivals

    def decode(self, values: Floats) -> Routing:
        """The trees of a solution; sends that lead nowhere wanted are left out."""
        sent = (self.is_sent >= 0) & (values[np.maximum(self.is_sent, 0)] > 0.5)
        return trees_from_links(self.problem, sent, values[self.start])


def tree_router(problem: Chunked) -> TreeRouter:
    """The routing MILP."""
    model = Model("taccl_routing")
    unit_s = float(problem.duration_s.min())
    earliest = problem.earliest_s / unit_s
    horizon = time_of(problem, shortest_path_links(problem)) / unit_s
    parts = TreeRouter(
        model=model,
        problem=problem,
        is_sent=_is_sent(model, problem),
        start=_start(model, problem, earliest, horizon),
        is_util=_is_util(model, problem),
        time=int(model.continuous("time", upper=horizon)),
        unit_s=unit_s,
        lat=problem.duration_s / unit_s,
        earliest=earliest,
        horizon=horizon,
    )
    _time_covers_every_arrival(parts)
    _chunk_moves_after_it_arrived(parts)
    _wanted_chunk_arrives_once(parts)
    _relay_receives_before_it_sends(parts)
    chunk, link = np.nonzero(problem.usable)
    sent = parts.is_sent[chunk, link]
    time_covers_every_link_and_side(model, problem, parts.time, link, sent, problem.occupancy_s / unit_s)
    _time_covers_every_sum(parts)
    chunk, link = np.nonzero(problem.usable & (parts.is_util >= 0)[None, :])
    used_links_are_counted(model, parts.is_util[link], parts.is_sent[chunk, link])
    _chunk_enters_every_node_that_wants_it(parts)
    return parts


# -- columns -----------------------------------------------------------------------------------------------------------


def _is_sent(model: Model, problem: Chunked) -> Ids:
    """is_sent[c, src, r] for each orbit of (chunk, link); with a partition, of the links within its parts."""
    link_count, logical = problem.link_count, problem.logical
    pairs = np.arange(problem.usable.size).reshape(problem.usable.shape)
    is_free = False if logical.is_between is None else logical.is_between[None, :]
    moves = [
        np.where(is_free, pairs, s.chunks[:, None] * link_count + s.links[None, :]).reshape(-1)
        for s in (*logical.symmetry, *logical.inside)
    ]
    label = orbits(moves, problem.usable.size)
    usable = problem.usable.reshape(-1)
    firsts, column = np.unique(label[usable], return_inverse=True)
    topology = problem.logical.topology
    chunk, link = np.divmod(firsts, link_count)
    names = [
        f"c{c}_r{s}_r{t}"
        for c, s, t in zip(
            chunk.tolist(), topology.link_source[link].tolist(), topology.link_target[link].tolist(), strict=True
        )
    ]
    ids = model.binaries("is_sent", len(firsts), labels=names)
    is_sent = np.full(problem.usable.size, -1, dtype=np.int64)
    is_sent[usable] = ids[column]
    return is_sent.reshape(problem.usable.shape)


def _start(model: Model, problem: Chunked, earliest: Floats, horizon: float) -> Ids:
    """start[c, r] for each orbit of (chunk, rank), at least the shortest path, 0 at the owner (5.3)."""
    rank_count = problem.collective.rank_count
    moves = [(s.chunks[:, None] * rank_count + s.ranks[None, :]).reshape(-1) for s in problem.logical.symmetry]
    firsts, column = np.unique(orbits(moves, problem.wanted.size), return_inverse=True)
    lower = np.minimum(earliest.reshape(-1)[firsts], horizon)
    is_owner = firsts % rank_count == problem.owners[firsts // rank_count]
    names = [f"c{cell // rank_count}_r{cell % rank_count}" for cell in firsts.tolist()]
    ids = model.continuous("start", len(firsts), lower=lower, upper=np.where(is_owner, 0.0, horizon), labels=names)
    return np.asarray(ids[column].reshape(problem.wanted.shape))


def _is_util(model: Model, problem: Chunked) -> Ids:
    """is_util[src, r] for each orbit of switched links."""
    label = orbits([s.links for s in problem.logical.symmetry], problem.link_count)
    switched = np.array(sorted({link for edge in problem.logical.hyperedges for link in edge.links}), dtype=np.int64)
    firsts, column = np.unique(label[switched], return_inverse=True)
    topology = problem.logical.topology
    names = [f"r{topology.links[link].source}_r{topology.links[link].target}" for link in firsts.tolist()]
    ids = model.binaries("is_util", len(firsts), labels=names)
    is_util = np.full(problem.link_count, -1, dtype=np.int64)
    is_util[switched] = ids[column]
    return is_util


# -- rows, in the order of the thesis ----------------------------------------------------------------------------------


def _time_covers_every_arrival(parts: TreeRouter) -> None:
    """The time is at least every arrival that the postcondition asks for (5.2)."""
    arrivals = np.unique(parts.start[parts.problem.wanted])
    parts.model.add("time_covers_arrival", (1.0, parts.time), (-1.0, arrivals[:, None]), lower=0.0, cite="5.2")


def _chunk_moves_after_it_arrived(parts: TreeRouter) -> None:
    """A chunk that is sent over a link arrives lat later than it arrived at the source (5.4, 5.5).

    With M = horizon + lat - earliest arrival at the target the row says nothing if the chunk isn't sent: no arrival is
    later than the horizon and none earlier than the shortest path.
    """
    problem, topology = parts.problem, parts.problem.logical.topology
    sends = np.flatnonzero(problem.usable)
    sends = sends[np.unique(parts.is_sent.reshape(-1)[sends], return_index=True)[1]]  # one of each orbit
    chunk, link = np.divmod(sends, problem.link_count)
    source, target = topology.link_source[link], topology.link_target[link]
    lat = parts.lat[link]
    latest_at_source = np.where(source == problem.owners[chunk], 0.0, parts.horizon)
    big_m = latest_at_source + lat - np.minimum(parts.earliest[chunk, target], parts.horizon)
    parts.model.add(
        "chunk_moves_after_it_arrived",
        (1.0, parts.start[chunk, target][:, None]),
        (-1.0, parts.start[chunk, source][:, None]),
        (-big_m[:, None], parts.is_sent[chunk, link][:, None]),
        lower=lat - big_m,
        cite="5.4, 5.5",
    )


def _wanted_chunk_arrives_once(parts: TreeRouter) -> None:
    """A wanted chunk comes in over exactly one link, any other over at most one."""
    problem = parts.problem
    chunk, link = np.nonzero(problem.usable)
    target = problem.logical.topology.link_target[link]
    wanted = problem.wanted[chunk, target]
    rows = chunk * problem.collective.rank_count + target
    for family, kept, lower in (("wanted_chunk_arrives_once", wanted, 1.0), ("other_chunk_arrives_once", ~wanted, 0.0)):
        if kept.any():
            add_distinct(parts.model, family, rows[kept], parts.is_sent[chunk, link][kept], 1.0, lower=lower, upper=1.0)


def _relay_receives_before_it_sends(parts: TreeRouter) -> None:
    """A rank that neither owns nor wants a chunk sends it on only if it received it."""
    problem, topology = parts.problem, parts.problem.logical.topology
    holds = problem.wanted.copy()
    holds[np.arange(len(problem.owners)), problem.owners] = True
    chunk, link = np.nonzero(problem.usable & ~holds[:, topology.link_source])
    if not len(chunk):
        return
    into, sends = np.nonzero(topology.link_target[None, :] == topology.link_source[link][:, None])[::-1], len(chunk)
    in_link, row = into
    known = problem.usable[chunk[row], in_link]
    rows = np.concatenate([row[known], np.arange(sends)])
    columns = np.concatenate([parts.is_sent[chunk[row], in_link][known], parts.is_sent[chunk, link]])
    values = np.concatenate([np.ones(int(known.sum())), -np.ones(sends)])
    add_distinct(parts.model, "relay_receives_before_it_sends", rows, columns, values, lower=0.0)


def _time_covers_every_sum(parts: TreeRouter) -> None:
    """Where a rank sends a chunk to one rank at a time, the time is at least what these sends take together."""
    problem = parts.problem
    if not problem.logical.one_by_one:
        return
    chunk, link = np.nonzero(problem.usable)
    rows = chunk * problem.collective.rank_count + problem.logical.topology.link_source[link]
    used = np.unique(rows)
    add_distinct(
        parts.model,
        "time_covers_sum",
        np.concatenate([rows, used]),
        np.concatenate([parts.is_sent[chunk, link], np.full(len(used), parts.time)]),
        np.concatenate([-parts.lat[link], np.ones(len(used))]),
        lower=0.0,
    )


def _chunk_enters_every_node_that_wants_it(parts: TreeRouter) -> None:
    """A chunk that a foreign node wants comes into that node over at least one link (5.15)."""
    problem, topology = parts.problem, parts.problem.logical.topology
    node = np.array(topology.node_of_device)
    wanted_in = np.zeros((len(problem.owners), topology.node_count), dtype=np.bool_)
    for number in range(topology.node_count):
        wanted_in[:, number] = problem.wanted[:, node == number].any(axis=1)
    wanted_in[np.arange(len(problem.owners)), node[problem.owners]] = False
    chunk, link = np.nonzero(problem.usable & topology.is_inter_node[None, :])
    into = node[topology.link_target[link]]
    kept = wanted_in[chunk, into]
    if kept.any():
        rows = (chunk * topology.node_count + into)[kept]
        add_distinct(
            parts.model, "chunk_enters_node", rows, parts.is_sent[chunk, link][kept], 1.0, lower=1.0, cite="5.15"
        )
