"""The exact ALLGATHER bound where resources are shared: how fast trees can be packed into links that exclude others.

A variable a link says how many chunks it carries in all. Trees of that many chunks exist if and only if every set of
ranks can send out over its links what it owns (Edmonds' theorem on disjoint arborescences, with a root above all
ranks). That is a row for each set of ranks, of which a maximum flow finds the ones that are broken; links that share a
switch side or a NIC share its time. With the sets found so far the optimum is a lower bound; once none is broken it is
exact.
Links that a rotation carries onto each other share a variable: an average over the rotations costs no time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.bandwidth import Bottleneck, allgather_bottlenecks
from gapless.encodings.taccl.bounds.concurrent_flow import time_covers_every_lane
from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.proofs import dual_bound
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["Packing", "pack"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_STEPS = 2**30
"""A chunk is this many units of flow."""
_ROUNDING = 1e-9
_TOLERANCE = 1e-6
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
class _Master:
    """The linear program: the column `carried[l]` of each link, shared along orbits; times in units of `unit_s`."""

    model: Model
    carried: Ids
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
    master = _master(topology, occupancy_s, rotations, worst)
    sinks = np.unique(rotations.rank_orbit).tolist()
    everyone = set(range(topology.device_count))
    cuts = {worst.behind, *(tuple(sorted(everyone - {sink})) for sink in sinks)}
    known: set[tuple[int, ...]] = set()
    step, time_s = 0, worst.time_s
    while cuts and not deadline.over:
        _add_cuts(master, topology, sorted(cuts), step)
        known |= cuts
        solution = solve_model(master.model, deadline.stage())
        if solution.values is None or solution.row_prices is None:
            break
        step, chunks = step + 1, solution.values[master.carried]
        proven = dual_bound(master.model.arrays(), solution.row_prices)  # whatever the prices are
        time_s = max(time_s, proven * (1 - _ROUNDING) * master.unit_s)
        broken = {cut for cut in (_broken_cut(topology, chunks, sink) for sink in sinks) if cut is not None}
        cuts = broken - known
    return Packing(time_s, not cuts, bottlenecks)


def _master(topology: Topology, occupancy_s: Floats, rotations: Rotations, worst: Bottleneck) -> _Master:
    """Least time (in units of the worst cut's) such that no resource, and no link, is held for longer.

    No link need carry a chunk twice: columns are bounded, so that any prices prove something.
    """
    orbits, orbit = np.unique(rotations.link_orbit, return_inverse=True)
    model, unit_s, count = Model("taccl_packing"), worst.time_s, topology.device_count
    carried = model.continuous("carried", len(orbits), upper=float(count))[orbit]
    longest = count * float(occupancy_s.sum()) / unit_s
    time = int(model.continuous("time", lower=1.0 - _TOLERANCE, upper=max(longest, 1.0)))
    lanes = np.concatenate([rotations.resource_orbit, len(topology.resources) + rotations.link_orbit])
    time_covers_every_lane(model, time, topology, carried[None, :], occupancy_s / unit_s, lanes)
    model.minimize((1.0, [time]))
    return _Master(model, carried, unit_s)


def _add_cuts(master: _Master, topology: Topology, cuts: list[tuple[int, ...]], step: int) -> None:
    """Each set of ranks sends out at least the chunks that it owns."""
    inside = np.zeros((len(cuts), topology.device_count), dtype=np.bool_)
    for number, behind in enumerate(cuts):
        inside[number, list(behind)] = True
    cut, link = np.nonzero(inside[:, topology.link_source] & ~inside[:, topology.link_target])
    family, owned = f"set_sends_what_it_owns_{step}", inside.sum(axis=1)
    master.model.add_sparse(family, len(cuts), cut, master.carried[link], 1.0, lower=owned)


def _broken_cut(topology: Topology, chunks: Floats, sink: int) -> tuple[int, ...] | None:
    """A set of ranks that does not get its chunks to the sink, None if every set does."""
    count = topology.device_count
    used = np.flatnonzero(chunks > 0)
    units = np.minimum(np.ceil(chunks[used] * _STEPS), float(count * _STEPS)).astype(np.int64)
    tail = np.concatenate([np.full(count, count), topology.link_source[used]])
    head = np.concatenate([np.arange(count), topology.link_target[used]])
    capacity = np.concatenate([np.full(count, _STEPS), units])
    cut = max_flow(tail, head, capacity, count + 1, count, sink)
    if cut.value >= count * _STEPS * (1 - _TOLERANCE):
        return None
    return tuple(np.flatnonzero(cut.inside[:count]).tolist())
