"""Stage 1 for chunks with one destination each (ALLTOALL, SCATTER, GATHER, SENDRECV): which path each chunk takes.

The thesis routes them with its one model (5.1-5.15), a binary for each chunk and link and a time for each chunk and
rank. But a chunk with one destination goes along a path, so a binary for each path says the same; its time is a number
then, not a variable, and there is no big-M. The relaxation of what is left is nearly integral.

The paths are the short ones, and those that a flow uses: chunks of one owner that may use the same links are one
commodity; how much of it crosses a link is a number, not a choice. Other paths might be better, so the optimum of the
model is no lower bound. The flow's is: it relaxes every routing, whatever paths the chunks take. And it falls apart
into paths that balance the links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.paths import Path, decomposed, routing_of
from gapless.encodings.taccl.milp.router import (
    Router,
    add_distinct,
    time_covers_every_link_and_side,
    used_links_are_counted,
)
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.rotations import orbits
from gapless.model import Model
from gapless.solution import Solution
from gapless.solvers.proofs import dual_bound

__all__ = ["FlowModel", "PathRouter", "flow_relaxation", "path_router"]

_MOST_PATHS = 12
"""Short paths for each chunk, besides those of the flow."""
_SLACK = 0.5
"""A short path takes up to this part longer than the shortest."""
_MOST_STEPS = 2000
"""Beginnings of paths that are looked at for one chunk: far more than needed, but for long detours of equal length."""


@dataclass(frozen=True, kw_only=True)
class PathRouter(Router):
    """The choice of paths.

    Row k of the table is one path of one chunk: `chunk[k]`, `path[k]`, and `taken[k]`, its column, shared along orbits.
    """

    chunk: Ids
    path: list[Path]
    taken: Ids

    @property
    def proves(self) -> bool:
        """Paths that are not in the model might be better."""
        return False

    @property
    def ties(self) -> tuple[Floats, Ids]:
        """The lengths of the paths."""
        columns, row = np.unique(self.taken, return_inverse=True)
        duration = self.problem.duration_s / self.unit_s
        length = np.array([float(duration[list(path)].sum()) for path in self.path])
        return np.bincount(row, weights=length).astype(np.float64), columns

    def decode(self, values: Floats) -> Routing:
        """The paths of a solution."""
        rows = np.flatnonzero(values[self.taken] > 0.5)
        routing = routing_of([self.path[row] for row in rows.tolist()])
        return replace(routing, chunk=self.chunk[rows][routing.chunk])


def path_router(problem: Chunked, solve: Callable[[Model], Solution] | None = None, at_least_s: float = 0.0) -> Router:
    """The model of short paths, and of those of the flow, which `solve` is for.

    `at_least_s`: a time that no schedule can beat. No choice need be faster, and the search for one is spared.
    """
    flowing, bound = [], None
    if solve is not None:
        flow = flow_relaxation(replace(problem, path_slack=None))
        solution = solve(flow.model)
        if solution.row_prices is not None:
            bound = dual_bound(flow.model.arrays(), solution.row_prices)  # whatever the prices are
        if solution.values is not None and problem.path_slack is None:
            flowing = _flow_paths(problem, flow, solution.values)
    model = Model("taccl_paths")
    unit_s = float(problem.duration_s.min())
    chunk, path, taken = _table(model, problem, _candidate_paths(problem, flowing))
    parts = PathRouter(
        model=model,
        problem=problem,
        chunk=chunk,
        path=path,
        taken=taken,
        is_util=_is_util(model, problem, path, taken),
        time=int(model.continuous("time", lower=at_least_s / unit_s * (1 - 1e-9))),
        unit_s=unit_s,
        bound=bound,
    )
    _chunk_takes_one_path(parts)
    _time_covers_every_path(parts)
    link = np.array([link for one in path for link in one], dtype=np.int64)
    column = np.repeat(taken, [len(one) for one in path])
    time_covers_every_link_and_side(model, problem, parts.time, link, column, problem.occupancy_s / unit_s)
    switched = parts.is_util[link] >= 0
    used_links_are_counted(model, parts.is_util[link[switched]], column[switched])
    return parts


# -- paths -------------------------------------------------------------------------------------------------------------


def _candidate_paths(problem: Chunked, flowing: Sequence[dict[int, list[Path]]]) -> list[list[Path]]:
    """For the first chunk of each orbit, and of chunks that are alike, its paths, none twice; [] for other chunks.

    `flowing`: paths that carry a flow, as `_flow_paths` gives them.
    """
    parts = _commodities(problem)
    onward_s: dict[bytes, Floats] = {}
    known: dict[tuple[int, int], list[Path]] = {}
    found: list[list[Path]] = [[] for _ in problem.owners]
    for chunk in (first for first in _firsts(problem) if parts.of[first] >= 0):
        number, rank = int(parts.of[chunk]), int(np.flatnonzero(problem.wanted[chunk])[0])
        if (number, rank) not in known:
            key = parts.usable[number].tobytes()
            if key not in onward_s:
                onward_s[key] = _distances_s(problem, parts.usable[number])
            short = _short_paths(problem, parts, number, rank, onward_s[key][:, rank])
            extra = flowing[number].get(rank, []) if flowing else []
            known[number, rank] = list(dict.fromkeys([*short, *extra]))
        found[chunk] = known[number, rank]
    return found


def _distances_s(problem: Chunked, usable: Mask) -> Floats:
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


def _firsts(problem: Chunked) -> list[int]:
    """The first chunk of each orbit."""
    labels = orbits([s.chunks for s in problem.logical.symmetry], len(problem.owners))
    return [int(label) for label in np.unique(labels)]


def _table(model: Model, problem: Chunked, paths: Sequence[Sequence[Path]]) -> tuple[Ids, list[Path], Ids]:
    """One row for each path of each chunk, and its binary; chunks of one orbit take images of one another's paths."""
    firsts, symmetries = _firsts(problem), [(s.chunks, s.links.tolist()) for s in problem.logical.symmetry]
    labels = [f"c{chunk}_w{k}" for chunk in firsts for k in range(len(paths[chunk]))]
    ids = model.binaries("taken", len(labels), labels=labels)
    cuts = np.cumsum([len(paths[chunk]) for chunk in firsts])
    known: dict[int, tuple[Sequence[Path], Ids]] = {}
    for first, columns in zip(firsts, np.split(ids, cuts[:-1]), strict=True):
        known[first], orbit = (paths[first], columns), [first]
        for chunk in orbit:
            for chunks, carry in symmetries:
                if (image := int(chunks[chunk])) not in known:
                    known[image] = [tuple(carry[link] for link in path) for path in known[chunk][0]], columns
                    orbit.append(image)
    rows = [known[chunk] for chunk in range(len(problem.owners))]
    chunk_of = np.repeat(np.arange(len(rows)), [len(ones) for ones, _ in rows])
    return chunk_of, [path for ones, _ in rows for path in ones], np.concatenate([columns for _, columns in rows])


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


