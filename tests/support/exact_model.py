"""The least makespan of a tiny collective with chunks grouped, routed and added up at will: a model of messages.

It shares nothing with what it is the truth for: a link carries a few numbered messages, each with a start and a set of
chunks, and CP-SAT places them. Times are whole numbers of ticks, so an optimum is exact. A chunk that is no sum comes
to a rank once. Of a sum a rank holds some parts at any time; what it gets is added to them if nothing is added twice,
or replaces them if it holds them all; and a copy is not sent while it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from ortools.sat.python import cp_model

from gapless.ir.collective import Collective

__all__ = ["Found", "Wire", "least_ticks"]


@dataclass(frozen=True)
class Wire:
    """A directed link: a message of n chunks takes `alpha + n * beta` ticks of it and of its `resources`."""

    source: int
    target: int
    alpha: int
    beta: int
    resources: tuple[int, ...] = ()


@dataclass(frozen=True)
class Found:
    """Ticks of the best schedule, None where none ends by the limit; whether none of so many messages ends sooner."""

    ticks: int | None
    proven: bool


def least_ticks(wires: list[Wire], collective: Collective, limit: int, slots: int, work: float) -> Found:
    """The least time up to `limit`, with up to `slots` messages a link; `work`: CP-SAT's deterministic time."""
    model = _Model(wires, collective, limit, slots)
    if collective.reduces:
        _sums(model)
    else:
        _copies(model)
    model.cp.minimize(model.makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = work
    solver.parameters.num_workers = 1
    status = solver.solve(model.cp)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    ticks = round(solver.objective_value) if found else None
    return Found(ticks, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE))


Send = tuple[int, int, int]
"""A link, one of its messages, and a chunk."""


@dataclass
class _Model:
    """`start`, `end`: of each message, by link and number. `sent[link, message, chunk]`."""

    wires: list[Wire]
    collective: Collective
    limit: int
    slots: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    start: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    end: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    sent: dict[Send, cp_model.IntVar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.makespan = self.time()
        held: dict[object, list[cp_model.IntervalVar]] = {}
        for link, wire in enumerate(self.wires):
            before = None
            for message in range(self.slots):
                chosen = [self.cp.new_bool_var("") for _ in range(self.collective.chunk_count)]
                self.sent.update({(link, message, chunk): chosen[chunk] for chunk in range(len(chosen))})
                is_used, start, end = self.cp.new_bool_var(""), self.time(), self.time()
                self.cp.add_max_equality(is_used, chosen)
                took = self.time()
                self.cp.add(took == wire.alpha * is_used + wire.beta * sum(chosen))
                interval = self.cp.new_optional_interval_var(start, took, end, is_used, "")
                for lane in (("link", link), *(("resource", number) for number in wire.resources)):
                    held.setdefault(lane, []).append(interval)
                if before is not None:
                    self.cp.add_implication(is_used, before[0])
                    self.cp.add(start >= before[1]).only_enforce_if(is_used)
                before = is_used, end
                self.cp.add(self.makespan >= end).only_enforce_if(is_used)
                self.start[link, message], self.end[link, message] = start, end
        for intervals in held.values():
            self.cp.add_no_overlap(intervals)

    def time(self) -> cp_model.IntVar:
        """A new column for a time."""
        return self.cp.new_int_var(0, self.limit, "")

    def sends(self, chunk: int, rank: int, into: bool) -> list[Send]:
        """All that may bring a chunk to a rank, or take it from there."""
        return [
            send
            for send in self.sent
            if send[2] == chunk and rank == (self.wires[send[0]].target if into else self.wires[send[0]].source)
        ]


def _copies(model: _Model) -> None:
    collective, cp = model.collective, model.cp
    for chunk, owner in enumerate(collective.owners):
        for rank in range(collective.rank_count):
            into = model.sends(chunk, rank, into=True)
            count = sum(model.sent[send] for send in into)
            if rank == owner:
                cp.add(count == 0)
                continue
            cp.add(count == 1 if rank in collective.destinations[chunk] else count <= 1)
            had = model.time()
            for send in into:
                cp.add(had >= model.end[send[:2]]).only_enforce_if(model.sent[send])
            for send in model.sends(chunk, rank, into=False):
                cp.add(count >= model.sent[send])
                cp.add(model.start[send[:2]] >= had).only_enforce_if(model.sent[send])


def _sums(model: _Model) -> None:
    """`holds[send, rank]`: whether what is sent has this rank's part in it; `adds[send]`: or replaces."""
    collective, cp = model.collective, model.cp
    holds = {
        (send, rank): cp.new_bool_var("") for send in model.sent for rank in collective.contributors[send[2]]
    }  # fmt: skip
    adds = {send: cp.new_bool_var("") for send in model.sent}
    for (send, _), part in holds.items():
        cp.add_implication(part, model.sent[send])
    for chunk, parts in enumerate(collective.contributors):
        for rank in range(collective.rank_count):
            _copy_of_a_sum(model, holds, adds, chunk, rank, parts)


def _copy_of_a_sum(
    model: _Model,
    holds: dict[tuple[Send, int], cp_model.IntVar],
    adds: dict[Send, cp_model.IntVar],
    chunk: int,
    rank: int,
    parts: tuple[int, ...],
) -> None:
    """What comes to a rank, and goes from it, one after the other; what it then holds, and sends."""
    cp, sent = model.cp, model.sent
    writes, reads = model.sends(chunk, rank, into=True), model.sends(chunk, rank, into=False)
    first: dict[tuple[Send, Send], cp_model.IntVar] = {}
    pairs = [*combinations(writes, 2), *((write, read) for write in writes for read in reads)]
    for one, other in pairs:
        first[one, other] = order = cp.new_bool_var("")
        both = [sent[one], sent[other]]
        cp.add(model.end[one[:2]] <= model.start[other[:2]]).only_enforce_if([*both, order])
        cp.add(model.end[other[:2]] <= model.start[one[:2]]).only_enforce_if([*both, order.negated()])
    for one, other in pairs[: len(pairs) - len(writes) * len(reads)]:
        first[other, one] = first[one, other].negated()
    for write in writes:
        if rank in parts:
            cp.add(holds[write, rank] == 0).only_enforce_if([sent[write], adds[write]])
            cp.add(holds[write, rank] == 1).only_enforce_if([sent[write], adds[write].negated()])
        for earlier in writes:
            if earlier != write:
                both = [sent[write], sent[earlier], first[earlier, write]]
                for part in parts:
                    old, new = holds[earlier, part], holds[write, part]
                    cp.add(old + new <= 1).only_enforce_if([*both, adds[write]])
                    cp.add(old <= new).only_enforce_if([*both, adds[write].negated()])
    for read in reads:
        for part in parts:
            sources = [] if part != rank else [sent[read]]
            for write in writes:
                brought = cp.new_bool_var("")
                cp.add_bool_and([holds[write, part], first[write, read], sent[read]]).only_enforce_if(brought)
                cp.add(holds[read, part] == 1).only_enforce_if([holds[write, part], first[write, read], sent[read]])
                sources.append(brought)
            cp.add(holds[read, part] <= sum(sources))
            if part == rank:
                cp.add_implication(sent[read], holds[read, part])
    if rank in model.collective.destinations[chunk]:
        for part in parts:
            if part != rank:
                cp.add_bool_or([holds[write, part] for write in writes])
