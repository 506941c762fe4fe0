"""The bandwidth bound where several groups spread chunks among themselves: trees packed into links that they share.

The linear program is that of `packing.py`, with a variable for each group and link. Chunks that are wanted by the same
ranks, their owners among these, are of one group. A set of ranks that not all of a group are in sends out at least what
it owns of the group's chunks, over whatever ranks. Pairs of group and link that a rotation carries onto each other
share a variable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.packing import Cut, least_time, master_of
from gapless.encodings.taccl.bounds.parameters import BoundParameters
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.groups import orbits, rotation
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.options import Deadline, SolveOptions

__all__ = ["joint_packing_s"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


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
