"""Contributions: which parts of a value each copy holds, so that none is counted twice and no reader misses one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.checker.copies import END, CopyLog
from gapless.checker.program import Program
from gapless.checker.report import Findings, Rule, Violation
from gapless.checker.timeline import Timeline
from gapless.ir.schedule import Ragged

__all__ = ["array_of_sets", "check_required", "replay_contributions", "version_numbers"]

Ints = NDArray[np.int64]


def version_numbers(log: CopyLog) -> NDArray[np.int64]:
    """The number, from 1, of the version that each entry of the log writes (an END) or follows; shape (m + 1,).

    The last element is 0, the number of no version, so that entry -1 (no version there) has it.
    """
    return np.append(np.cumsum(log.action == END), 0)


def array_of_sets(sets: list[int]) -> NDArray[Any]:
    """Sets of bits as an array: of int64 where they fit, else of Python's ints."""
    return np.array(sets, dtype=np.int64 if max(sets, default=0) < 2**63 else np.object_)


def replay_contributions(
    program: Program, timeline: Timeline, log: CopyLog, initial: list[int], findings: Findings,
    carried: list[int] | None = None,
) -> list[int]:  # fmt: skip
    """The set (bits) that each version holds, by its number (see `version_numbers`); number 0 holds nothing.

    `initial`: the sets of the initial copies in the log, in the same order. `carried`: those that the carried rows of
    the log write, one for each row, where any are. Reports double reductions, stale reads, and
    copies that replace contributions held nowhere else.
    """
    flow = _Flow.of(program, log)
    sets = [0] * len(flow.origin)
    for version, held in zip(flow.number[log.rank[: len(initial)]].tolist(), initial, strict=True):
        sets[version] = held
    entries = log.rank[log.rows[6] :]
    for version, held, is_end in zip(
        flow.number[entries].tolist(), carried or (), (log.action[entries] == END).tolist(), strict=True
    ):
        if is_end:
            sets[version] = held
    steps = _Steps.of(program, timeline, flow)
    clashes = steps.replay(sets)
    sets = [sets[origin] for origin in flow.origin.tolist()]
    _report_clashes(program, steps, clashes, findings)
    _report_repeated(program, timeline, log, findings)
    _report_stale(program, flow, sets, findings)
    _report_losses(program, timeline, log, flow, sets, findings)
    return sets


@dataclass(frozen=True)
class _Flow:
    """Which version comes from which, all int64 version numbers.

    `number`: see `version_numbers`. `sent`, `replaced`, `written`: for each row of `arrivals`, the versions at the
    source, at the target before, and at the target after. `read`: for each row of `op_reads`. `outputs`: for each of
    `computes`, the rows of `op_writes` that hold what the op makes of all inputs; `updated`: the rows that are changed
    one by one. `before`, `made`: for each row of `op_writes`, the versions before and after. `merging`, `plain`: rows
    of `arrivals` that reduce, rows of `computes` that hand on one input's set, or nothing. `origin`: for each version,
    the one whose set it has, because it is a copy of it or a second output of one op.
    """

    number: Ints
    sent: Ints
    replaced: Ints
    written: Ints
    read: Ints
    outputs: Ragged
    updated: Ints
    before: Ints
    made: Ints
    merging: NDArray[np.bool_]
    plain: NDArray[np.bool_]
    origin: Ints

    @classmethod
    def of(cls, program: Program, log: CopyLog) -> _Flow:
        number, moved = version_numbers(log), len(program.arrivals.event)
        _, reads, overwrites, begins, ends, frees, _ = log.rows
        op_reads = reads + moved + len(program.merges.event)
        sent = number[log.version[log.rank[reads : reads + moved]]]
        written = number[log.rank[ends : ends + moved]]
        read = number[log.version[log.rank[op_reads:overwrites]]]
        replaced, before = np.split(number[log.version[log.rank[begins:ends]]], [moved])
        made = number[log.rank[ends + moved : frees]]
        merging = program.schedule.reduces[program.numbers[program.arrivals.event]]
        replaced = np.where(merging & _is_gathered(program), _one_by_one(log, ends, moved, number, replaced), replaced)
        inert = np.array([op.adds is None and not op.reduces for op in program.graph.ops], dtype=np.bool_)
        ops = program.schedule.op[program.numbers[program.computes]]
        plain = inert[ops] & (program.op_reads.lengths < 2) if len(ops) else np.empty(0, dtype=np.bool_)
        is_updated = _updated_rows(program, ops)
        main = np.flatnonzero(~is_updated)
        run = program.op_writes.owner[main]
        outputs = Ragged(np.append(0, np.cumsum(np.bincount(run, minlength=len(ops)))), main)

        origin = np.arange(int(number.max()) + 1)
        origin[written[~merging]] = sent[~merging]
        first = np.append(made, 0)[np.append(main, -1)[outputs.start[:-1]]]
        only = np.where(program.op_reads.lengths > 0, np.append(read, 0)[program.op_reads.start[:-1]], 0)
        origin[made[main]] = np.where(plain, only, first)[run]
        while not np.array_equal(origin, further := origin[origin]):
            origin = further
        return cls(
            number, sent, replaced, written, read, outputs, np.flatnonzero(is_updated), before, made, merging, plain,
            origin,
        )  # fmt: skip


