"""What executing and training need of a plan of sparse gradients, also of one in a file.

The paths are read from the schedule of the first step in the file, so that they serve steps of other sizes: which
rank's entries go where, in which order. What had no entries in that step goes straight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from gapless.checker import check
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, read_plan
from gapless.io.record import Record
from gapless.ir.schedule import EventKind, Schedule
from gapless.system import find_system, known_system
from gapless.torch.sparse.selection import entry_count

__all__ = ["Regions", "Route", "SparsePlan", "read_sparse_plan", "sparse_plan"]


Route: TypeAlias = tuple[int, int, int]
"""(source, target, of): a message to the next rank, of what rank `of` had at first."""


@dataclass(frozen=True)
class Regions:
    """Who adds what: `owners[r]` adds places `cuts[r]` .. `cuts[r + 1]` - 1. As many regions as ranks.

    Raises `InputError` unless cuts rise from 0 and each rank owns one region.
    """

    cuts: tuple[int, ...]
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.owners) != list(range(len(self.owners))):
            raise InputError(f"owners: must be a permutation of the ranks, got {list(self.owners)}")
        if len(self.cuts) != len(self.owners) + 1 or self.cuts[0] != 0 or any(a > b for a, b in pairwise(self.cuts)):
            raise InputError(f"cuts: must be {len(self.owners) + 1}, rising from 0, got {list(self.cuts)}")
        if self.length >= 2**31:
            raise InputError(f"cuts: places must fit into 4 bytes, so be below 2^31, got {self.length}")

    @property
    def length(self) -> int:
        """Entries of the dense gradient."""
        return self.cuts[-1]


@dataclass(frozen=True)
class SparsePlan:
    """A plan, which holds for index sets of other sizes too.

    `density`: the share of entries that each rank sends. `count`: so many of the sums go to all ranks; None: all of
    them. `contributions`: on their way to owners, `of` the rank they come from, and the owner; `sums`: on their way to
    all, `of` the rank that holds them. Both in an order in which a rank has what it passes on. `package`: of the
    planner, which has `balancing_moves(held, node_of)` and `renewed_cuts(places, elements, owners)`.
    `node_of`: the node of each rank. `balances`: whether sums are balanced before they go to all.
    """

    regions: Regions
    density: float
    contributions: tuple[tuple[int, int, int, int], ...]
    sums: tuple[Route, ...]
    count: int | None
    package: str
    node_of: tuple[int, ...] = ()
    balances: bool = True

    def check(self, length: int, ranks: int) -> None:
        """Raise `InputError` where it is for another model or number of ranks."""
        if len(self.regions.owners) != ranks:
            raise InputError(f"plan: is for {len(self.regions.owners)} ranks, got {ranks}; plan for as many")
        if self.regions.length != length:
            rule = f"plan: is for a gradient of {self.regions.length} entries, got a model of {length}"
            raise InputError(f"{rule}; record this model, and plan for it")

    def moves(self, held: Sequence[int], balance_above: float | None = None) -> list[tuple[int, int, int]]:
        """What balancing moves where ranks hold so many sums: as the plan says, or, with `balance_above`, where one
        holds more than that factor of the mean.
        """
        balances = self.balances if balance_above is None else max(held) * len(held) > balance_above * sum(held)
        if not balances:
            return []
        moves: list[tuple[int, int, int]] = import_module(self.package).balancing_moves(held, self.node_of)
        return moves

    def renewed(self, places: Sequence[NDArray[np.int32]]) -> Regions:
        """Regions for the next steps, from all ranks' places in this one, ascending."""
        owners = self.regions.owners
        cuts = import_module(self.package).renewed_cuts(places, self.regions.length, owners)
        return Regions(tuple(map(int, cuts)), owners)


def read_sparse_plan(path: str | Path) -> SparsePlan:
    """The plan in a file. Raises `InputError` for a file that is no valid plan of sparse gradients."""
    plan = read_plan(path)
    _decided(plan, str(path))
    report = check(plan.schedule)
    if not report.valid:
        raise InputError(f"{path}: {report.summary()}")
    return sparse_plan(plan)


class _Decided(Protocol):
    """What the plans of a system for sparse gradients decide; `moves`: (from, to, entries)."""

    @property
    def cuts(self) -> tuple[int, ...]: ...

    @property
    def owners(self) -> tuple[int, ...]: ...

    @property
    def balances(self) -> bool: ...

    @property
    def moves(self) -> tuple[tuple[int, ...], ...]: ...