def _chunk_takes_one_path(parts: PathRouter) -> None:
    """Every chunk that somebody wants takes exactly one of its paths."""
    add_distinct(parts.model, "one_path", parts.chunk, parts.taken, 1.0, lower=1.0, upper=1.0)


def _time_covers_every_path(parts: PathRouter) -> None:
    """The time is at least that of every path that is taken (5.2, 5.4, 5.5)."""
    columns, row = np.unique(parts.taken, return_index=True)
    duration = parts.problem.duration_s / parts.unit_s
    times = np.array([float(duration[list(parts.path[k])].sum()) for k in row.tolist()])
    parts.model.add(
        "time_covers_path", (1.0, parts.time), (-times[:, None], columns[:, None]), lower=0.0, cite="5.2, 5.4, 5.5"
    )


# -- the flow ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commodities:
    """Chunks that start on one rank and may use the same links.

    `of[c]`: the commodity of chunk c, -1 where nobody wants it. `owner[k]`: int64. `usable[k, l]`: bool.
    `demand[k, r]`: how many chunks of commodity k rank r wants.
    """

    of: Ids
    owner: Ids
    usable: Mask
    demand: Ids


@dataclass(frozen=True)
class FlowModel:
    """The model: `flow[k, l]` is the column of commodity k on link l (chunks), -1 where it may not go.

    Columns are shared along orbits.
    """

    model: Model
    commodities: Commodities
    flow: Ids