def _is_gathered(program: Program) -> NDArray[np.bool_]:
    """Which rows of `arrivals` are of an operation of a switch."""
    event = program.arrivals.event
    if program.leader is None:
        return np.zeros(len(event), dtype=np.bool_)
    return np.asarray(np.bincount(program.leader, minlength=len(program.numbers))[event] > 1)


def _one_by_one(log: CopyLog, ends: int, moved: int, number: Ints, replaced: Ints) -> Ints:
    """What each arrival adds to, where several of one event add to a copy: what the one before it in the log left."""
    entries = log.rank[ends : ends + moved]
    is_next = (entries > 0) & (log.entry[entries - 1] == log.entry[entries])
    return np.where(is_next, number[entries - 1], replaced)


def _updated_rows(program: Program, ops: Ints) -> NDArray[np.bool_]:
    """Which rows of `op_writes` are changed one by one; `ops`: the op of each of `computes`."""
    count = program.graph.tensor_count
    pairs = [number * count + tensor for number, op in enumerate(program.graph.ops) for tensor in op.updates]
    if not pairs:
        return np.zeros(len(program.op_writes.values), dtype=np.bool_)
    row = ops[program.op_writes.owner] * count + program.op_writes.values // program.device_count
    ordered = np.sort(np.array(pairs))  # several times faster than np.isin where there are many
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, row), len(ordered) - 1)] == row)


@dataclass(frozen=True)
class _Steps:
    """The unions, in order of logical time, as lists: Python's own are the fastest in a loop, and its ints are sets.

    Step k unites the sets of versions `sources[start[k]:start[k + 1]]` and the bit `adds[k]` into version `target[k]`
    (0 where an op has no output); where it `reduces`, the sets must be disjoint. A violation names `event` and `copy`.
    """

    start: list[int]
    sources: list[int]
    adds: list[int]
    reduces: list[bool]
    target: list[int]
    event: Ints
    copy: Ints

    @classmethod
    def of(cls, program: Program, timeline: Timeline, flow: _Flow) -> _Steps:
        """Three kinds of steps: transfers that reduce, what ops make of all their inputs, and their updates."""
        changer = program.op_writes.owner[flow.updated]
        updates_only = flow.outputs.lengths == 0
        updates_only &= np.bincount(changer, minlength=len(updates_only)) > 0
        merges, runs = np.flatnonzero(flow.merging), np.flatnonzero(~flow.plain & ~updates_only)
        event = np.concatenate([program.arrivals.event[merges], program.computes[runs], program.computes[changer]])
        order = np.argsort(timeline.end[event], kind="stable")
        pairs = np.stack([flow.sent[merges], flow.replaced[merges]], axis=1).ravel()
        read = Ragged(program.op_reads.start, flow.read).take(runs)
        counts = np.concatenate([np.full(len(merges), 2), read.lengths, np.ones(len(changer), dtype=np.int64)])
        values = flow.origin[np.concatenate([pairs, read.values, flow.before[flow.updated]])]
        sources = Ragged(np.append(0, np.cumsum(counts)), values).take(order)
        graph, ops = program.graph, program.schedule.op[program.numbers[program.computes]]
        bits = [0 if op.adds is None else 1 << op.adds for op in graph.ops]
        adds = [0] * len(merges) + [bits[op] for op in np.append(ops[runs], ops[changer]).tolist()]
        reduces = [True] * len(merges) + [graph.ops[op].reduces for op in ops[runs].tolist()] + [False] * len(changer)
        outputs = flow.outputs.take(runs)
        first = np.where(outputs.lengths > 0, np.append(outputs.values, -1)[outputs.start[:-1]], -1)
        made = np.append(flow.made, 0)[np.append(first, flow.updated)]
        output = np.append(program.op_writes.values, -1)[np.append(first, flow.updated)]
        return cls(
            start=sources.start.tolist(),
            sources=sources.values.tolist(),
            adds=[adds[step] for step in order.tolist()],
            reduces=[reduces[step] for step in order.tolist()],
            target=np.append(flow.written[merges], made)[order].tolist(),
            event=event[order],
            copy=np.append(program.arrivals.copy[merges], output)[order],
        )

    def replay(self, sets: list[int]) -> list[tuple[int, int]]:
        """Fills in the targets' sets; returns the steps that count something twice, and what."""
        clashes = []
        sources = self.sources
        first = 0
        for step, (last, bit, reduces, target) in enumerate(
            zip(self.start[1:], self.adds, self.reduces, self.target, strict=True)
        ):
            held = twice = 0
            for source in sources[first:last]:
                part = sets[source]
                if reduces and held & part:
                    twice |= held & part
                held |= part
            if bit:
                twice |= held & bit
                held |= bit
            if twice:
                clashes.append((step, twice))
            if target:
                sets[target] = held
            first = last
        return clashes


