"""Stage 1 for chunks with one destination each (ALLTOALL, SCATTER, GATHER, SENDRECV): which path each chunk takes.

The thesis routes them with its one model (5.1-5.15), a binary for each chunk and link and a time for each chunk and
rank. But a chunk with one destination goes along a path, so a binary for each path says the same; its time is a number
then, not a variable, and there is no big-M. The relaxation of what is left is nearly integral.

The paths are the short ones, and those that the flow relaxation (flow_routing.py) uses. Others might be better, so the
optimum of this model is no lower bound: the flow's is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.routing import Commodities, Path, commodities
from gapless.encodings.taccl.milp.rows import add_distinct, time_covers_every_link_and_side, used_links_are_counted
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.model import Model

__all__ = ["PathModel", "candidate_paths", "decode", "encode"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_MOST_PATHS = 12
"""Short paths for each chunk, besides those of the flow."""
_SLACK = 0.5
"""A short path takes up to this part longer than the shortest."""
_MOST_STEPS = 2000
"""Beginnings of paths that are looked at for one chunk: far more than needed, but for long detours of equal length."""


@dataclass(frozen=True)
class PathModel:
    """The model and where its variables are.

    Row k of the table is one path of one chunk: `chunk[k]`, `path[k]`, and `taken[k]`, its column, shared along orbits.
    `is_util[l]`: column that says whether link l of a switch-hyperedge is used, else -1. Times are in units of
    `unit_s`.
    """

    model: Model
    problem: Chunked
    chunk: Ids
    path: list[Path]
    taken: Ids
    is_util: Ids
    time: int
    unit_s: float


def candidate_paths(problem: Chunked, flowing: Sequence[dict[int, list[Path]]] = ()) -> list[list[Path]]:
    """For the first chunk of each orbit, and of chunks that are alike, its paths, none twice; [] for other chunks.

    `flowing`: paths that carry a flow, as `flow_routing.paths` gives them.
    """
    parts = commodities(problem)
    first = _first_of_orbit(problem)[0]
    onward: dict[bytes, Floats] = {}
    known: dict[tuple[int, int], list[Path]] = {}
    found: list[list[Path]] = [[] for _ in first]
    for chunk in np.flatnonzero((first == np.arange(len(first))) & (parts.of >= 0)).tolist():
        number, rank = int(parts.of[chunk]), int(np.flatnonzero(problem.wanted[chunk])[0])
        if (number, rank) not in known:
            key = parts.usable[number].tobytes()
            if key not in onward:
                onward[key] = _distances_s(problem, parts.usable[number])
            short = _short_paths(problem, parts, number, rank, onward[key][:, rank])
            extra = flowing[number].get(rank, []) if flowing else []
            known[number, rank] = list(dict.fromkeys([*short, *extra]))
        found[chunk] = known[number, rank]
    return found


def encode(problem: Chunked, paths: Sequence[Sequence[Path]], at_least_s: float = 0.0) -> PathModel:
    """The choice of paths; its objective is still the caller's to set.

    `at_least_s`: a time that no schedule can beat. No choice need be faster, and the search for one is spared.
    """
    model = Model("taccl_paths")
    unit_s = float(problem.duration_s.min())
    chunk, path, taken = _table(model, problem, paths)
    parts = PathModel(
        model=model,
        problem=problem,
        chunk=chunk,
        path=path,
        taken=taken,
        is_util=_is_util(model, problem, path, taken),
        time=int(model.continuous("time", lower=at_least_s / unit_s * (1 - 1e-9))),
        unit_s=unit_s,
    )
    _chunk_takes_one_path(parts)
    _time_covers_every_path(parts)
    link = np.array([link for one in path for link in one], dtype=np.int64)
    column = np.repeat(taken, [len(one) for one in path])
    time_covers_every_link_and_side(model, problem, parts.time, link, column, problem.occupancy_s / unit_s)
    switched = parts.is_util[link] >= 0
    used_links_are_counted(model, parts.is_util[link[switched]], column[switched])
    return parts


def decode(parts: PathModel, values: Floats) -> Routing:
    """The paths of a solution."""
    chunk: list[int] = []
    link: list[int] = []
    parent: list[int] = []
    for row in np.flatnonzero(values[parts.taken] > 0.5).tolist():
        for k, its_link in enumerate(parts.path[row]):
            parent.append(len(link) - 1 if k else -1)
            chunk.append(int(parts.chunk[row]))
            link.append(its_link)
    return Routing(*(np.array(column, dtype=np.int64) for column in (chunk, link, parent)))


# -- paths -------------------------------------------------------------------------------------------------------------


def _distances_s(problem: Chunked, usable: NDArray[np.bool_]) -> Floats:
    """`distances[a, b]`: the least time from rank a to rank b over the usable links (Floyd and Warshall)."""
    topology = problem.logical.topology
    distance_s = np.full((topology.device_count, topology.device_count), np.inf)
    np.fill_diagonal(distance_s, 0.0)
    links = np.flatnonzero(usable)
    np.minimum.at(distance_s, (topology.link_source[links], topology.link_target[links]), problem.duration_s[links])
    for middle in range(topology.device_count):
        np.minimum(distance_s, distance_s[:, middle, None] + distance_s[None, middle, :], out=distance_s)
    return distance_s


def _short_paths(problem: Chunked, parts: Commodities, number: int, rank: int, onward_s: Floats) -> list[Path]:
    """The `_MOST_PATHS` shortest paths, none longer than the slack allows; best first, so they come in this order."""
    topology, owner = problem.logical.topology, int(parts.owner[number])
    slack = _SLACK if problem.path_slack is None else problem.path_slack
    limit_s = (1 + slack) * float(onward_s[owner]) * (1 + 1e-9)
    source, target_of = topology.link_source.tolist(), topology.link_target.tolist()
    leaving: dict[int, list[int]] = {}
    for link in np.flatnonzero(parts.usable[number]).tolist():
        leaving.setdefault(source[link], []).append(link)
    found: list[Path] = []
    heap: list[tuple[float, Path, float, int, frozenset[int]]] = [(0.0, (), 0.0, owner, frozenset([owner]))]
    for _ in range(_MOST_STEPS):
        if not heap or len(found) == _MOST_PATHS:
            break
        _, path, time_s, at, seen = heappop(heap)
        if at == rank:
            found.append(path)
            continue
        for link in leaving.get(at, ()):
            target = target_of[link]
            end_s = time_s + float(problem.duration_s[link])
            whole_s = end_s + float(onward_s[target])
            if target not in seen and whole_s <= limit_s:
                heappush(heap, (whole_s, (*path, link), end_s, target, seen | {target}))
    return found


# -- columns -----------------------------------------------------------------------------------------------------------


def _first_of_orbit(problem: Chunked) -> tuple[Ids, list[tuple[int, int]]]:
    """The first chunk of each chunk's orbit, and how to get to each chunk: (chunk, symmetry) one step before it."""
    count = len(problem.owners)
    first = np.full(count, -1, dtype=np.int64)
    step = [(-1, -1)] * count
    for start in range(count):
        if first[start] >= 0:
            continue
        first[start], queue = start, [start]
        for chunk in queue:
            for number, symmetry in enumerate(problem.logical.symmetry):
                image = int(symmetry.chunks[chunk])
                if first[image] < 0:
                    first[image], step[image] = start, (chunk, number)
                    queue.append(image)
    return first, step