def _commodities(problem: Chunked) -> Commodities:
    """The commodities of a problem; a chunk that nobody wants is in none."""
    numbers: dict[tuple[int, bytes], int] = {}
    members: list[int] = []
    of = np.full(len(problem.owners), -1, dtype=np.int64)
    for chunk in np.flatnonzero(problem.wanted.any(axis=1)).tolist():
        key = (int(problem.owners[chunk]), problem.usable[chunk].tobytes())
        if key not in numbers:
            numbers[key] = len(numbers)
            members.append(chunk)
        of[chunk] = numbers[key]
    demand = np.zeros((len(members), problem.collective.rank_count), dtype=np.int64)
    wanted = np.flatnonzero(of >= 0)
    np.add.at(demand, of[wanted], problem.wanted[wanted].astype(np.int64))
    return Commodities(of, problem.owners[members], problem.usable[members], demand)


def flow_relaxation(problem: Chunked) -> FlowModel:
    """The least time in which all links can carry what the ranks want, as a linear program.

    No link need carry a chunk twice: columns are bounded, so that any prices of the rows prove something.
    """
    model, parts = Model("taccl_flow"), _commodities(problem)
    unit_s = float(problem.duration_s.min())
    flow = _flow(model, problem, parts)
    occupancy = problem.occupancy_s / unit_s
    longest = len(problem.owners) * float(problem.occupancy_s.sum()) / unit_s
    time = int(model.continuous("time", upper=longest))
    found = FlowModel(model, parts, flow)
    _what_a_rank_wants_stays_there(problem, found)
    number, link = np.nonzero(flow >= 0)
    time_covers_every_link_and_side(model, problem, time, link, flow[number, link], occupancy)
    model.minimize((1.0, [time]))
    return found


def _flow_paths(problem: Chunked, parts: FlowModel, values: Floats) -> list[dict[int, list[Path]]]:
    """For each commodity and rank that wants some of it, paths that carry the flow of a solution."""
    topology = problem.logical.topology
    ends = topology.link_source.tolist(), topology.link_target.tolist()
    found: list[dict[int, list[Path]]] = []
    for number, owner in enumerate(parts.commodities.owner.tolist()):
        columns, demand = parts.flow[number], parts.commodities.demand[number]
        amount = np.where(columns >= 0, values[np.maximum(columns, 0)], 0.0)
        wanted = {rank: float(demand[rank]) for rank in np.flatnonzero(demand > 0).tolist()}
        carried = decomposed(owner, wanted, amount, *ends)
        found.append({rank: [path for path, _ in taken] for rank, taken in carried.items()})
    return found


def _flow(model: Model, problem: Chunked, parts: Commodities) -> Ids:
    """Chunks of commodity k on link l, one column for each orbit."""
    link_count = problem.link_count
    first = np.array([np.flatnonzero(parts.of == k)[0] for k in range(len(parts.owner))], dtype=np.int64)
    moves = [
        (parts.of[s.chunks[first]][:, None] * link_count + s.links[None, :]).reshape(-1)
        for s in problem.logical.symmetry
    ]
    usable = parts.usable.reshape(-1)
    firsts, column = np.unique(orbits(moves, usable.size)[usable], return_inverse=True)
    names = [f"k{cell // link_count}_l{cell % link_count}" for cell in firsts.tolist()]
    flow = np.full(usable.size, -1, dtype=np.int64)
    most = parts.demand.sum(axis=1)[firsts // link_count].astype(np.float64)
    flow[usable] = model.continuous("flow", len(firsts), upper=most, labels=names)[column]
    return flow.reshape(parts.usable.shape)


def _what_a_rank_wants_stays_there(problem: Chunked, parts: FlowModel) -> None:
    """What comes into a rank and doesn't leave it again is what the rank wants."""
    topology, asked = problem.logical.topology, parts.commodities
    number, link = np.nonzero(parts.flow >= 0)
    rank_count = problem.collective.rank_count
    one = int(parts.model.continuous("one", lower=1.0, upper=1.0))
    into = number * rank_count + topology.link_target[link]
    out = number * rank_count + topology.link_source[link]
    kept = topology.link_source[link] != asked.owner[number]
    wants, rank = np.nonzero(asked.demand)
    rows = np.concatenate([into, out[kept], wants * rank_count + rank])
    columns = np.concatenate([parts.flow[number, link], parts.flow[number, link][kept], np.full(len(wants), one)])
    values = np.concatenate([np.ones(len(into)), -np.ones(int(kept.sum())), -asked.demand[wants, rank].astype(float)])
    add_distinct(parts.model, "wanted_stays", rows, columns, values, lower=0.0, upper=0.0)
