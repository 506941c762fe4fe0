"""The exact bandwidth bound of a problem that doesn't reduce: trees packed for ALLGATHER, a flow for single targets.

Chunks that several ranks want, but not all, have the bottleneck cuts around ranks and nodes instead, and trees of all
groups packed together. Symmetries of topology and collective make orbits, so the bound is quick on a thousand ranks.

**Packing**, where links exclude others: how fast trees can be packed into them.

A variable a link says how many chunks it carries in all. Trees of that many chunks exist if and only if every set of
ranks can send out over its links what it owns (Edmonds' theorem on disjoint arborescences, with a root above all
ranks). That is a row for each set of ranks, of which a maximum flow finds the ones that are broken; links that share a
switch side or a NIC share its time. With the sets found so far the optimum is a lower bound; once none is broken it is
exact.
Links that a rotation carries onto each other share a variable: an average over the rotations costs no time.

Where several groups spread chunks among themselves, there is a variable for each group and link. Chunks that are wanted
by the same ranks, their owners among these, are of one group. A set of ranks that not all of a group are in sends out
at least what it owns of the group's chunks, over whatever ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import Bottleneck, Network, allgather_bottlenecks, bottleneck
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import (
    ConcurrentFlow,
    concurrent_flow,
    time_covers_every_lane,
)
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations, orbits, rotation
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.proofs import dual_bound
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = [
    "TOLERANCE", "Bandwidth", "Cut", "Master", "Packing", "bottlenecks_of", "exact_bandwidth", "joint_packing_s",
    "least_time", "master_of", "pack",
]  # fmt: skip


Cut = tuple[int, tuple[int, ...]]
"""A class of chunks, and a set of ranks that owns some of it."""

_MOST_STEPS, _MOST_FLOW = 2**30, 2**50
"""A chunk is at most so many units of flow, and all chunks together."""
_ROUNDING = 1e-9
TOLERANCE = 1e-6
"""Sets of ranks that lack no more than this part of what they own are served; LP solvers work to 1e-7."""


@dataclass(frozen=True)
class Packing:
    """`time_s`: no ALLGATHER of a chunk a rank takes less.

    `exact`: whether an ALLGATHER in arbitrarily small pieces takes no longer, latencies aside. `bottlenecks`: the
    cuts found in front of single ranks, which need `time_s` or less.
    """

    time_s: float
    exact: bool
    bottlenecks: tuple[Bottleneck, ...]

    @property
    def bottleneck(self) -> Bottleneck:
        """The worst of the cuts."""
        return max(self.bottlenecks, key=lambda cut: cut.time_s)


@dataclass(frozen=True)
class Master:
    """The linear program, for chunks of one class or several, whose trees share the links.

    `carried[k, l]`: the column that says how many chunks of class k link l carries. `owned[k, r]`: how many of them
    rank r owns. Times are in units of `unit_s`.
    """

    model: Model
    topology: Topology
    carried: Ids
    owned: Ids
    unit_s: float


def pack(
    topology: Topology, occupancy_s: Floats, options: SolveOptions | None = None, rotations: Rotations | None = None
) -> Packing:
    """The least time of an ALLGATHER of one chunk a rank, each chunk holding link l for `occupancy_s[l]`.

    Where links share nothing the worst cut is exact, without a linear program. Where the time limit ends it early the
    bound is lower than it could be, and not `exact`. Raises `InputError` where the ranks are not all connected.
    """
    deadline = Deadline(options or SolveOptions())
    rotations = rotations or find_rotations(topology)
    bottlenecks = tuple(allgather_bottlenecks(topology, occupancy_s, rotations))
    worst = max(bottlenecks, key=lambda cut: cut.time_s)
    if np.bincount(topology.held, minlength=1).max() <= 1:
        return Packing(worst.time_s, True, bottlenecks)
    column = np.unique(rotations.link_orbit, return_inverse=True)[1][None, :]
    owned = np.ones((1, topology.device_count), dtype=np.int64)
    master = master_of("taccl_packing", owned, column, occupancy_s, rotations, worst.time_s, 1.0 - TOLERANCE)
    sinks = np.unique(rotations.rank_orbit).tolist()
    everyone = set(range(topology.device_count))
    cuts = {(0, worst.behind), *((0, tuple(sorted(everyone - {sink}))) for sink in sinks)}
    time_s, is_exact = least_time(master, cuts, [(0, sink) for sink in sinks], deadline)
    return Packing(max(worst.time_s, time_s), is_exact, bottlenecks)


def master_of(
    name: str, owned: Ids, column: Ids, occupancy_s: Floats, rotations: Rotations, unit_s: float, least: float = 0.0
) -> Master:
    """Least time (in `unit_s`, at least `least`) such that no resource, and no link, is held for longer.

    `column[k, l]`: the number of the column of class k on link l, shared along orbits. No link need carry a chunk
    twice: columns are bounded, so that any prices prove something.
    """
    topology, most = rotations.topology, float(owned.sum(axis=1).max())
    model = Model(name)
    carried = model.continuous("carried", int(column.max()) + 1, upper=most)[column]
    longest = most * len(owned) * float(occupancy_s.sum()) / unit_s
    time = int(model.continuous("time", lower=least, upper=max(longest, 1.0)))
    lanes = np.concatenate([rotations.resource_orbit, len(topology.resources) + rotations.link_orbit])
    time_covers_every_lane(model, time, topology, carried, occupancy_s / unit_s, lanes)
    model.minimize((1.0, [time]))
    return Master(model, topology, carried, owned, unit_s)


def least_time(
    master: Master, cuts: set[Cut], sinks: list[tuple[int, int]], deadline: Deadline, most_steps: float = np.inf
) -> tuple[float, bool]:
    """Seconds that no packing takes less than, and whether that is exact: no set of ranks is broken any more.

    `cuts`: the sets to begin with. `sinks`: classes, and a rank of each that its chunks must get to.
    """
    known: set[Cut] = set()
    step, time_s = 0, 0.0

    def solved(interior: bool) -> Floats | None:
        """Chunks over each link; without a centre, a vertex, whose prices are the more exact."""
        nonlocal time_s
        solution = solve_model(master.model, replace(deadline.stage(), interior=interior))
        if solution.values is None or solution.row_prices is None:
            return None
        proven = dual_bound(master.model.arrays(), solution.row_prices)  # whatever the prices are
        time_s = max(time_s, proven * (1 - _ROUNDING) * master.unit_s)
        return np.asarray(solution.values[master.carried])

    while cuts and step < most_steps and not deadline.over:
        _add_cuts(master, sorted(cuts), step)
        known |= cuts
        chunks = solved(interior=True)  # the centre of all optima breaks few more sets, a vertex dozens
        if chunks is None:
            break
        step += 1
        broken = (_broken_cut(master, number, chunks[number], sink) for number, sink in sinks)
        cuts = {(number, cut) for (number, _), cut in zip(sinks, broken, strict=True) if cut is not None} - known
    if step and not deadline.over:
        solved(interior=False)
    return time_s, not cuts


def _add_cuts(master: Master, cuts: list[Cut], step: int) -> None:
    """Each set of ranks sends out at least the chunks of the class that it owns."""
    topology, numbers = master.topology, np.array([number for number, _ in cuts])
    inside = np.zeros((len(cuts), topology.device_count), dtype=np.bool_)
    for row, (_, behind) in enumerate(cuts):
        inside[row, list(behind)] = True
    cut, link = np.nonzero(inside[:, topology.link_source] & ~inside[:, topology.link_target])
    family, owned = f"set_sends_what_it_owns_{step}", (master.owned[numbers] * inside).sum(axis=1)
    master.model.add_sparse(family, len(cuts), cut, master.carried[numbers[cut], link], 1.0, lower=owned)


def _broken_cut(master: Master, number: int, chunks: Floats, sink: int) -> tuple[int, ...] | None:
    """A set of ranks that does not get its chunks of a class to the sink, None if every set does."""
    topology, owned = master.topology, master.owned[number]
    count, total, owners = topology.device_count, int(owned.sum()), np.flatnonzero(owned)
    steps = min(_MOST_STEPS, _MOST_FLOW // total)
    used = np.flatnonzero(chunks > 0)
    units = np.minimum(np.ceil(chunks[used] * steps), float(total * steps)).astype(np.int64)
    tail = np.concatenate([np.full(len(owners), count), topology.link_source[used]])
    head = np.concatenate([owners, topology.link_target[used]])
    capacity = np.concatenate([owned[owners] * steps, units])
    cut = max_flow(tail, head, capacity, count + 1, count, sink)
    if cut.value >= total * steps * (1 - TOLERANCE):
        return None
    return tuple(np.flatnonzero(cut.inside[:count]).tolist())


@dataclass(frozen=True)
class _Classes:
    """`members[k, r]`: whether rank r owns or wants chunks of class k; `owned[k, r]`: how many of them it owns."""

    members: Mask
    owned: Ids

    @classmethod
    def of(cls, problem: Chunked) -> _Classes:
        """The classes of a problem that doesn't reduce; chunks that nobody wants are in none."""
        some = np.flatnonzero(problem.wanted.any(axis=1))
        reach = problem.wanted[some]
        reach[np.arange(len(some)), problem.owners[some]] = True
        members, number = np.unique(reach, axis=0, return_inverse=True)
        owned = np.zeros(members.shape, dtype=np.int64)
        np.add.at(owned, (number.ravel(), problem.owners[some]), 1)
        return cls(members, owned)