def _report_clashes(program: Program, steps: _Steps, clashes: list[tuple[int, int]], findings: Findings) -> None:
    """Reports contributions that enter a value twice."""

    def explain(k: int) -> Violation:
        step, twice = clashes[k]
        copy = int(steps.copy[step])
        text = f"counts {_named(twice)} twice{f' in {program.copy_name(copy)}' if copy >= 0 else ''}"
        return program.violation(Rule.DOUBLE_REDUCTION, int(steps.event[step]), copy, text)

    findings.add(Rule.DOUBLE_REDUCTION, len(clashes), explain)


def _report_repeated(program: Program, timeline: Timeline, log: CopyLog, findings: Findings) -> None:
    """Reports reductions that list a tensor twice, and so add it twice: two equal entries in the log."""
    repeated = 1 + np.flatnonzero((log.entry[1:] == log.entry[:-1]) & (log.action[1:] == END))
    events = timeline.event_at[log.position_of(repeated)]
    # What repeats at position 0 is an initial copy that is listed twice.
    known = events >= program.carried
    repeated, events = repeated[known], events[known]
    reducing = program.schedule.reduces[program.numbers[events]]
    if program.leader is not None:  # an operation of a switch adds what each of its transfers brings
        reducing &= np.bincount(program.leader, minlength=len(program.numbers))[events] < 2
    repeated, events = repeated[reducing], events[reducing]

    def explain(k: int) -> Violation:
        copy = int(log.copy_of(repeated[k : k + 1])[0])
        text = f"adds to {program.copy_name(copy)} twice"
        return program.violation(Rule.DOUBLE_REDUCTION, int(events[k]), copy, text)

    findings.add(Rule.DOUBLE_REDUCTION, len(repeated), explain)


def _report_stale(program: Program, flow: _Flow, sets: list[int], findings: Findings) -> None:
    """Reports ops that read copies without the contributions that they need."""
    key, needed = _needs(program)
    ops = program.schedule.op[program.numbers[program.computes]]
    reads = program.op_reads
    read = ops[reads.owner] * program.graph.tensor_count + reads.values // program.device_count
    place = np.searchsorted(key, read)
    # A copy that is not there was reported as missing or late.
    rows = np.flatnonzero((np.append(key, -1)[place] == read) & (flow.read > 0))
    runs, copies = reads.owner[rows], reads.values[rows]
    lacks = needed[place[rows]] & ~array_of_sets(sets)[flow.read[rows]]
    stale = np.flatnonzero(lacks).tolist()

    def explain(k: int) -> Violation:
        row, lacking = stale[k], int(lacks[stale[k]])
        copy = int(copies[row])
        text = f"reads {program.copy_name(copy)} without {_named(lacking)}"
        return program.violation(Rule.INPUT_STALE, int(program.computes[runs[row]]), copy, text)

    findings.add(Rule.INPUT_STALE, len(stale), explain)


