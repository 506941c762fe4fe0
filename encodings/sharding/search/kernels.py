"""The loops of searches: compiled where numba is installed, and with arrays where not, for the same numbers."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import Arrays
from gapless.encodings.sharding.search.elimination import Elimination
from gapless.encodings.sharding.search.profiles import Profiles

__all__ = ["eliminate", "message_starts", "settle", "sweep"]

Floats = NDArray[np.float64]


def message_starts(arrays: Arrays) -> Ints:
    """Where the message to each slot's node begins, and the end of all, int64, shape (slots + 1,)."""
    owner = np.repeat(np.arange(arrays.node_count), np.diff(arrays.slot_starts))
    return np.concatenate([[0], arrays.sizes[owner].cumsum()])


def sweep(
    arrays: Arrays, order: Ints, costs: Floats, tables: Floats, starts: Ints, messages: Floats, choices: Ints
) -> float:
    """One pass of sequential message passing (TRW-S, Kolmogorov 2006) over the nodes in this order. It changes
    `messages`, and sets `choices`: each node's against those before it, with messages for those after it. Returns a
    bound on the costs that the messages prove. `tables` must be finite; `starts`: of messages.
    """
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    if arrays.is_compiled:
        from gapless.encodings.sharding.search import loops

        return float(loops.sweep(
            order, rank, arrays.starts, costs, arrays.slot_starts, arrays.other, arrays.back, arrays.table, arrays.own,
            arrays.beside, tables, starts, messages, choices,
        ))  # fmt: skip
    bound = 0.0
    for v in order.tolist():
        lo, size = arrays.starts[v], int(arrays.sizes[v])
        total = costs[lo : lo + size].copy()
        decided = total.copy()
        slots = range(arrays.slot_starts[v], arrays.slot_starts[v + 1])
        later = [s for s in slots if rank[arrays.other[s]] > rank[v]]
        for s in slots:
            message = messages[starts[s] : starts[s] + size]
            total += message
            decided += message if rank[arrays.other[s]] > rank[v] else _row(arrays, tables, s, size, choices)
        choices[v] = decided.argmin()
        share = 1.0 / max(len(later), len(slots) - len(later), 1)
        bound += (1.0 - len(later) * share) * float(total.min())
        for s in later:
            others = int(arrays.sizes[arrays.other[s]])
            steps = (arrays.own[s] * 8, arrays.beside[s] * 8)
            table = as_strided(tables[arrays.table[s] :], (size, others), steps)
            sent = share * total - messages[starts[s] : starts[s] + size]
            place = starts[arrays.back[s]]
            messages[place : place + others] = (sent[:, None] + table).min(axis=0)
    return bound


def _row(arrays: Arrays, tables: Floats, slot: int, size: int, choices: Ints) -> Floats:
    """What each choice of the slot's node costs beside its neighbour's."""
    begin = arrays.table[slot] + choices[arrays.other[slot]] * arrays.beside[slot]
    return as_strided(tables[begin:], (size,), (arrays.own[slot] * 8,))


def eliminate(arrays: Arrays, steps: Elimination, costs: Floats, choices: Ints) -> Ints:
    """The choices that cost least together, for the nodes of these steps, the others as they are."""
    found = choices.copy()
    if not len(steps.node):
        return found
    unary = _beside_fixed(arrays, steps, costs, choices)
    arena, taken = np.empty(steps.made), np.empty(steps.cells, dtype=np.int32)
    if arrays.is_compiled:
        from gapless.encodings.sharding.search import loops

        loops.eliminate(
            steps.node, steps.dim_starts, steps.dims, steps.factor_starts, steps.offset, steps.stride_starts,
            steps.strides, steps.out, steps.taken_starts, arrays.sizes, arrays.starts, unary, arrays.tables, arena,
            np.empty(steps.most), taken, found,
        )  # fmt: skip
        return found
    spans = [steps.dims[a:b] for a, b in zip(steps.dim_starts[:-1], steps.dim_starts[1:], strict=True)]
    for step, (v, dims) in enumerate(zip(steps.node.tolist(), spans, strict=True)):
        shape = (*arrays.sizes[dims].tolist(), int(arrays.sizes[v]))
        lo = arrays.starts[v]
        full = np.empty(shape)
        full[...] = unary[lo : lo + shape[-1]]
        for f in range(steps.factor_starts[step], steps.factor_starts[step + 1]):
            place = int(steps.offset[f])
            data = arrays.tables[place:] if place >= 0 else arena[-place - 1 :]
            strides = steps.strides[steps.stride_starts[f] :][: len(shape)] * 8
            full += as_strided(data, shape, strides)
        best = full.argmin(axis=-1)
        taken[steps.taken_starts[step] : steps.taken_starts[step + 1]] = best.reshape(-1)
        least = full.min(axis=-1).reshape(-1)
        if len(dims) == 1:
            begin = arrays.starts[dims[0]]
            unary[begin : begin + len(least)] += least
        elif len(dims) > 1:
            arena[steps.out[step] : steps.out[step] + len(least)] = least
    for step in range(len(spans) - 1, -1, -1):
        cell = 0
        for other in spans[step].tolist():
            cell = cell * int(arrays.sizes[other]) + int(found[other])
        found[steps.node[step]] = taken[steps.taken_starts[step] + cell]
    return found


def _beside_fixed(arrays: Arrays, steps: Elimination, costs: Floats, choices: Ints) -> Floats:
    """The costs of choices with those beside neighbours that stay."""
    slots = steps.fixed_slots
    owner = np.searchsorted(arrays.slot_starts, slots, side="right") - 1
    counts = arrays.sizes[owner]
    local = np.arange(int(counts.sum())) - np.repeat(counts.cumsum() - counts, counts)
    begin = arrays.table[slots] + choices[arrays.other[slots]] * arrays.beside[slots]
    place = np.repeat(begin, counts) + local * np.repeat(arrays.own[slots], counts)
    unary = costs.copy()
    np.add.at(unary, np.repeat(arrays.starts[owner], counts) + local, arrays.tables[place])
    return unary


def settle(arrays: Arrays, profiles: Profiles, order: Ints, slack: Ints, choices: Ints) -> int:
    """Let each node in this order take its cheapest choice that the slack has room for; both follow. Returns how many
    nodes have changed.
    """
    if arrays.is_compiled:
        from gapless.encodings.sharding.search import loops

        return int(loops.settle(
            order, arrays.starts, arrays.costs, arrays.slot_starts, arrays.other, arrays.table, arrays.own,
            arrays.beside, arrays.tables, profiles.break_starts, profiles.breaks, profiles.usage_starts, profiles.usage,
            slack, choices,
        ))  # fmt: skip
    changed = 0
    for v in order.tolist():
        lo, size, now = arrays.starts[v], int(arrays.sizes[v]), int(choices[v])
        total = arrays.costs[lo : lo + size].copy()
        for s in range(arrays.slot_starts[v], arrays.slot_starts[v + 1]):
            total += _row(arrays, arrays.tables, s, size, choices)
        cheaper = np.flatnonzero(total < total[now])
        if not len(cheaper):
            continue
        breaks, usage = profiles.of(v, size)
        spans = list(zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True))
        room = np.array([slack[a:b].min() for a, b in spans], dtype=np.int64) + usage[now]
        for best in cheaper[np.argsort(total[cheaper], kind="stable")].tolist():
            if (usage[best] <= room).all():
                for (a, b), change in zip(spans, (usage[best] - usage[now]).tolist(), strict=True):
                    slack[a:b] -= change
                choices[v] = best
                changed += 1
                break
    return changed