def joint_packing_s(
    problem: Chunked, occupancy_s: Floats, rotations: Rotations, options: SolveOptions, parameters: BoundParameters
) -> float:
    """Seconds that no plan of a problem that doesn't reduce takes less than; each chunk holds link l `occupancy_s[l]`.

    0 where there would be too many variables. Where the time limit, or the work that the parameters allow, ends it
    early, it is lower than it could be.
    """
    classes, topology, deadline = _Classes.of(problem), problem.logical.topology, Deadline(options)
    count, links = len(classes.members), len(topology.links)
    if not count or count * links > parameters.most_flow_variables * len(rotations):
        return 0.0
    class_orbit, column = _orbits(classes, rotations)
    if column.max(initial=0) >= parameters.most_tree_variables:
        return 0.0
    unit_s = float(occupancy_s.mean())
    master = master_of("taccl_joint_packing", classes.owned, column, occupancy_s, rotations, unit_s)
    firsts = np.flatnonzero(class_orbit == np.arange(count)).tolist()
    sinks = [(number, rank) for number in firsts for rank in np.flatnonzero(classes.members[number]).tolist()]
    return least_time(master, _first_cuts(classes, sinks), sinks, deadline, parameters.most_packings)[0]


def _first_cuts(classes: _Classes, sinks: list[tuple[int, int]]) -> set[Cut]:
    """All ranks but one; and all members that come first in their classes, or at one place, or all ranks but these."""
    everyone = np.arange(classes.members.shape[1])
    cuts = {(number, tuple(np.delete(everyone, rank).tolist())) for number, rank in sinks}
    place = np.where(classes.members, classes.members.cumsum(axis=1) - 1, -1).max(axis=0)
    for at in range(int(place.max())):
        for inside in ((place >= 0) & (place <= at), place == at):
            for behind in (inside, ~inside):
                some = (classes.members & ~behind).any(axis=1) & (classes.owned * behind).any(axis=1)
                cuts |= {(number, tuple(np.flatnonzero(behind).tolist())) for number in np.flatnonzero(some).tolist()}
    return cuts


