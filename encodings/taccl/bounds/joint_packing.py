"""The bandwidth bound where several groups spread chunks among themselves: trees packed into links that they share.

As in `packing.py`, but with a variable for each group and link. Chunks that are wanted by the same ranks, their owners
among these, are of one group. A set of ranks that not all of a group are in sends out at least what it owns of the
group's chunks, over whatever ranks. Maximum flows find the sets for which a solution breaks that; with those found so
far the optimum is a lower bound. Pairs of group and link that a rotation carries onto each other share a variable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.concurrent_flow import time_covers_every_lane
from gapless.encodings.taccl.bounds.parameters import BoundParameters
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.orbits import orbits, rotation
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.proofs import dual_bound
from gapless.solvers.registry import solve_model

__all__ = ["joint_packing_s"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_STEPS = 2**24
"""A chunk is this many units of flow."""
_ROUNDING = 1e-9
_TOLERANCE = 1e-6
"""Sets of ranks that lack no more than this part of what they own are served; LP solvers work to 1e-7."""


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
    model, unit_s = Model("taccl_joint_packing"), float(occupancy_s.mean())
    most = float(classes.owned.sum(axis=1).max())
    carried = model.continuous("carried", int(column.max()) + 1, upper=most)[column]
    longest = most * count * float(occupancy_s.sum()) / unit_s
    time = int(model.continuous("time", upper=longest))
    lanes = np.concatenate([rotations.resource_orbit, len(topology.resources) + rotations.link_orbit])
    time_covers_every_lane(model, time, topology, carried, occupancy_s / unit_s, lanes)
    model.minimize((1.0, [time]))
    firsts = np.flatnonzero(class_orbit == np.arange(count)).tolist()
    sinks = [(number, rank) for number in firsts for rank in np.flatnonzero(classes.members[number]).tolist()]
    cuts = _first_cuts(classes, sinks)
    known: set[tuple[int, tuple[int, ...]]] = set()
    step, time_s = 0, 0.0
    while cuts and step < parameters.most_packings and not deadline.over:
        _add_cuts(model, problem, classes, carried, sorted(cuts), step)
        known |= cuts
        solution = solve_model(model, deadline.stage())
        if solution.values is None or solution.row_prices is None:
            break
        step, chunks = step + 1, solution.values[carried]
        proven = dual_bound(model.arrays(), solution.row_prices)  # whatever the prices are
        time_s = max(time_s, proven * (1 - _ROUNDING) * unit_s)
        broken = (_broken_cut(problem, chunks[number], classes.owned[number], rank) for number, rank in sinks)
        cuts = {(number, cut) for (number, _), cut in zip(sinks, broken, strict=True) if cut is not None} - known
    return time_s


def _first_cuts(classes: _Classes, sinks: list[tuple[int, int]]) -> set[tuple[int, tuple[int, ...]]]:
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


def _add_cuts(
    model: Model, problem: Chunked, classes: _Classes, carried: Ids, cuts: list[tuple[int, tuple[int, ...]]], step: int
) -> None:
    """Each set of ranks sends out at least the chunks of the class that it owns."""
    topology = problem.logical.topology
    inside = np.zeros((len(cuts), topology.device_count), dtype=np.bool_)
    for row, (_, behind) in enumerate(cuts):
        inside[row, list(behind)] = True
    numbers = np.array([number for number, _ in cuts])
    cut, link = np.nonzero(inside[:, topology.link_source] & ~inside[:, topology.link_target])
    owned = (classes.owned[numbers] * inside).sum(axis=1)
    model.add_sparse(f"set_sends_what_it_owns_{step}", len(cuts), cut, carried[numbers[cut], link], 1.0, lower=owned)


def _broken_cut(problem: Chunked, chunks: Floats, owned: Ids, sink: int) -> tuple[int, ...] | None:
    """A set of ranks that does not get its chunks to the sink, None if every set does."""
    topology, total = problem.logical.topology, int(owned.sum())
    used, count, owners = np.flatnonzero(chunks > 0), topology.device_count, np.flatnonzero(owned)
    units = np.minimum(np.ceil(chunks[used] * _STEPS), float(total * _STEPS)).astype(np.int64)
    tail = np.concatenate([np.full(len(owners), count), topology.link_source[used]])
    head = np.concatenate([owners, topology.link_target[used]])
    capacity = np.concatenate([owned[owners] * _STEPS, units])
    cut = max_flow(tail, head, capacity, count + 1, count, sink)
    if cut.value >= total * _STEPS * (1 - _TOLERANCE):
        return None
    return tuple(np.flatnonzero(cut.inside[:count]).tolist())
