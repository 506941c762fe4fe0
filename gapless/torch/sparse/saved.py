"""Plans of sparse gradients in files, as executing and training need them.

The paths are read from the schedule of the first step in it, so that they serve steps of other sizes: which rank's
entries go where, in which order. What had no entries in that step goes straight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gapless.checker import check
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, read_plan
from gapless.schedule import EventKind, Schedule
from gapless.system import find_system
from gapless.torch.sparse.plan import Regions, Route, SparsePlan
from gapless.torch.sparse.selection import entry_count

__all__ = ["read_sparse_plan", "sparse_plan"]


def read_sparse_plan(path: str | Path) -> SparsePlan:
    """The plan in a file. Raises `InputError` for a file that is no valid plan of sparse gradients."""
    plan = read_plan(path)
    if not {"cuts", "owners", "balances", "moves"} <= set(plan.details):
        raise InputError(f"{path}: must be a plan of sparse gradients, got one of {plan.system}")
    report = check(plan.schedule)
    if not report.valid:
        raise InputError(f"{path}: {report.summary()}")
    return sparse_plan(plan)


def sparse_plan(plan: SavedPlan) -> SparsePlan:
    """What a plan that replays clean says. Raises `InputError` for cuts or owners that can't be."""
    details, density = plan.details, float(plan.problem["density"])
    regions = Regions(tuple(details["cuts"]), tuple(details["owners"]))
    paths = _Paths(plan.schedule, len(regions.owners), details["moves"])
    paths.read()
    return SparsePlan(
        regions=regions,
        density=density,
        contributions=tuple(paths.contributions),
        sums=tuple(paths.sums),
        count=None if plan.problem["selection"] == "all" else entry_count(density, regions.length),
        package=find_system(plan.system).package,
        node_of=tuple(plan.schedule.topology.node_of_device),
        balances=bool(details["balances"]),
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
            if owner in owners:
                return
            owners.add(owner)
            op = schedule.graph.ops[int(schedule.op[row])]
            self.origin.update({tensor: (initial[tensor], owner) for tensor in op.inputs})
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