def _orbits(classes: _Classes, rotations: Rotations) -> tuple[Ids, Ids]:
    """The orbit of each class, and a number for the orbit of each pair of class and link, shape (classes, links)."""
    topology = rotations.topology
    count, links, ranks = len(classes.members), len(topology.links), topology.device_count
    place = {row.tobytes(): number for number, row in enumerate(classes.members)}
    of_class, of_pair = [], []
    for offset, size in rotations.generators:
        permutation = rotation(offset, size, ranks)
        moved = np.empty_like(classes.members)
        moved[:, permutation] = classes.members
        image = np.array([place[row.tobytes()] for row in moved], dtype=np.int64)
        at = int(np.flatnonzero((rotations.ranks == permutation).all(axis=1))[0])
        link_image = rotations.link_images(np.arange(links))[at]
        of_class.append(image)
        of_pair.append((image[:, None] * links + link_image[None, :]).ravel())
    column = np.unique(orbits(of_pair, count * links), return_inverse=True)[1]
    return orbits(of_class, count), column.reshape(count, links)


@dataclass(frozen=True)
class Bandwidth:
    """`time_s`: no plan takes less. `exact`: whether one in arbitrarily small pieces takes no longer, latencies aside.

    `bottlenecks`: the cuts found. `flow`: where chunks have one destination, what carries them all in the least time;
    None where its program is too large.
    """

    time_s: float
    exact: bool
    bottlenecks: tuple[Bottleneck, ...]
    flow: ConcurrentFlow | None = None


