"""Sums for several ranks: trees that bring the parts together, and what comes after them, packed into the same links.

Take one byte of a sum. Let r be the first rank that has all parts of it, at time t (of several at once, any). By t its
parts have come from every rank that holds one, so the transfers that are over by t hold a tree into r: of each set of
ranks with a part but without r, one of the tree's transfers leads out. Every other rank that wants the sum has it
later, by a transfer that ends after t: these *late* ones are not of the tree. So with `early[l]`, `late[l]` and
`first[r]`, the chunks whose trees and whose late transfers use link l, and those that rank r is the first to have,

- for each set S of ranks, one of which has a part: what `early` carries out of S, and `first` in S, is at least the
  count of the chunks;
- for each rank v that wants the sum: what `late` brings to v, and `first[v]`, is at least that count, too.

There are other transfers besides (what a late one brings need not come from r). So a third column a link, `sent`, is at
least the two together, and two more rules hold for it: a byte with a part in S that a rank outside of S wants leaves S;
and between the k classes of a partition of all ranks, which all want the sum, it is sent 2 (k - 1) times. Each of these
rules stays true where a link counts at most twice for a byte, so columns are bounded, and any prices prove something.

What no two links carry at once takes its time one after the other: links of one port, and links of which each two share
some port, though no port has them all (three links around a triangle of half-duplex NICs).

The program starts with single ranks and all ranks but one, and adds the sets that a maximum flow finds broken. Its
optimum is a lower bound at any time; links that a rotation carries onto each other share their columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import time_covers_every_lane
from gapless.encodings.taccl.bounds.cuts import Kind
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.max_flow import max_flow
from gapless.solvers.proofs import dual_bound
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["exclusive_sets", "sums_s"]

_STEPS = 2**30
"""A chunk is so many units of flow."""
_TOLERANCE = 1e-6
_ROUNDING = 1e-9
_MOST_CLIQUES = 200
"""Such sets of links, at most; and links that hold several ports up to which they are looked for."""


@dataclass(frozen=True)
class _Program:
    """`sent`, `early`, `late`: columns, int64 of shape (kinds, links). `first`: (kinds, ranks). Times in `unit_s`.

    `parts[k, r]`, `wants[k, r]`: whether rank r holds a part of kind k, or wants it. `count[k]`: chunks of the kind.
    """

    model: Model
    topology: Topology
    sent: Ids
    early: Ids
    late: Ids
    first: Ids
    parts: Mask
    wants: Mask
    count: Floats
    unit_s: float


_Set = tuple[bool, int, tuple[int, ...]]
"""Whether trees leave it, or else all that is sent; of which kind; and the ranks of a set."""


def sums_s(
    topology: Topology,
    occupancy_s: Floats,
    kinds: list[Kind],
    rotations: Rotations,
    partitions: list[Ids],
    options: SolveOptions,
    parameters: BoundParameters,
) -> float:
    """Seconds that no plan for these sums takes less than, where a chunk holds link l for `occupancy_s[l]`.

    `rotations` keep topology and kinds. `partitions`: some that are narrow. 0 where there would be too many columns;
    where the limits of options or parameters end it early, it is lower than it could be.
    """
    links = len(np.unique(rotations.link_orbit))
    if not kinds or links * len(kinds) > parameters.most_sum_columns:
        return 0.0
    deadline, best_s = Deadline(options), 0.0
    program = _program(topology, occupancy_s, kinds, rotations, partitions)
    ranks = np.unique(rotations.rank_orbit).tolist()
    known, fresh, looks, step = set[_Set](), _first_sets(program, ranks), 0, 0
    while fresh and not deadline.over:
        _add_sets(program, sorted(fresh), step)
        known |= fresh
        solution = solve_model(program.model, deadline.stage())
        if solution.values is None or solution.row_prices is None:
            break
        proven = dual_bound(program.model.arrays(), solution.row_prices)  # whatever the prices are
        best_s = max(best_s, proven * (1 - _ROUNDING) * program.unit_s)
        step, looks = step + 1, looks + _looks(program, ranks)
        if looks > parameters.most_partition_looks:
            break
        fresh = _broken_sets(program, solution.values, ranks) - known
    return best_s


def _looks(program: _Program, ranks: list[int]) -> int:
    """Pairs of ranks times links that `_broken_sets` looks at."""
    sources = np.where(len(program.count) > 1, program.parts.sum(axis=1), len(ranks))
    return int((sources * (1 + program.wants.sum(axis=1))).sum()) * len(program.topology.links)


def exclusive_sets(topology: Topology) -> list[Ids]:
    """Links of which each two share some resource though no resource has them all: one works at a time; the largest."""
    holds = np.zeros((len(topology.links), len(topology.resources)), dtype=np.bool_)
    holds[topology.held_by, topology.held] = True
    some = np.flatnonzero(holds.sum(axis=1) > 1)
    if not 2 < len(some) <= _MOST_CLIQUES:
        return []
    shared = holds[some].astype(np.int64) @ holds[some].T.astype(np.int64) > 0
    np.fill_diagonal(shared, False)
    found: list[Ids] = []
    for clique in nx.find_cliques(nx.from_numpy_array(shared)):
        links = np.sort(some[clique])
        if len(links) > 2 and not holds[links].all(axis=0).any():
            found.append(links)
        if len(found) >= _MOST_CLIQUES:
            break
    return found


def _program(
    topology: Topology, occupancy_s: Floats, kinds: list[Kind], rotations: Rotations, partitions: list[Ids]
) -> _Program:
    """The program without its sets: what time covers, what a tree and late transfers add up to, and partitions."""
    ends = np.zeros((2, len(kinds), topology.device_count), dtype=np.bool_)
    for k, kind in enumerate(kinds):
        ends[0, k, list(kind.holders)] = ends[1, k, list(kind.wants)] = True
    count = np.array([float(kind.count) for kind in kinds])
    model, unit_s = Model("taccl_sums"), float(occupancy_s.mean() * count.sum())
    link_number, rank_number = (
        np.unique(orbit, return_inverse=True)[1] for orbit in (rotations.link_orbit, rotations.rank_orbit)
    )

    def columns(name: str, number: Ids, times: int = 1) -> Ids:
        shape = len(kinds), int(number.max()) + 1
        return np.asarray(model.continuous(name, shape, upper=times * count[:, None])[:, number])

    sent = columns("sent", link_number, 2)
    early, late, first = columns("early", link_number), columns("late", link_number), columns("first", rank_number)
    longest = 2 * float(count.sum() * occupancy_s.sum()) / unit_s
    time = int(model.continuous("time", upper=max(longest, 1.0)))
    lanes = np.concatenate([rotations.resource_orbit, len(topology.resources) + rotations.link_orbit])
    time_covers_every_lane(model, time, topology, sent, occupancy_s / unit_s, lanes)
    program = _Program(model, topology, sent, early, late, first, ends[0], ends[1], count, unit_s)
    _time_covers_exclusive_sets(program, time, occupancy_s / unit_s)
    _trees_and_late_transfers_are_sent(program)
    _partitions_are_crossed(program, partitions)
    model.minimize((1.0, [time]))
    return program


def _time_covers_exclusive_sets(program: _Program, time: int, occupancy: Floats) -> None:
    """The time is at least what links take together of which each two share a port."""
    for number, links in enumerate(exclusive_sets(program.topology)):
        columns = program.sent[:, links]
        value = np.broadcast_to(-occupancy[links], columns.shape)
        program.model.add(
            f"time_covers_set_{number}", (1.0, [time]), (value.ravel(), columns.ravel()), lower=0.0
        )  # fmt: skip


def _trees_and_late_transfers_are_sent(program: _Program) -> None:
    """And some rank is the first to have each chunk; every other that wants it gets it late."""
    model, count = program.model, program.count
    both = np.stack([program.sent, program.early, program.late], axis=-1)
    model.add("sent", ([1.0, -1.0, -1.0], both), lower=0.0)
    model.add("one_is_first", (1.0, program.first), lower=count, upper=count)
    kind, rank = np.nonzero(program.wants)
    number = np.full(program.wants.shape, -1)
    number[kind, rank] = np.arange(len(kind))
    row = number[:, program.topology.link_target]
    rows = np.concatenate([row[row >= 0], np.arange(len(kind))])
    columns = np.concatenate([program.late[row >= 0], program.first[kind, rank]])
    model.add_sparse("others_get_it_late", len(kind), rows, columns, 1.0, lower=count[kind])


def _partitions_are_crossed(program: _Program, partitions: list[Ids]) -> None:
    """Of kinds of which all ranks hold a part, and which all want."""
    topology, kinds = program.topology, np.flatnonzero((program.parts & program.wants).all(axis=1))
    if not partitions or not len(kinds):
        return
    class_of = np.stack(partitions)
    row, link = np.nonzero(class_of[:, topology.link_source] != class_of[:, topology.link_target])
    classes = np.array([len(np.unique(one)) for one in partitions])
    for kind in kinds.tolist():
        needed = 2.0 * (classes - 1) * program.count[kind]
        family = f"classes_send_what_joins_them_{kind}"
        program.model.add_sparse(family, len(partitions), row, program.sent[kind, link], 1.0, lower=needed)


def _first_sets(program: _Program, ranks: list[int]) -> set[_Set]:
    """Single ranks, and all ranks but one."""
    everyone, found = range(program.topology.device_count), set[_Set]()
    for kind in range(len(program.count)):
        for rank in everyone if len(program.count) > 1 else ranks:
            for inside in ((rank,), tuple(other for other in everyone if other != rank)):
                if program.parts[kind, list(inside)].any():
                    outside = np.delete(program.wants[kind], list(inside))
                    found |= {(True, kind, inside)} | ({(False, kind, inside)} if outside.any() else set())
    return found


def _add_sets(program: _Program, sets: list[_Set], step: int) -> None:
    """What leaves each set; of trees, with what is first complete inside it."""
    tail, head = program.topology.link_source, program.topology.link_target
    rows, columns = [], []
    for row, (is_tree, kind, ranks) in enumerate(sets):
        inside = np.zeros(program.topology.device_count, dtype=np.bool_)
        inside[list(ranks)] = True
        carried = (program.early if is_tree else program.sent)[kind, inside[tail] & ~inside[head]]
        found = np.concatenate([carried, program.first[kind, inside & is_tree]])
        rows.append(np.full(len(found), row))
        columns.append(found)
    needed = program.count[[kind for _, kind, _ in sets]]
    entries = np.concatenate(rows), np.concatenate(columns)
    program.model.add_sparse(f"sets_are_left_{step}", len(sets), *entries, 1.0, lower=needed)


def _broken_sets(program: _Program, values: Floats, ranks: list[int]) -> set[_Set]:
    """Sets that less leaves than must, by maximum flows from each rank with a part; `ranks`: one of each orbit."""
    topology, found = program.topology, set[_Set]()
    several, everyone = len(program.count) > 1, np.arange(topology.device_count)
    end = len(everyone)  # what each rank is the first to have goes there
    tail, head = np.append(topology.link_source, everyone), np.append(topology.link_target, np.full(end, end))
    for kind, chunks in enumerate(program.count.tolist()):
        sources = np.flatnonzero(program.parts[kind]).tolist() if several else ranks
        trees = np.append(values[program.early[kind]], values[program.first[kind]]) / chunks
        sent = np.append(values[program.sent[kind]] / chunks, np.zeros(end))
        for source in sources:
            found |= {(True, kind, some) for some in _narrow(tail, head, trees, source, end)}
            for sink in np.flatnonzero(program.wants[kind]).tolist():
                found |= {(False, kind, some) for some in _narrow(tail, head, sent, source, sink)}
    return found


def _narrow(tail: Ids, head: Ids, rate: Floats, source: int, sink: int) -> list[tuple[int, ...]]:
    """A set with the source that less than one chunk leaves for the sink, if there is one; none if they are one."""
    if source == sink:
        return []
    units = np.minimum(np.ceil(np.maximum(rate, 0.0) * _STEPS), 2.0 * _STEPS).astype(np.int64)
    end = int(head.max())
    cut = max_flow(tail, head, units, end + 1, source, sink)
    if cut.value >= _STEPS * (1 - _TOLERANCE):
        return []
    return [tuple(np.flatnonzero(cut.inside[:end]).tolist())]
