"""The optimum of a pipeline whose forwards and backwards can run in cells, by CP-SAT directly: which pairs are cells is
a choice. Whole numbers for all durations; no sends that block, no recomputation, no memory of messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from exact_pipeline import few_stages, two_copies
from ortools.sat.python import cp_model

from gapless.encodings.pipeline.order.stages import Kind, Stages

Op = tuple[int, int, int]
"""Kind, stage, micro-batch."""


def overlapped(seed: int) -> Stages:
    """Few stages, or two copies of them, for at most two micro-batches each, whose cells take whole numbers."""
    rng = np.random.default_rng(seed)
    stages = two_copies(seed) if seed % 3 == 0 else few_stages(seed)
    return replace(
        stages, micro_batches=min(stages.micro_batches, 2), forward_s=4 * stages.forward_s,
        backward_s=4 * stages.backward_s, blocks=False, recomputes=np.zeros(stages.count, dtype=np.bool_),
        overlap=float(rng.choice([0.5, 0.75])),
    )  # fmt: skip


def exact_with_cells(stages: Stages, time_limit_s: float) -> tuple[float, float]:
    """The shortest step and a bound on it."""
    model = cp_model.CpModel()
    parts = [stages.forward_s, stages.backward_s, stages.weight_s][: 3 if stages.splits else 2]
    hops, last, depth = [stages.forward_hop_s, stages.hop_s[0]], len(parts) - 1, stages.count // stages.copies
    horizon = int(sum(part.sum() for part in parts + hops) * stages.micro_batches + stages.reduce_s[0].sum())
    own = {(kind, s, m): int(parts[kind][s]) for kind in range(len(parts))
           for s, m in product(range(stages.count), range(stages.micro_batches))}  # fmt: skip

    def time(name: str) -> Any:
        return model.new_int_var(0, horizon, name)

    start, end, step = {op: time(f"start {op}") for op in own}, {op: time(f"end {op}") for op in own}, time("step")
    machines, links, celled = defaultdict[int, list[Any]](list), defaultdict[Any, list[Any]](list), defaultdict(list)
    for forward, backward in product(own, own):
        if forward[0] != Kind.FORWARD or backward[0] != Kind.BACKWARD:
            continue
        names = [(op[1] // depth, op[2]) for op in (forward, backward)]
        rank = int(stages.rank[forward[1]])
        if rank != stages.rank[backward[1]] or names[0] == names[1]:
            continue
        chosen, both = model.new_bool_var(f"cell {forward} {backward}"), own[forward] + own[backward]
        size = int(max(stages.overlap * both, own[forward], own[backward]))
        for op in (forward, backward):
            model.add(end[op] == start[op] + size).only_enforce_if(chosen)
            celled[op].append(chosen)
        model.add(start[forward] == start[backward]).only_enforce_if(chosen)
        machines[rank].append(model.new_optional_fixed_size_interval_var(start[forward], size, chosen, f"{chosen}"))
    for op, size in own.items():
        alone = model.new_bool_var(f"alone {op}")
        model.add(alone + sum(celled[op]) == 1)
        model.add(end[op] == start[op] + size).only_enforce_if(alone)
        interval = model.new_optional_fixed_size_interval_var(start[op], size, alone, f"op {op}")
        machines[int(stages.rank[op[1]])].append(interval)
        model.add(step >= end[op])
        kind, stage, m = op
        to, is_end = stage + 1 - 2 * kind, (stage + 1 if kind == Kind.FORWARD else stage) % depth == 0
        if kind == Kind.FORWARD and is_end:
            model.add(start[Kind.BACKWARD, stage, m] >= end[op])
        if kind == Kind.BACKWARD and stages.splits:
            model.add(start[Kind.WEIGHT, stage, m] >= end[op])
        if kind == Kind.WEIGHT or is_end:
            continue
        pair, sent = (int(stages.rank[stage]), int(stages.rank[to])), time(f"sent {op}")
        hop_s = int(hops[kind][min(stage, to)]) if pair[0] != pair[1] else 0
        model.add(sent >= end[op])
        model.add(start[kind, to, m] >= sent + hop_s)
        if pair[0] != pair[1]:
            links[pair].append(model.new_fixed_size_interval_var(sent, hop_s, f"message {op}"))
    for intervals in [*machines.values(), *links.values()]:
        model.add_no_overlap(intervals)
    deferred = stages.weight_stash_bytes if stages.splits else np.zeros(stages.count, dtype=np.int64)
    for rank, room in enumerate(stages.room_bytes.tolist()):
        kept, sizes = [], []
        for stage, m in product(np.flatnonzero(stages.rank == rank).tolist(), range(stages.micro_batches)):
            done = end[Kind.BACKWARD, stage, m]
            for begin, until, size in ((start[Kind.FORWARD, stage, m], done, stages.stash_bytes[stage]),
                                       (done, end[last, stage, m], deferred[stage])):  # fmt: skip
                kept.append(model.new_interval_var(begin, time("kept"), until, f"kept {stage} {m} {size}"))
                sizes.append(int(size))
        model.add_cumulative(kept, sizes, int(room))
    networks = defaultdict[int, list[Any]](list)
    sums = [time(f"sum {stage}") for stage in range(depth)]
    for stage in range(stages.count):
        size, begin = int(stages.reduce_s[0, stage]), sums[stage % depth]
        for m in range(stages.micro_batches):
            model.add(begin >= end[last, stage, m])
        model.add(step >= begin + size)
        networks[int(stages.rank[stage])].append(model.new_fixed_size_interval_var(begin, size, f"sums {stage}"))
    for intervals in networks.values():
        model.add_no_overlap(intervals)
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, time_limit_s
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    return solver.objective_value, solver.best_objective_bound
