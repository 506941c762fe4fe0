"""The least makespan of a tiny collective on a network whose switch adds up and multicasts: a model of placed messages.

It shares nothing with what it is the truth for. A link carries a few numbered messages; a switch takes a few numbered
steps, in each of which some of its operations go on at once. CP-SAT places them all. Each message or operation reads
copies of some ranks and writes those of others, and what a copy holds only grows. Times are whole numbers of ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from exact_model import Found, Wire
from ortools.sat.python import cp_model

from gapless.ir.collective import Collective

__all__ = ["Offer", "least_ticks_with_switch"]


Times = tuple[cp_model.IntVar, cp_model.IntVar]


@dataclass(frozen=True)
class Offer:
    """What a switch does for `ranks`: a step takes `alpha + n * beta` ticks, n chunks through its busiest port.

    `ports[k]`: the resources that rank `ranks[k]` sends and receives through; none where it is empty.
    """

    ranks: tuple[int, ...]
    alpha: int
    beta: int
    kinds: tuple[str, ...]
    loopback: bool = False
    subsets: bool = False
    slots: int | None = None
    groups: int | None = None
    ports: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Act:
    """What may carry a chunk: `reads` and `writes` are ranks, `adds` whether what comes is added, None for either."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    adds: bool | None
    start: cp_model.IntVar
    end: cp_model.IntVar
    chosen: tuple[cp_model.IntVar, ...]


def least_ticks_with_switch(
    wires: list[Wire], offer: Offer, collective: Collective, limit: int, messages: int, steps: int, work: float
) -> Found:
    """The least time up to `limit`, with so many messages a link and steps of the switch at most.

    `work`: CP-SAT's deterministic time.
    """
    model = _Model(wires, offer, collective, limit)
    model.add_wires(messages)
    for _ in range(steps):
        model.add_step()
    model.finish()
    for chunk in range(collective.chunk_count):
        _Contents(model, chunk).add()
    model.cp.minimize(model.makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = work
    solver.parameters.num_workers = 1
    status = solver.solve(model.cp)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Found(round(solver.objective_value) if found else None, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE))