def exact_bandwidth(
    problem: Chunked,
    occupancy_s: Floats,
    rotations: Rotations,
    options: SolveOptions,
    parameters: BoundParameters,
    short: bool = False,
) -> Bandwidth:
    """The bound where a chunk holds link l for `occupancy_s[l]`; `rotations` keep topology and collective.

    `short`: for a plan rather than a bound, of the flows that take the least time one over short paths, and trees of
    several groups are not packed. Where the time limit of the options ends a linear program, the bound is lower than it
    could be, and not `exact`; where a chunk holds some link for no time, it is 0.
    """
    topology = problem.logical.topology
    if not (occupancy_s > 0).all():
        return Bandwidth(0.0, False, ())
    if _is_allgather(problem):
        count = problem.collective.chunks_per_rank
        if len(np.unique(rotations.link_orbit)) <= parameters.most_tree_variables:
            packing = pack(topology, occupancy_s, options, rotations)
            return Bandwidth(count * packing.time_s, packing.exact, packing.bottlenecks)
        cuts = bottlenecks_of(problem, occupancy_s, rotations)
        return Bandwidth(count * max(cut.time_s for cut in cuts), False, cuts)
    cuts = bottlenecks_of(problem, occupancy_s, rotations)
    time_s = max(cut.time_s for cut in cuts)
    if (demand := _demand(problem)) is None:
        joint_s = 0.0 if short else joint_packing_s(problem, occupancy_s, rotations, options, parameters)
        return Bandwidth(max(time_s, joint_s), False, cuts)
    flow = concurrent_flow(topology, occupancy_s, demand, options, short, parameters.most_flow_variables)
    if flow is None:
        return Bandwidth(time_s, False, cuts)
    return Bandwidth(max(time_s, flow.time_s), flow.exact, cuts, flow)


def bottlenecks_of(problem: Chunked, occupancy_s: Floats, rotations: Rotations) -> tuple[Bottleneck, ...]:
    """The cuts that `exact_bandwidth` begins with, which take no linear program; none where it is 0."""
    if not (occupancy_s > 0).all():
        return ()
    if _is_allgather(problem):
        return tuple(allgather_bottlenecks(problem.logical.topology, occupancy_s, rotations))
    return tuple(_cuts(problem, occupancy_s, rotations))


def _demand(problem: Chunked) -> Ids | None:
    """`demand[s, t]`: how many chunks rank t wants from rank s, None where some are wanted by several ranks."""
    wanted_by = problem.wanted.sum(axis=1)
    if wanted_by.max(initial=0) > 1:
        return None
    some, count = np.flatnonzero(wanted_by), problem.collective.rank_count
    demand = np.zeros((count, count), dtype=np.int64)
    np.add.at(demand, (problem.owners[some], problem.wanted[some].argmax(axis=1)), 1)
    return demand


def _is_allgather(problem: Chunked) -> bool:
    """Whether every rank has as many chunks as any other, all wanted by all others."""
    per_rank = np.bincount(problem.owners, minlength=problem.collective.rank_count)
    everywhere = problem.wanted.sum() == len(problem.owners) * (problem.collective.rank_count - 1)
    return bool(everywhere and (per_rank == problem.collective.chunks_per_rank).all())


def _cuts(problem: Chunked, occupancy_s: Floats, rotations: Rotations) -> list[Bottleneck]:
    """The bottleneck into one rank and one node of each orbit, and into all the others."""
    network, found = Network.of(problem.logical.topology, occupancy_s), []
    for ranks in _sets(problem.logical.topology, rotations):
        inside = np.array(ranks)
        wanted = problem.wanted[:, inside].any(axis=1)
        owned = np.bincount(problem.owners[wanted], minlength=problem.collective.rank_count)
        found.append(bottleneck(network, owned, inside))
    return found


def _sets(topology: Topology, rotations: Rotations) -> list[tuple[int, ...]]:
    """One rank and one node of each orbit, and the others of each."""
    orbit = rotations.rank_orbit
    nodes = topology.nodes
    sets: set[tuple[int, ...]] = {(rank,) for rank in np.unique(orbit).tolist()}
    if len(nodes) > 1:
        kinds = {tuple(sorted(orbit[ranks].tolist())): tuple(ranks) for ranks in reversed(nodes)}
        sets |= set(kinds.values())
    everyone = set(range(topology.device_count))
    return sorted(sets | {tuple(sorted(everyone - set(ranks))) for ranks in sets})
