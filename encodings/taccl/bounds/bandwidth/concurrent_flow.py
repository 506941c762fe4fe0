"""The exact bandwidth bound where chunks have one destination: a maximum concurrent flow, as a linear program.

Chunks of one owner are one commodity. How much of it each link carries is a number, not a choice; what comes into a
rank and stays there is what the rank wants; and all that holds a link, a switch side, a NIC or a cable takes its time,
one after the other. The least time for that is a lower bound on every schedule, whatever paths the chunks take, and no
bound that knows bandwidth alone is higher: in small enough pieces the flow is a plan, latencies aside.

The bound is proven apart from the solver. Its prices of the resources, whatever they are, say how much of the
resources' time the cheapest paths of all chunks take at least; a schedule has no more of each than its own length.

An average of a flow over the symmetries of topology and demand takes no longer, so pairs of owner and link that a
symmetry carries onto each other share a variable. Where fewer ranks want chunks than own some (GATHER), all is
turned round: commodities are chunks of one target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.rotations import Image, automorphic_rotations, orbits, resources_of
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["ConcurrentFlow", "concurrent_flow", "time_covers_every_lane"]


_PAIRS_A_VARIABLE = 70
"""Pairs of commodity and link, for each variable that is allowed, above which none are put together as orbits."""
_PAIR_S = 1e-6
"""Seconds that it takes to write a program down, for each pair of rank and link."""
_ROUNDING = 1e-9
_EXACT = 1e-6
_LONGER = 1e-6
"""How much longer than the least time a flow over short paths may take."""


@dataclass(frozen=True)
class ConcurrentFlow:
    """`time_s`: no schedule takes less. `exact`: whether a flow takes no longer.

    `flow[k, l]`: float, how many chunks of `ends[k]` link l carries in that time. `ends`: the owners of chunks, or
    their targets where `by_target`.
    """

    time_s: float
    exact: bool
    ends: Ids
    flow: Floats
    by_target: bool


@dataclass(frozen=True)
class _Demand:
    """What is asked, forwards in time or backwards: `amount[k, r]` chunks from `ends[k]` to rank r.

    Links lead from `tail` to `head`; `images`: symmetries, which keep the demand, too.
    """

    topology: Topology
    occupancy_s: Floats
    ends: Ids
    amount: Floats
    backwards: bool
    tail: Ids
    head: Ids
    images: list[Image]

    @property
    def cell_orbit(self) -> Ids:
        """`orbit[k * links + l]`: the smallest pair of commodity and link that this pair can be carried to."""
        return self._pair_orbit([image.links for image in self.images], len(self.tail))

    @property
    def target_orbit(self) -> Ids:
        """`orbit[k * ranks + r]`: the same for pairs of commodity and rank."""
        return self._pair_orbit([image.ranks for image in self.images], self.topology.device_count)

    def _pair_orbit(self, moves: list[Ids], count: int) -> Ids:
        place = np.full(self.topology.device_count, -1, dtype=np.int64)
        place[self.ends] = np.arange(len(self.ends))
        pairs = [
            (place[image.ranks[self.ends]][:, None] * count + move[None, :]).reshape(-1)
            for image, move in zip(self.images, moves, strict=True)
        ]
        return orbits(pairs, len(self.ends) * count)


@dataclass(frozen=True)
class _Program:
    """`flow[k, l]`: the column of commodity k on link l, -1 where it may not go; shared along orbits.

    `time`: in units of `unit_s`. `lanes`: the orbit of every lane, see `_lanes`.
    """

    model: Model
    flow: Ids
    time: int
    unit_s: float
    lanes: Ids


def concurrent_flow(
    topology: Topology,
    occupancy_s: Floats,
    demand: Ids,
    options: SolveOptions | None = None,
    short: bool = False,
    most_variables: int = BoundParameters.most_flow_variables,
) -> ConcurrentFlow | None:
    """The least time in which `demand[s, t]` chunks can get from each rank s to each rank t, and a flow that takes it.

    `occupancy_s[l]`: how long one chunk holds link l and all that it shares. `short`: of the flows that take the least
    time, one over short paths. None where the program is too large (`most_variables`), or not solved in time.
    """
    deadline = Deadline(options or SolveOptions())
    if demand.any() and len(demand) * len(topology.links) * _PAIR_S > deadline.remaining_s:
        deadline.strike()
        return None
    by_target = (demand > 0).any(axis=0).sum() < (demand > 0).any(axis=1).sum()
    asked = _demand(topology, occupancy_s, demand.T if by_target else demand, bool(by_target))
    if not len(asked.ends):
        return ConcurrentFlow(0.0, True, asked.ends, np.zeros((0, len(asked.tail))), bool(by_target))
    if len(asked.ends) * len(asked.tail) > _PAIRS_A_VARIABLE * most_variables:
        return None
    program = _program(asked)
    if program.model.column_count > most_variables:
        return None
    program.model.minimize((1.0, [program.time]))
    solution = solve_model(program.model, deadline.stage())
    if solution.values is None or solution.objective is None or solution.row_prices is None:
        return None
    time_s = _proven_s(asked, program, solution.row_prices)
    exact = solution.objective * program.unit_s <= time_s * (1 + _EXACT)
    values = solution.values
    if short:
        values = _shortened(asked, program, solution.objective, deadline, values)
    flow = np.where(program.flow >= 0, values[np.maximum(program.flow, 0)], 0.0)
    return ConcurrentFlow(time_s, exact, asked.ends, flow, bool(by_target))


def _demand(topology: Topology, occupancy_s: Floats, demand: Ids, backwards: bool) -> _Demand:
    ends = np.flatnonzero(demand.any(axis=1))
    kept = [
        image
        for image in automorphic_rotations(topology)
        if np.array_equal(demand[np.ix_(image.ranks, image.ranks)], demand)
        and np.array_equal(occupancy_s[image.links], occupancy_s)
    ]
    amount = demand[ends].astype(np.float64)
    tail, head = topology.link_source, topology.link_target
    if backwards:
        tail, head = head, tail
    return _Demand(topology, occupancy_s, ends, amount, backwards, tail, head, kept)


def _program(asked: _Demand) -> _Program:
    model = Model("taccl_concurrent_flow")
    useful = (asked.head[None, :] != asked.ends[:, None]).reshape(-1)  # no chunk is brought back to where it starts
    firsts, column = np.unique(asked.cell_orbit[useful], return_inverse=True)
    flow = np.full(useful.size, -1, dtype=np.int64)
    flow[useful] = model.continuous("flow", len(firsts))[column]
    lanes = _lanes(asked)
    unit_s = float(asked.occupancy_s.mean() * asked.amount.sum() / len(np.unique(lanes)))
    program = _Program(
        model=model,
        flow=flow.reshape(len(asked.ends), -1),
        time=int(model.continuous("time")),
        unit_s=unit_s,
        lanes=lanes,
    )
    occupancy = asked.occupancy_s / unit_s
    time_covers_every_lane(model, program.time, asked.topology, program.flow, occupancy, lanes)
    _what_a_rank_wants_stays_there(asked, program)
    return program


def _lanes(asked: _Demand) -> Ids:
    """The orbit of every lane: of every resource, and behind these of every link, which is exclusive, too; int64."""
    count = len(asked.topology.resources)
    moves = [np.concatenate([image.resources, count + image.links]) for image in asked.images]
    return orbits(moves, count + len(asked.tail))


def _holds(topology: Topology) -> tuple[Ids, Ids]:
    """(link, lane) for each lane that a link holds: its resources, or itself where it has none."""
    held = resources_of(topology)
    alone = np.flatnonzero(held.lengths == 0)
    return np.concatenate([held.owner, alone]), np.concatenate([held.values, len(topology.resources) + alone])


def time_covers_every_lane(
    model: Model, time: int, topology: Topology, columns: Ids, occupancy: Floats, lanes: Ids,
    family: str = "time_covers_lane",
) -> None:  # fmt: skip
    """The time is at least what all flows over a link, a switch side, a NIC or a cable take together (5.6 - 5.8).

    `columns[k, l]`: of flow k on link l, -1 where it may not go. `occupancy[l]`: in units of the column `time`, what
    one chunk takes. `lanes`: the orbit of every resource, and behind these that of every link; one of each has a row.
    """
    link, lane = _holds(topology)
    firsts = lanes[lane] == lane
    link = link[firsts]
    orbits_of_lanes, row = np.unique(lane[firsts], return_inverse=True)
    columns, count = columns[:, link], len(orbits_of_lanes)
    row = np.broadcast_to(row, columns.shape)
    value = np.broadcast_to(-occupancy[link], columns.shape)
    used = columns >= 0
    model.add_sparse(
        family,
        count,
        np.concatenate([row[used], np.arange(count)]),
        np.concatenate([columns[used], np.full(count, time)]),
        np.concatenate([value[used], np.ones(count)]),
        lower=0.0,
    )


def _what_a_rank_wants_stays_there(asked: _Demand, program: _Program) -> None:
    """What comes into a rank and doesn't leave it again is what the rank wants."""
    count = asked.topology.device_count
    orbit = asked.target_orbit
    first = (orbit == np.arange(len(orbit))).reshape(-1, count)
    first[np.arange(len(asked.ends)), asked.ends] = False
    number = np.cumsum(first).reshape(first.shape) - 1
    rows, columns, values = [], [], []
    for at, sign in ((asked.head, 1.0), (asked.tail, -1.0)):
        commodity, link = np.nonzero(first[:, at] & (program.flow >= 0))
        rows.append(number[commodity, at[link]])
        columns.append(program.flow[commodity, link])
        values.append(np.full(len(link), sign))
    amount = asked.amount[first]
    entries = np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
    program.model.add_sparse("wanted_stays", int(first.sum()), *entries, lower=amount, upper=amount)