@dataclass
class _Model:
    """`held`: the intervals of each link and resource."""

    wires: list[Wire]
    offer: Offer
    collective: Collective
    limit: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    acts: list[Act] = field(default_factory=list)
    held: dict[object, list[cp_model.IntervalVar]] = field(default_factory=dict)
    slots: list[cp_model.IntervalVar] = field(default_factory=list)
    sets: dict[tuple[int, ...], cp_model.IntVar] = field(default_factory=dict)
    before: tuple[cp_model.IntVar, cp_model.IntVar] | None = None

    def __post_init__(self) -> None:
        self.makespan = self.time()
        self.link_of = {(wire.source, wire.target): number for number, wire in enumerate(self.wires)}
        port_of = dict(zip(self.offer.ranks, self.offer.ports or [()] * len(self.offer.ranks), strict=True))
        self.port_of = {(rank, side): number for rank, pair in port_of.items() for side, number in enumerate(pair)}

    def time(self) -> cp_model.IntVar:
        return self.cp.new_int_var(0, self.limit, "")

    def bools(self) -> tuple[cp_model.IntVar, ...]:
        """One for each chunk."""
        return tuple(self.cp.new_bool_var("") for _ in range(self.collective.chunk_count))

    def any_of(self, some: Iterable[cp_model.IntVar]) -> cp_model.IntVar:
        found = self.cp.new_bool_var("")
        self.cp.add_max_equality(found, list(some))
        return found

    def interval(
        self, is_used: cp_model.IntVar, least: cp_model.LinearExprT
    ) -> tuple[cp_model.IntVar, cp_model.IntVar]:
        """The start and end of what takes so long at least."""
        start, end = self.time(), self.time()
        self.cp.add(end >= start + least)
        self.cp.add(self.makespan >= end).only_enforce_if(is_used)
        return start, end

    def hold(self, what: object, start: cp_model.IntVar, end: cp_model.IntVar, is_used: cp_model.IntVar) -> None:
        took = self.time()
        self.cp.add(took == end - start)
        self.held.setdefault(what, []).append(self.cp.new_optional_interval_var(start, took, end, is_used, ""))

    def add_wires(self, messages: int) -> None:
        """Some messages on each link, one after the other."""
        for link, wire in enumerate(self.wires):
            before = None
            for _ in range(messages):
                chosen = self.bools()
                is_used = self.any_of(chosen)
                start, end = self.interval(is_used, wire.alpha * is_used + wire.beta * sum(chosen))
                for what in (("link", link), *(("resource", number) for number in wire.resources)):
                    self.hold(what, start, end, is_used)
                if before is not None:
                    self.cp.add_implication(is_used, before)
                before = is_used
                self.acts.append(Act((wire.source,), (wire.target,), None, start, end, chosen))

    def operations(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """The (kind, root, ranks) that the switch offers."""
        ranks = self.offer.ranks
        fewest = 2 if self.offer.subsets else len(ranks)
        for some in (each for count in range(fewest, len(ranks) + 1) for each in combinations(ranks, count)):
            for kind in self.offer.kinds:
                yield from ((kind, root, some) for root in (some[:1] if kind == "to all" else some))

    def add_step(self) -> None:
        """A step after the one before: any operations at once, as long as its busiest port takes."""
        offer, cp = self.offer, self.cp
        start, end = self.time(), self.time()
        loads: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        users: dict[object, list[cp_model.IntVar]] = {}
        all_used = []
        for kind, root, ranks in self.operations():
            others = tuple(rank for rank in ranks if rank != root)
            if kind == "to all":
                reads, writes, pairs = ranks, ranks, [(a, b) for a in ranks for b in ranks if a != b]
            elif kind == "multicast":
                reads, writes, pairs = (root,), others, [(root, other) for other in others]
            else:
                reads, writes, pairs = others, (root,), [(other, root) for other in others]
            if any(pair not in self.link_of for pair in pairs):
                continue
            chosen = self.bools()
            is_used = self.any_of(chosen)
            all_used.append(is_used)
            looped = (root,) if offer.loopback and kind != "to all" else ()
            sides = {(rank, 0) for rank in (*reads, *looped)} | {(rank, 1) for rank in (*writes, *looped)}
            for side in sides:
                loads.setdefault(side, []).extend(chosen)
            wires = [self.link_of[pair] for pair in pairs]
            held = {("resource", number) for wire in wires for number in self.wires[wire].resources}
            held |= {("link", wire) for wire in wires}
            held |= {("resource", self.port_of[side]) for side in sides if side in self.port_of}
            for what in held:
                users.setdefault(what, []).append(is_used)
            if offer.slots is not None:
                took = self.time()
                cp.add(took == end - start)
                self.slots.append(cp.new_optional_interval_var(start, took, end, is_used, ""))
            if offer.groups is not None:
                self.sets.setdefault(ranks, cp.new_bool_var(""))
                cp.add_implication(is_used, self.sets[ranks])
            adds = {"multicast": False}.get(kind, True)
            self.acts.append(Act(reads, writes, adds, start, end, chosen))
        if not all_used:
            return
        step_used = self.any_of(all_used)
        cp.add(end >= start)
        cp.add(self.makespan >= end).only_enforce_if(step_used)
        for chosen in loads.values():
            cp.add(end - start >= offer.alpha + offer.beta * sum(chosen)).only_enforce_if(step_used)
        for what, some in users.items():
            self.hold(what, start, end, self.any_of(some))
        if self.before is not None:  # steps are alike: number them by their starts
            cp.add_implication(step_used, self.before[1])
            cp.add(start >= self.before[0]).only_enforce_if(step_used)
        self.before = start, step_used

    def finish(self) -> None:
        """One at a time on what is exclusive, and no more operations at once than there are slots."""
        for intervals in self.held.values():
            self.cp.add_no_overlap(intervals)
        if self.offer.slots is not None and self.slots:
            self.cp.add_cumulative(self.slots, [1] * len(self.slots), self.offer.slots)
        if self.offer.groups is not None:
            self.cp.add(sum(self.sets.values()) <= self.offer.groups)


@dataclass
class _Contents:
    """What the copies of one chunk hold: of each act and rank, the parts before it, and after it where it writes."""

    model: _Model
    chunk: int

    def __post_init__(self) -> None:
        collective = self.model.collective
        self.parts = collective.contributors[self.chunk] if collective.reduces else (collective.owners[self.chunk],)
        self.acts = [act for act in self.model.acts if self.parts]
        self.old: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.new: dict[tuple[int, int, int], cp_model.IntVar] = {}

    def add(self) -> None:
        cp = self.model.cp
        for number, act in enumerate(self.acts):
            for part in self.parts:
                for rank in {*act.reads, *act.writes}:
                    self.old[number, rank, part] = cp.new_bool_var("")
                for rank in act.writes:
                    self.new[number, rank, part] = cp.new_bool_var("")
                    cp.add_implication(self.new[number, rank, part], act.chosen[self.chunk])
            self._moves(number, act)
        for rank in range(self.model.collective.rank_count):
            self._copy(rank)

    def _moves(self, number: int, act: Act) -> None:
        """What an act reads is there, and is added, or replaces what is no more."""
        cp, used = self.model.cp, act.chosen[self.chunk]
        adds = cp.new_bool_var("") if act.adds is None else cp.new_constant(int(act.adds))
        for rank in act.reads:
            cp.add_bool_or([self.old[number, rank, part] for part in self.parts]).only_enforce_if(used)
        for rank in act.writes:
            # What is added to has a part of its own; a plain message that finds nothing there is a copy.
            cp.add_bool_or([self.old[number, rank, part] for part in self.parts]).only_enforce_if([used, adds])
            for part in self.parts:
                sent = [self.old[number, other, part] for other in act.reads if other != rank]
                there, after = self.old[number, rank, part], self.new[number, rank, part]
                cp.add(after == there + sum(sent)).only_enforce_if([used, adds])
                cp.add(after == sum(sent)).only_enforce_if([used, adds.negated()])
                cp.add(there <= after).only_enforce_if([used, adds.negated()])

    def _copy(self, rank: int) -> None:
        """Writes of a rank's copy come one after the other, and apart from reads; each finds what was there before."""
        cp, chunk, acts = self.model.cp, self.chunk, self.acts
        writes = [number for number, act in enumerate(acts) if rank in act.writes]
        reads = [number for number, act in enumerate(acts) if rank in act.reads and rank not in act.writes]
        first: dict[tuple[int, int], cp_model.IntVar] = {}
        for one, other in [*combinations(writes, 2), *((write, read) for write in writes for read in reads)]:
            first[one, other] = order = cp.new_bool_var("")
            first[other, one] = order.negated()
            both = [acts[one].chosen[chunk], acts[other].chosen[chunk]]
            cp.add(acts[one].end <= acts[other].start).only_enforce_if([*both, order])
            cp.add(acts[other].end <= acts[one].start).only_enforce_if([*both, order.negated()])
        for part in self.parts:
            starts_there = rank in self.starters() and part == rank
            for number in (*writes, *reads):
                before = self.old[number, rank, part]
                used = acts[number].chosen[chunk]
                sources = []
                for write in writes:
                    if write != number:
                        brought, after = cp.new_bool_var(""), self.new[write, rank, part]
                        literals = [after, first[write, number], used, acts[write].chosen[chunk]]
                        cp.add_bool_and(literals).only_enforce_if(brought)
                        cp.add_implication(brought, before)
                        cp.add_bool_or([before, *(each.negated() for each in literals)])
                        sources.append(brought)
                if starts_there:
                    cp.add(before == 1).only_enforce_if(used)
                else:
                    cp.add(before <= sum(sources))
        if rank in self.model.collective.destinations[chunk]:
            for part in self.parts:
                if not (part == rank and rank in self.starters()):
                    cp.add_bool_or([self.new[write, rank, part] for write in writes])

    def starters(self) -> tuple[int, ...]:
        """The ranks that hold a part of the chunk at the start."""
        return self.parts