def _decided(plan: SavedPlan, where: str = "plan") -> _Decided:
    """What a plan decides. Raises `InputError` for the plan of a system that isn't for sparse gradients."""
    system = known_system(plan.system)
    kind = None if system is None or system.decision is None else system.decision()
    if kind is None or not {"cuts", "owners", "balances", "moves"} <= {field.name for field in fields(kind)}:
        raise InputError(f"{where}: must be a plan of sparse gradients, got one of {plan.system}")
    return cast("_Decided", kind.of(plan, where))


def sparse_plan(plan: SavedPlan) -> SparsePlan:
    """What a plan that replays clean says. Raises `InputError` for cuts or owners that can't be."""
    decision, density = _decided(plan), Record(dict(plan.problem), "plan: problem").number("density")
    regions = Regions(decision.cuts, decision.owners)
    paths = _Paths(plan.schedule, len(regions.owners), decision.moves)
    paths.read()
    return SparsePlan(
        regions=regions,
        density=density,
        contributions=tuple(paths.contributions),
        sums=tuple(paths.sums),
        count=None if plan.problem["selection"] == "all" else entry_count(density, regions.length),
        package=find_system(plan.system).package,
        node_of=tuple(plan.schedule.topology.node_of_device),
        balances=decision.balances,
    )


@dataclass
class _Paths:
    """The routes of the first step in a schedule of `ranks` ranks. `moves`: what balances it.

    `origin`: of a tensor that is a rank's contribution, that rank and the owner. `holder`: of a part of a sum, who has
    it when all is balanced.
    """

    schedule: Schedule
    ranks: int
    moves: Sequence[Sequence[int]]
    origin: dict[int, tuple[int, int]] = field(default_factory=dict)
    holder: dict[int, int] = field(default_factory=dict)
    contributions: list[tuple[int, int, int, int]] = field(default_factory=list)
    sums: list[Route] = field(default_factory=list)

    def read(self) -> None:
        """The routes, in the order of the schedule, and straight ones for what has none in it."""
        schedule, topology, ranks = self.schedule, self.schedule.topology, range(self.ranks)
        rows = np.argsort(schedule.start_s, kind="stable").tolist()
        self._name_tensors([row for row in rows if schedule.kind[row] == EventKind.COMPUTE])
        has = {(rank, rank) for rank in ranks}
        for row in rows:
            if schedule.kind[row] == EventKind.TRANSFER:
                link = int(schedule.place[row])
                self._take(
                    int(topology.link_source[link]), int(topology.link_target[link]), schedule.moves[row].tolist(), has
                )
        known = set(self.origin.values())
        pairs = [(rank, owner) for rank in ranks for owner in ranks if rank != owner]
        self.contributions += [(rank, owner, rank, owner) for rank, owner in pairs if (rank, owner) not in known]
        self.sums += [(rank, other, rank) for rank, other in pairs if (other, rank) not in has]

    def _name_tensors(self, computed: Sequence[int]) -> None:
        """Whose the tensors are of the first additions, in which each rank adds once."""
        schedule, owners = self.schedule, set[int]()
        initial = dict(
            zip(schedule.graph.initial.tensors.tolist(), schedule.graph.initial.devices.tolist(), strict=True)
        )
        for row in computed:
            owner = schedule.topology.engines[int(schedule.place[row])][0]
            if owner in owners:  # of a later step
                continue
            op = schedule.graph.ops[int(schedule.op[row])]
            self.origin.update({tensor: (initial[tensor], owner) for tensor in op.inputs if tensor in initial})
            if op.kind == "add":  # buckets follow
                continue
            owners.add(owner)
            holders = [owner, *(target for source, target, _ in self.moves if source == owner)]
            self.holder.update(zip(op.outputs, holders, strict=True))

    def _take(self, source: int, target: int, tensors: Sequence[int], has: set[tuple[int, int]]) -> None:
        """A message; `has`: (rank, of), where a rank has what rank `of` holds. Balancing itself is made anew."""
        for tensor in tensors:
            if tensor in self.origin:
                self.contributions.append((source, target, *self.origin[tensor]))
            of = self.holder.get(tensor)
            if of is not None and (source, of) in has and (target, of) not in has:
                has.add((target, of))
                self.sums.append((source, target, of))