def _proven_s(asked: _Demand, program: _Program, row_prices: Floats) -> float:
    """The bound that the prices of the lanes prove: what the cheapest paths of all chunks cost."""
    link, lane = _holds(asked.topology)
    rows = np.unique(lane[program.lanes[lane] == lane])
    price = np.maximum(row_prices[: len(rows)], 0.0)
    if not price.any():
        return 0.0  # a solver that was stopped early has none
    by_lane = np.zeros(len(program.lanes))
    used = np.unique(lane)
    share = np.bincount(program.lanes[used], minlength=len(program.lanes))
    by_lane[rows] = price / share[rows]  # all lanes of an orbit share its price
    cost = asked.occupancy_s * np.bincount(link, weights=by_lane[program.lanes[lane]], minlength=len(asked.tail))
    distance = distances_s(asked.topology, cost, asked.ends, backwards=asked.backwards)
    wanted = asked.amount > 0
    return float((asked.amount[wanted] * distance[wanted]).sum() / price.sum()) * (1 - _ROUNDING)


def _shortened(asked: _Demand, program: _Program, time: float, deadline: Deadline, values: Floats) -> Floats:
    """Of the flows that take hardly longer than `time` one that loads links least in all; `values` if time is short."""
    columns, count = np.unique(program.flow[program.flow >= 0], return_counts=True)
    cost = np.zeros(program.model.column_count)
    every = np.broadcast_to(asked.topology.alpha_s + asked.occupancy_s, program.flow.shape)
    np.add.at(cost, program.flow[program.flow >= 0], every[program.flow >= 0] / asked.occupancy_s.mean())
    program.model.add("time_is_least", (1.0, [program.time]), upper=time * (1 + _LONGER))
    program.model.minimize((cost[columns] / count.sum() * len(columns), columns))
    found = solve_model(program.model, deadline.stage())
    return values if found.values is None else found.values