def _needs(program: Program) -> tuple[Ints, NDArray[Any]]:
    """What ops need: op and tensor as one number, ascending, and the set of each."""
    count = program.graph.tensor_count
    needy = [(number, op.needs) for number, op in enumerate(program.graph.ops) if op.needs]
    keys = [np.fromiter(needs, np.int64, len(needs)) + number * count for number, needs in needy]
    key = np.concatenate([np.empty(0, dtype=np.int64), *keys])
    order = np.argsort(key, kind="stable")
    return key[order], array_of_sets([held for _, needs in needy for held in needs.values()])[order]


def _report_losses(
    program: Program, timeline: Timeline, log: CopyLog, flow: _Flow, sets: list[int], findings: Findings
) -> None:
    """Reports copies that replace contributions, unless another copy of the tensor holds them at that time."""
    arrivals, devices = program.arrivals, np.arange(program.device_count)
    suspect = ~flow.merging & (flow.replaced > 0) & (flow.origin[flow.replaced] != flow.origin[flow.sent])
    losses = []
    rows = np.flatnonzero(suspect)
    held = array_of_sets(sets)
    replaced = held[flow.replaced[rows]] & ~held[flow.sent[rows]]
    for place in np.flatnonzero(replaced).tolist():
        row, lost = int(rows[place]), int(replaced[place])
        tensor, target = divmod(int(arrivals.copy[row]), program.device_count)
        copies = tensor * program.device_count + np.delete(devices, target)
        position = int(timeline.end[arrivals.event[row]])
        for version in flow.number[log.version_after(copies, position)].tolist():
            lost &= ~sets[version]
        if lost:
            losses.append((row, lost))

    def explain(k: int) -> Violation:
        row, lost = losses[k]
        copy = int(arrivals.copy[row])
        text = f"replaces {program.copy_name(copy)}, the only copy that holds {_named(lost)}"
        return program.violation(Rule.INPUT_STALE, int(arrivals.event[row]), copy, text)

    findings.add(Rule.INPUT_STALE, len(losses), explain)


def check_required(program: Program, timeline: Timeline, log: CopyLog, sets: list[int], findings: Findings) -> None:
    """Every required copy is there at the end, with the contributions that it must hold.

    `sets`: as `replay_contributions` returns them; empty where the graph does not track contributions.
    """
    required = program.graph.required
    copies = program.placed(required)
    known = np.flatnonzero(copies >= 0)
    version = log.version_after(copies[known], len(timeline.event_at) - 1)
    absent = copies[known[version < 0]]

    def explain(k: int) -> Violation:
        copy = int(absent[k])
        text = f"{program.copy_name(copy)} is required at the end, and is not there"
        return program.violation(Rule.REQUIRED_MISSING, -1, copy, text)

    findings.add(Rule.REQUIRED_MISSING, len(absent), explain)
    if required.contributions is None:
        return
    there = np.flatnonzero(version >= 0)
    held = version_numbers(log)[version[there]].tolist()
    lacking = [
        (int(copies[place]), needed & ~sets[number])
        for place, number in zip(known[there].tolist(), held, strict=True)
        if (needed := required.contributions[place]) != sets[number] and needed & ~sets[number]
    ]

    def explain_lacking(k: int) -> Violation:
        copy, bits = lacking[k]
        text = f"{program.copy_name(copy)} is required at the end with {_named(bits)}, which it does not hold"
        return program.violation(Rule.REQUIRED_MISSING, -1, copy, text)

    findings.add(Rule.REQUIRED_MISSING, len(lacking), explain_lacking)


def _named(bits: int) -> str:
    """`contributions 0, 3, 4`; at most the first eight by number."""
    numbers: list[int] = []
    rest = bits
    while rest and len(numbers) < 8:
        numbers.append((rest & -rest).bit_length() - 1)
        rest &= rest - 1
    return f"contributions {', '.join(map(str, numbers))}{' and more' if rest else ''}"
