"""Stage 3, contiguity and exact scheduling: which chunks travel together, and when (TACCL, section 5.5.3, 5.16-5.21).

Two changes to the thesis's model. It has a binary for every pair of chunks on a link; since the order on a link is
given, a group is a run of consecutive chunks, and one binary a chunk (does it join the one before?) says the same. And
where chunks can't be grouped the order is not fixed to that of stage 2: it is only the start of the search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.ordering.list_scheduling import Order, path_times
from gapless.encodings.taccl.ordering.tables import SendTable
from gapless.model import Model

__all__ = ["EXACT", "ContiguityModel", "decode", "encode", "first_point"]

EXACT = ", exact"
"""What the schedules of this stage add to the name of the ordering that they started from."""

_STEPS = 2**20
"""Time is whole steps, this many to the makespan of the ordering: fine enough to see an alpha of a thousandth of it."""


@dataclass(frozen=True)
class ContiguityModel:
    """The model and where its variables are; times are whole steps of `step_s`, durations rounded up.

    `start[i]`, `end[i]`: columns of row i's transfer. `joins[i]`, `apart[i]`: binaries, whether row i travels with the
    row before it on its link; -1 where it can't. `position[i]`: the row's place in its group, -1 likewise.
    `before[i]`: the row before i on its link, -1 for none. `alpha`, `beta`: steps.
    """

    model: Model
    ordering: Order
    step_s: float
    start: Ids
    end: Ids
    joins: Ids
    apart: Ids
    position: Ids
    before: Ids
    time: int
    alpha: Ids
    beta: Ids


def encode(ordering: Order, at_least_s: float = 0.0) -> ContiguityModel:
    """The exact schedule of an ordering as a model of whole numbers; minimises the time (5.1).

    `at_least_s`: a time that no schedule can beat, so that solvers know when they are near enough.
    """
    parts = _columns(ordering, at_least_s)
    _time_covers_every_arrival(parts)
    _chunk_is_sent_after_it_arrived(parts)
    _joined_chunks_travel_together(parts)
    _transfer_takes_alpha_and_all_betas(parts)
    _one_transfer_at_a_time_in_order(parts)
    _one_transfer_at_a_time_in_any_order(parts)
    _time_covers_every_link_and_side(parts)
    parts.model.minimize((1.0, [parts.time]))
    return parts


def decode(parts: ContiguityModel, values: Floats) -> Order:
    """The schedule of a solution."""
    place = np.where(parts.position >= 0, np.round(values[parts.position]).astype(np.int64) - 1, 0)
    start_s, end_s = values[parts.start] * parts.step_s, values[parts.end] * parts.step_s
    return replace(parts.ordering, start_s=start_s, end_s=end_s, place=place, note=parts.ordering.note + EXACT)


def first_point(parts: ContiguityModel) -> Floats:
    """The ordering itself as column values: the same order, every chunk on its own, durations rounded up."""
    table, count = parts.ordering.table, len(parts.ordering.table)
    duration = (parts.alpha + parts.beta).tolist()
    free: dict[int, int] = {}
    start = [0] * count
    for row in np.argsort(parts.ordering.start_s, kind="stable").tolist():
        at = max(free.get(clock, 0) for clock in table.clocks[row])
        at = max([at, *(start[first] + duration[first] for first in table.needs[row])])
        start[row] = at
        free.update(dict.fromkeys(table.clocks[row], at + duration[row]))
    values = np.zeros(parts.model.column_count)
    values[parts.start] = start
    values[parts.end] = np.array(start) + parts.alpha + parts.beta
    values[parts.apart[parts.apart >= 0]] = 1.0
    values[parts.position[parts.position >= 0]] = 1.0
    values[parts.time] = values[parts.end].max()
    return values


def _columns(ordering: Order, at_least_s: float) -> ContiguityModel:
    table, count = ordering.table, len(ordering.table)
    model = Model("taccl_contiguity")
    step_s = ordering.makespan_s / _STEPS
    alpha = np.ceil(table.alpha_s / step_s - 1e-9).astype(np.int64)
    beta = np.ceil(table.beta_s / step_s - 1e-9).astype(np.int64)
    horizon = float(_STEPS + 2 * count)  # every row may have been rounded up, alpha and beta each
    before = _row_before(ordering)
    can_join = np.flatnonzero(before >= 0)
    joinable = np.flatnonzero(table.may_join)

    def scattered(rows: Ids, columns: Ids) -> Ids:
        ids = np.full(count, -1, dtype=np.int64)
        ids[rows] = columns
        return ids

    def labels(rows: Ids) -> list[str]:
        return [str(row) for row in rows.tolist()]

    return ContiguityModel(
        model=model,
        ordering=ordering,
        step_s=step_s,
        start=model.integers("send", count, upper=horizon),
        end=model.integers("start", count, upper=horizon),
        joins=scattered(can_join, model.binaries("is_together", len(can_join), labels=labels(can_join))),
        apart=scattered(can_join, model.binaries("is_apart", len(can_join), labels=labels(can_join))),
        position=scattered(joinable, model.integers("position", len(joinable), 1, count, labels=labels(joinable))),
        before=before,
        time=int(model.integers("time", lower=np.floor(min(at_least_s / step_s * (1 - 1e-9), _STEPS)), upper=horizon)),
        alpha=alpha,
        beta=beta,
    )


def _row_before(ordering: Order) -> Ids:
    """The row that each row may join: the one before it on its link and on everything else that it holds."""
    table = ordering.table
    assert isinstance(table, SendTable)
    before = np.full(len(table), -1, dtype=np.int64)
    last: dict[int, int] = {}
    for row in np.argsort(ordering.start_s, kind="stable").tolist():
        previous = {last.get(lane, -1) for lane in table.lanes[row]}
        if len(previous) == 1 and table.may_join[row]:
            candidate = previous.pop()
            if candidate >= 0 and _may_share(table, candidate, row):
                before[row] = candidate
        last.update(dict.fromkeys(table.lanes[row], row))
    return before


def _may_share(table: SendTable, first: int, second: int) -> bool:
    """Whether two rows may be one transfer: on the same lanes, and either both add to sums or both copy."""
    same_link = table.link[first] == table.link[second]
    return same_link and bool(table.may_join[first]) and table.lanes[first] == table.lanes[second]


# -- rows, in the order of the thesis ----------------------------------------------------------------------------------


def _time_covers_every_arrival(parts: ContiguityModel) -> None:
    """The time is at least the end of every transfer (5.2)."""
    parts.model.add("time_covers_arrival", (1.0, parts.time), (-1.0, parts.end[:, None]), lower=0.0, cite="5.2")


def _chunk_is_sent_after_it_arrived(parts: ContiguityModel) -> None:
    """A chunk is sent on after the transfers that bring it, or the parts of its sum, have ended (5.4)."""
    pairs = [(row, first) for row, needs in enumerate(parts.ordering.table.needs) for first in needs]
    rows, firsts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    parts.model.add(
        "sent_after_arrival",
        (1.0, parts.start[rows][:, None]),
        (-1.0, parts.end[firsts][:, None]),
        lower=0.0,
        cite="5.4",
    )


def _joined_chunks_travel_together(parts: ContiguityModel) -> None:
    """Joined chunks share start and end and count up their places in the group (5.16)."""
    rows = np.flatnonzero(parts.joins >= 0)
    before, joins, apart = parts.before[rows], parts.joins[rows], parts.apart[rows]
    one, minus = (1.0, parts.start[rows][:, None]), (-1.0, parts.start[before][:, None])
    model = parts.model
    model.add("joined_or_apart", (1.0, joins[:, None]), (1.0, apart[:, None]), lower=1.0, upper=1.0)
    model.add("joined_start", one, minus, lower=0.0, upper=0.0, only_if=joins, cite="5.16")
    one, minus = (1.0, parts.end[rows][:, None]), (-1.0, parts.end[before][:, None])
    model.add("joined_end", one, minus, lower=0.0, upper=0.0, only_if=joins, cite="5.16")
    one, minus = (1.0, parts.position[rows][:, None]), (-1.0, parts.position[before][:, None])
    model.add("joined_position", one, minus, lower=1.0, upper=1.0, only_if=joins)
    model.add("apart_position", one, lower=1.0, upper=1.0, only_if=apart)
    firsts = np.flatnonzero((parts.position >= 0) & (parts.joins < 0))
    model.add("first_position", (1.0, parts.position[firsts][:, None]), lower=1.0, upper=1.0)


def _transfer_takes_alpha_and_all_betas(parts: ContiguityModel) -> None:
    """A transfer takes alpha once and beta for each of its chunks (5.17, 5.18)."""
    grouped = parts.position >= 0
    rows, alone = np.flatnonzero(grouped), np.flatnonzero(~grouped)
    parts.model.add(
        "transfer_of_group",
        (1.0, parts.end[rows][:, None]),
        (-1.0, parts.start[rows][:, None]),
        (-parts.beta[rows][:, None].astype(np.float64), parts.position[rows][:, None]),
        lower=parts.alpha[rows],
        cite="5.17, 5.18",
    )
    parts.model.add(
        "transfer_of_chunk",
        (1.0, parts.end[alone][:, None]),
        (-1.0, parts.start[alone][:, None]),
        lower=(parts.alpha + parts.beta)[alone],
        upper=(parts.alpha + parts.beta)[alone],
        cite="5.17, 5.18",
    )


def _one_transfer_at_a_time_in_order(parts: ContiguityModel) -> None:
    """Where chunks may be grouped, each waits for the transfer before it unless it is part of it (5.19-5.21)."""
    pairs: set[tuple[int, int]] = set()
    for rows in _members(parts.ordering).values():
        if parts.ordering.table.may_join[rows].any():
            pairs.update(pairwise(rows))
    ordered = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    before, row = ordered[:, 0], ordered[:, 1]
    parts.model.add(
        "in_order",
        (1.0, parts.start[row][:, None]),
        (-1.0, parts.end[before][:, None]),
        lower=0.0,
        only_if=np.where(parts.before[row] == before, parts.apart[row], -1),
        cite="5.19, 5.20, 5.21",
    )


def _one_transfer_at_a_time_in_any_order(parts: ContiguityModel) -> None:
    """A link, switch side or NIC whose chunks are never grouped carries one at a time (5.19-5.21, order left open)."""
    duration = parts.alpha + parts.beta
    distinct = {
        tuple(sorted(rows))
        for rows in _members(parts.ordering).values()
        if len(rows) > 1 and not parts.ordering.table.may_join[rows].any()
    }
    activities = [(parts.start[list(rows)], duration[list(rows)]) for rows in sorted(distinct)]
    parts.model.no_overlap("in_any_order", activities, cite="5.19, 5.20, 5.21")


def _time_covers_every_link_and_side(parts: ContiguityModel) -> None:
    """Implied: the time covers all transfers of a link or side, the path to the first and the path on from the last."""
    duration = parts.alpha + parts.beta
    until, onward = path_times(duration.tolist(), parts.ordering.table.needs)
    distinct = sorted({tuple(sorted(rows)) for rows in _members(parts.ordering).values()})
    rows, columns, values, lower = [], [], [], []
    for number, members in enumerate(distinct):
        held = np.array(members)
        joining = held[parts.joins[held] >= 0]
        rows.append(np.full(len(joining) + 1, number))
        columns.append(np.append(parts.joins[joining], parts.time))
        values.append(np.append(parts.alpha[joining], 1))  # a chunk that joins saves its alpha
        lower.append(float(duration[held].sum() + until[held].min() + (onward - duration)[held].min()))
    family = "time_covers_side"
    entries = np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
    parts.model.add_sparse(family, len(distinct), *entries, lower=np.array(lower))


def _members(ordering: Order) -> dict[int, list[int]]:
    """The rows that hold each link or side, in the order of the ordering."""
    members: dict[int, list[int]] = {}
    for row in np.argsort(ordering.start_s, kind="stable").tolist():
        for clock in ordering.table.clocks[row]:
            members.setdefault(clock, []).append(row)
    return members