def _table(model: Model, problem: Chunked, paths: Sequence[Sequence[Path]]) -> tuple[Ids, list[Path], Ids]:
    """One row for each path of each chunk, and its binary; chunks of one orbit take images of one another's paths."""
    first, step = _first_of_orbit(problem)
    known: dict[int, tuple[list[Path], Ids]] = {}
    firsts = np.flatnonzero(first == np.arange(len(first)))
    labels = [f"c{chunk}_w{k}" for chunk in firsts.tolist() for k in range(len(paths[chunk]))]
    ids = model.binaries("taken", len(labels), labels=labels)
    cuts = np.cumsum([len(paths[chunk]) for chunk in firsts.tolist()])
    for chunk, columns in zip(firsts.tolist(), np.split(ids, cuts[:-1]), strict=True):
        known[chunk] = list(paths[chunk]), columns

    def rows_of(chunk: int) -> tuple[list[Path], Ids]:
        pending = []
        while chunk not in known:
            pending.append(chunk)
            chunk = step[chunk][0]
        for image in reversed(pending):
            before, number = step[image]
            carry = problem.logical.symmetry[number].links.tolist()
            known[image] = [tuple(carry[link] for link in path) for path in known[before][0]], known[before][1]
        return known[pending[0] if pending else chunk]

    chunk_of, path, taken = [], [], []
    for chunk in range(len(first)):
        ones, its_ids = rows_of(chunk)
        chunk_of += [chunk] * len(ones)
        path += ones
        taken.append(its_ids)
    return np.array(chunk_of, dtype=np.int64), path, np.concatenate(taken)


def _is_util(model: Model, problem: Chunked, path: list[Path], taken: Ids) -> Ids:
    """is_util[src, r] for each set of switched links that the same paths use."""
    users: dict[int, set[int]] = {link: set() for edge in problem.logical.hyperedges for link in edge.links}
    for one, column in zip(path, taken.tolist(), strict=True):
        for link in one:
            if link in users:
                users[link].add(column)
    alike: dict[frozenset[int], list[int]] = {}
    for link in sorted(users):
        if users[link]:
            alike.setdefault(frozenset(users[link]), []).append(link)
    topology = problem.logical.topology
    names = [f"r{topology.links[links[0]].source}_r{topology.links[links[0]].target}" for links in alike.values()]
    ids = model.binaries("is_util", len(alike), labels=names)
    is_util = np.full(problem.link_count, -1, dtype=np.int64)
    for links, column in zip(alike.values(), ids.tolist(), strict=True):
        is_util[links] = column
    return is_util


# -- rows --------------------------------------------------------------------------------------------------------------


def _chunk_takes_one_path(parts: PathModel) -> None:
    """Every chunk that somebody wants takes exactly one of its paths."""
    add_distinct(parts.model, "one_path", parts.chunk, parts.taken, 1.0, lower=1.0, upper=1.0)


def _time_covers_every_path(parts: PathModel) -> None:
    """The time is at least that of every path that is taken (5.2, 5.4, 5.5)."""
    columns, row = np.unique(parts.taken, return_index=True)
    duration = parts.problem.duration_s / parts.unit_s
    times = np.array([float(duration[list(parts.path[k])].sum()) for k in row.tolist()])
    parts.model.add(
        "time_covers_path", (1.0, parts.time), (-times[:, None], columns[:, None]), lower=0.0, cite="5.2, 5.4, 5.5"
    )
