"""Which forward and which backward are in one cell, as choices of a model of whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.pipeline.order.orders import Order, durations
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.model import Model

__all__ = ["Pairs", "longer_by", "pairs_of"]


@dataclass(frozen=True)
class Pairs:
    """`forward`, `backward`: numbers of ops that may be in one cell, which takes `took`; `chosen`: a binary column for
    each pair. By number of all ops: `alone`: a binary column, whether it is in no cell, -1 where it can't be in one;
    `late`: the column of its start, later by as much as its cell takes longer than the op; `own`: what the op takes.
    """

    forward: Ints
    backward: Ints
    took: Floats
    chosen: Ints
    alone: Ints
    late: Ints
    own: Floats

    def one_at_a_time(self, column: Ints, ops: Ints, held: Floats) -> list[tuple[Ints, Floats, Ints]]:
        """Of a rank's ops, what runs apart: those in no cell, and cells; so do forwards, or backwards, and all others
        that can't be in one with them, which follows, but helps the solver."""
        here = np.flatnonzero(np.isin(self.forward, ops))
        starts = np.concatenate([column[ops], column[self.forward[here]]])
        lengths = np.concatenate([held[ops], self.took[here]])
        found = [(starts, lengths, np.concatenate([self.alone[ops], self.chosen[here]]))]
        for side in (self.forward, self.backward) if len(here) else ():
            others = np.setdiff1d(ops, side[here])
            found.append((column[others], held[others], np.full(len(others), -1)))
        return found

    def fill(self, values: Floats, starts: Floats, partners: Mapping[int, int]) -> None:
        """Set the columns of a point. `starts`: of all ops; `partners`: of the forwards in cells, their backwards."""
        pairs = zip(self.forward.tolist(), self.backward.tolist(), strict=True)
        chosen = np.array([partners.get(forward) == backward for forward, backward in pairs], dtype=np.bool_)
        extra = np.zeros(len(self.own))
        values[self.alone[self.alone >= 0]] = 1.0
        values[self.chosen] = chosen
        for ops in (self.forward[chosen], self.backward[chosen]):
            values[self.alone[ops]] = 0.0
            extra[ops] = self.took[chosen] - self.own[ops]
        may = np.flatnonzero(self.alone >= 0)
        values[self.late[may]] = starts[may] + extra[may]

    def cells(self, values: Floats) -> frozenset[int]:
        """The forwards in cells, at a point."""
        return frozenset(self.forward[np.round(values[self.chosen]) == 1].tolist())

    def held(self, values: Floats, held: Floats) -> Floats:
        """How long each op holds its rank at a point, where it is as long as `held` alone."""
        chosen, found = np.round(values[self.chosen]) == 1, held.copy()
        for ops in (self.forward, self.backward):
            found[ops[chosen]] = self.took[chosen]
        return found


def longer_by(stages: Stages, order: Order) -> Floats:
    """By number of op, by how much its cell takes longer than the op, 0 where it is in none."""
    own = durations(stages, order)
    longer = np.zeros(len(own))
    for cell in order.partners.items():
        ops = np.array(cell)
        longer[ops] = stages.cell_s(*own[ops]).item() - own[ops]
    return longer


def pairs_of(model: Model, stages: Stages, column: Ints, free: Mask, earliest: Floats, latest: Floats) -> Pairs:
    """Pairs of the ops that are `free` to be in cells, whose starts, in `column`, may be the same. All by number of op.

    A forward and a backward of one copy of the model are of micro-batches that come later and earlier: a backward of
    the same one, or of a later one, waits for that forward.
    """
    forward, backward = _possible(stages, free, earliest, latest)
    own_s = [stages.forward_s, stages.backward_s, stages.weight_s][
        : len(column) // (stages.count * stages.micro_batches)
    ]
    own = np.repeat(np.concatenate(own_s), stages.micro_batches)
    took = stages.cell_s(own[forward], own[backward])
    may = np.unique(np.concatenate([forward, backward]))
    alone, late = np.full(len(column), -1, dtype=np.int64), column.copy()
    chosen = model.binaries("in_cell", len(forward))
    alone[may] = model.binaries("alone", len(may))
    late[may] = model.integers(
        "late", len(may), lower=earliest[may], upper=2 * latest.max(initial=0.0) + took.max(initial=0.0)
    )
    pair = np.stack([column[forward], column[backward]], axis=-1)
    model.add("cell_begins_at_once", (np.array([1.0, -1.0]), pair), lower=0.0, upper=0.0, only_if=chosen)
    row = np.full(len(column), -1, dtype=np.int64)
    row[may] = np.arange(len(may))
    each, ops, twice = np.arange(len(may)), np.concatenate([forward, backward]), np.tile(chosen, 2)
    model.add_sparse("alone_or_in_one_cell", len(may), np.concatenate([each, row[ops]]),
                     np.concatenate([alone[may], twice]), 1.0, lower=1.0, upper=1.0)  # fmt: skip
    longer = np.tile(took, 2) - own[ops]
    model.add_sparse("late_by_its_cell", len(may), np.concatenate([each, each, row[ops]]),
                     np.concatenate([late[may], column[may], twice]),
                     np.concatenate([np.ones(len(may)), -np.ones(len(may)), -longer]),
                     lower=0.0, upper=0.0)  # fmt: skip
    return Pairs(forward, backward, took, chosen, alone, late, own)


def _possible(stages: Stages, free: Mask, earliest: Floats, latest: Floats) -> tuple[Ints, Ints]:
    """Numbers of forwards and backwards of one rank that can start at once."""
    size, found = stages.micro_batches, [np.zeros((2, 0), dtype=np.int64)]
    numbers = np.arange(len(Kind) * stages.count * size).reshape(-1, stages.count, size)
    for rank in range(stages.ranks):
        here = np.flatnonzero(stages.rank == rank)
        forwards, backwards = (
            own[free[own]] for own in (numbers[k, here].reshape(-1) for k in Kind if k < Kind.WEIGHT)
        )
        f, b = (side.reshape(-1) for side in np.meshgrid(forwards, backwards, indexing="ij"))
        copies = [side // size % stages.count // stages.depth for side in (f, b)]
        may = (copies[0] != copies[1]) | (f % size > b % size)
        may &= (earliest[f] <= latest[b]) & (earliest[b] <= latest[f])
        found.append(np.stack([f[may], b[may]]))
    forward, backward = np.concatenate(found, axis=1)
    return forward, backward
