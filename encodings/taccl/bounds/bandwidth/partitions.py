"""The worst partition: what an ALLREDUCE must send between classes of ranks, over all that these links can carry.

Let the ranks be cut into k classes. Before any rank has the sum of a piece, pieces of it have been sent from one class
to another k - 1 times; and every other class gets the sum by one more. So each byte is sent 2 (k - 1) times over the
links between classes, whatever the plan. Of links as fast in both directions, which share nothing, the worst partition
is the best possible bound, latencies aside: that fast spanning trees can be packed into them (Nash-Williams, Tutte),
and every piece goes up one of them and down it again.

A variable a link says how many chunks it carries in all. There is a row for each partition, of which the broken ones
are found, and links that share a switch side or a NIC share its time. With the partitions found so far the optimum is a
lower bound; once none is broken it is exact. Links that a rotation carries onto each other share a variable.

The most broken partition has the least sum, over its classes, of what leaves a class less the constant 2. Ranks are
taken one after the other: what a rank may add is the least of that over the sets with it, given what the others in them
have, by a maximum flow; sets that leave nothing to spare grow together, and are the classes in the end (Dilworth's
truncation; Barahona, Cunningham).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.bandwidth.packing import TOLERANCE, Master, master_of
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.proofs import dual_bound
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["WorstPartition", "broken_partition", "worst_partition"]

_ROUNDING = 1e-9
_STEPS = 2**30
"""A chunk is so many units of flow."""


@dataclass(frozen=True)
class WorstPartition:
    """`time_s`: no ALLREDUCE of one chunk among all ranks takes less, latencies aside.

    `exact`: whether no partition proves more. `partitions`: those found, `class_of[r]` each.
    """

    time_s: float
    exact: bool
    partitions: tuple[Ids, ...]


def worst_partition(
    topology: Topology,
    occupancy_s: Floats,
    rotations: Rotations,
    partitions: list[Ids],
    options: SolveOptions | None = None,
    most_looks: int = BoundParameters.most_partition_looks,
) -> WorstPartition:
    """The bound where a chunk holds link l for `occupancy_s[l]`; `rotations` keep the topology.

    `partitions`: those to begin with. `most_looks`: see `BoundParameters`. Where that, or the time limit, ends it early
    the bound is lower than it could be, and not `exact`.
    """
    deadline, count = Deadline(options or SolveOptions()), topology.device_count
    column = np.unique(rotations.link_orbit, return_inverse=True)[1][None, :]
    unit_s = float(occupancy_s.mean())
    twice = np.full((1, count), 2, dtype=np.int64)  # no link need carry more than all that crosses
    master = master_of("taccl_partitions", twice, column, occupancy_s, rotations, unit_s)
    alone = np.diff(topology.held_start) == 0  # links that share nothing may carry all that they can
    found, fresh, time_s, looks = list[Ids](), partitions, 0.0, 0
    while fresh and not deadline.over:
        _add_partitions(master, fresh, len(found))
        found += fresh
        solution = solve_model(master.model, deadline.stage())
        if solution.values is None or solution.row_prices is None:
            break
        time_s = max(time_s, dual_bound(master.model.arrays(), solution.row_prices) * (1 - _ROUNDING) * unit_s)
        looks += count * len(topology.links)
        if looks > most_looks:
            break
        all_s = (solution.objective or 0.0) * unit_s
        chunks = np.where(alone, np.minimum(all_s / occupancy_s, 2 * count), solution.values[master.carried[0]])
        broken = broken_partition(topology, chunks)
        fresh = [] if broken is None else [broken]
    return WorstPartition(time_s, not fresh, tuple(found))


def _add_partitions(master: Master, partitions: list[Ids], step: int) -> None:
    """Between the classes of each partition each chunk is sent once up and once down for every class but one."""
    topology = master.topology
    class_of = np.stack(partitions)
    row, link = np.nonzero(class_of[:, topology.link_source] != class_of[:, topology.link_target])
    needed = [2.0 * (len(np.unique(classes)) - 1) for classes in partitions]
    family = f"classes_send_what_joins_them_{step}"
    master.model.add_sparse(family, len(partitions), row, master.carried[0, link], 1.0, lower=np.array(needed))


def broken_partition(topology: Topology, chunks: Floats) -> Ids | None:
    """`class_of[r]` of the partition that lacks most of what must cross it, None if none lacks any.

    `chunks[l]`: how many of each chunk link l carries.
    """
    ranks = topology.device_count
    units = np.ceil(chunks * _STEPS).astype(np.int64)
    between = np.zeros((ranks, ranks), dtype=np.int64)
    np.add.at(between, (topology.link_source, topology.link_target), units)
    between += between.T
    np.fill_diagonal(between, 0)
    lacks, class_of = _least_partition(between, 4 * _STEPS)
    return class_of if lacks > TOLERANCE * _STEPS else None


def _least_partition(between: Ids, each: int) -> tuple[int, Ids]:
    """The partition with the least sum over its classes of what leaves them, less `each`, and `each` once; negated.

    `between[r, s]`: int64, symmetric, units.
    """
    ranks = len(between)
    spare = np.zeros(ranks, dtype=np.int64)
    class_of = np.arange(ranks)
    for rank in range(ranks):
        value, members = _least_set(between, spare, rank)
        spare[rank] = value - each
        class_of[np.isin(class_of, class_of[members])] = class_of[members].min()
    return -int(spare.sum()) - each, class_of


def _least_set(between: Ids, spare: Ids, last: int) -> tuple[int, Ids]:
    """The set of ranks up to `last`, with it, with the least of what leaves it, less what its others have to spare."""
    count = last + 1
    beyond = between[:count, count:].sum(axis=1) - spare[:count]
    beyond[last] += spare[last]
    pays = np.flatnonzero(beyond[:last] > 0)
    gains = np.flatnonzero(beyond[:last] < 0)
    tail, head = np.nonzero(between[:count, :count])
    capacity = np.concatenate([between[tail, head], beyond[pays], -beyond[gains]])
    tails = np.concatenate([tail, pays, np.full(len(gains), last)])
    heads = np.concatenate([head, np.full(len(pays), count), gains])
    cut = max_flow(tails, heads, capacity, count + 1, last, count)
    return cut.value + int(beyond[gains].sum() + beyond[last]), np.flatnonzero(cut.inside[:count])
