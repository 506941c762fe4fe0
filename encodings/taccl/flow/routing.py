"""Flows: where each chunk has one destination, routing relaxed to a linear program, for its bound and its paths.

Chunks of one owner that may use the same links are one commodity; how much of it crosses a link is a number, not a
choice. That is a relaxation of every routing, whatever paths the chunks take, so its optimum is a lower bound on the
makespan; and the flow falls apart into paths that balance the links, among which path_routing.py chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.milp.rows import add_distinct, time_covers_every_link_and_side
from gapless.encodings.taccl.symmetry.groups import orbits
from gapless.model import Model

__all__ = ["Commodities", "FlowModel", "Path", "commodities", "decomposed", "encode", "paths"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Path = tuple[int, ...]
"""Links one after the other."""

_NOTHING = 1e-6
"""Less of a chunk than this on a link is rounding."""


@dataclass(frozen=True)
class Commodities:
    """Chunks that start on one rank and may use the same links.

    `of[c]`: the commodity of chunk c, -1 where nobody wants it. `owner[k]`: int64. `usable[k, l]`: bool.
    `demand[k, r]`: how many chunks of commodity k rank r wants.
    """

    of: Ids
    owner: Ids
    usable: NDArray[np.bool_]
    demand: Ids


@dataclass(frozen=True)
class FlowModel:
    """The model: `flow[k, l]` is the column of commodity k on link l (chunks), -1 where it may not go.

    `time` is in units of `unit_s`. Columns are shared along orbits.
    """

    model: Model
    commodities: Commodities
    flow: Ids
    time: int
    unit_s: float


def commodities(problem: Chunked) -> Commodities:
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


def encode(problem: Chunked) -> FlowModel:
    """The least time in which all links can carry what the ranks want, as a linear program.

    No link need carry a chunk twice: columns are bounded, so that any prices of the rows prove something.
    """
    model, parts = Model("taccl_flow"), commodities(problem)
    unit_s = float(problem.duration_s.min())
    flow = _flow(model, problem, parts)
    longest = len(problem.owners) * float(problem.occupancy_s.sum()) / unit_s
    found = FlowModel(model, parts, flow, int(model.continuous("time", upper=longest)), unit_s)
    _what_a_rank_wants_stays_there(problem, found)
    number, link = np.nonzero(flow >= 0)
    occupancy = problem.occupancy_s / unit_s
    time_covers_every_link_and_side(model, problem, found.time, link, flow[number, link], occupancy)
    model.minimize((1.0, [found.time]))
    return found


def paths(problem: Chunked, parts: FlowModel, values: Floats) -> list[dict[int, list[Path]]]:
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


def decomposed(
    owner: int, wanted: Mapping[int, float], amount: Floats, source: list[int], target: list[int]
) -> dict[int, list[tuple[Path, float]]]:
    """Paths from the owner to the ranks that want some of a flow, with how much each carries.

    `amount[l]`: the flow on link l, float, which is used up; paths are as short as they can be.
    """
    leaving: dict[int, list[int]] = {}
    for link in np.flatnonzero(amount > _NOTHING).tolist():
        leaving.setdefault(source[link], []).append(link)
    found: dict[int, list[tuple[Path, float]]] = {rank: [] for rank in wanted}
    for rank, missing in wanted.items():
        while missing > _NOTHING and (path := _carrying_path(owner, rank, leaving, amount, target)):
            through = float(min(missing, *amount[list(path)]))
            amount[list(path)] -= through
            missing -= through
            found[rank].append((path, through))
    return found


def _carrying_path(owner: int, rank: int, leaving: dict[int, list[int]], left: Floats, target: list[int]) -> Path:
    """Links from `owner` to `rank` on which some flow is left, as few as possible; () if there are none."""
    brought_by: dict[int, tuple[int, int]] = {owner: (-1, -1)}
    queue = [owner]
    for at in queue:
        for link in leaving.get(at, ()):
            if left[link] > _NOTHING and target[link] not in brought_by:
                brought_by[target[link]] = link, at
                queue.append(target[link])
    path: list[int] = []
    while rank != owner and rank in brought_by:
        link, rank = brought_by[rank]
        path.append(link)
    return tuple(reversed(path))


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
