"""The loops of searches, compiled with numba (the extra `fast`).

`gapless.encodings.sharding.search.kernels` says what each is for, and has the same with arrays, for the same numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.methods.compiled import compiled

__all__ = ["eliminate", "settle", "sweep"]

Floats = NDArray[np.float64]
Small = NDArray[np.int32]


@compiled
def _send(sent: Floats, tables: Floats, table: int, own: int, beside: int, out: Floats) -> None:
    """The least of `sent[k]` plus the table's row k, for each choice of the other node."""
    if beside == 1:
        out[:] = np.inf
        for k in range(len(sent)):
            for y in range(len(out)):
                out[y] = min(out[y], sent[k] + tables[table + k * own + y])
    else:
        for y in range(len(out)):
            least = np.inf
            for k in range(len(sent)):
                least = min(least, sent[k] + tables[table + k * own + y * beside])
            out[y] = least


@compiled
def _first_least(values: Floats) -> int:
    best = 0
    for k in range(1, len(values)):
        if values[k] < values[best]:
            best = k
    return best


@compiled
def sweep(
    order: Ints, rank: Ints, starts: Ints, costs: Floats, slot_starts: Ints, other: Ints, back: Ints, table: Ints,
    own: Ints, beside: Ints, tables: Floats, message_starts: Ints, messages: Floats, choices: Ints,
) -> float:  # fmt: skip
    """Messages and choices of all nodes in this order; the bound."""
    bound = 0.0
    widest = np.max(starts[1:] - starts[:-1])
    both, sending = np.empty((2, widest)), np.empty(widest)
    for v in order:
        size = starts[v + 1] - starts[v]
        total, decided, sent = both[0, :size], both[1, :size], sending[:size]
        total[:] = costs[starts[v] : starts[v + 1]]
        decided[:] = total
        ahead = 0
        slots = range(slot_starts[v], slot_starts[v + 1])
        for s in slots:
            is_ahead = rank[other[s]] > rank[v]
            ahead += is_ahead
            m, t = message_starts[s], table[s] + choices[other[s]] * beside[s]
            for k in range(size):
                total[k] += messages[m + k]
                decided[k] += messages[m + k] if is_ahead else tables[t + k * own[s]]
        choices[v] = _first_least(decided)
        share = 1.0 / max(ahead, len(slots) - ahead, 1)
        bound += (1.0 - ahead * share) * np.min(total)
        for s in slots:
            if rank[other[s]] > rank[v]:
                for k in range(size):
                    sent[k] = share * total[k] - messages[message_starts[s] + k]
                out = messages[message_starts[back[s]] : message_starts[back[s] + 1]]
                _send(sent, tables, table[s], own[s], beside[s], out)
    return bound


@compiled
def _add_factor(full: Floats, shape: Ints, data: Floats, base: int, strides: Ints, size: int, counter: Ints) -> None:
    """Add a table, broadcast by its strides, the last of which is that of the node's choices."""
    last, own = len(shape) - 1, strides[len(shape)]
    counter[:] = 0
    for cell in range(len(full) // size):
        for k in range(size):
            full[cell * size + k] += data[base + k * own]
        axis = last
        while axis >= 0:
            counter[axis] += 1
            base += strides[axis]
            if counter[axis] < shape[axis]:
                break
            base -= strides[axis] * counter[axis]
            counter[axis] = 0
            axis -= 1


@compiled
def eliminate(
    node: Ints, dim_starts: Ints, dims: Ints, factor_starts: Ints, offset: Ints, stride_starts: Ints, strides: Ints,
    out: Ints, taken_starts: Ints, sizes: Ints, starts: Ints, unary: Floats, tables: Floats, arena: Floats,
    room: Floats, taken: Small, choices: Ints,
) -> None:  # fmt: skip
    """The choices of the nodes of all steps."""
    counter = np.zeros(np.max(dim_starts[1:] - dim_starts[:-1]), dtype=np.int64)
    for step in range(len(node)):
        size = sizes[node[step]]
        scope = dims[dim_starts[step] : dim_starts[step + 1]]
        shape = sizes[scope]
        cells = taken_starts[step + 1] - taken_starts[step]
        full = room[: cells * size]
        for cell in range(cells):
            for k in range(size):
                full[cell * size + k] = unary[starts[node[step]] + k]
        for f in range(factor_starts[step], factor_starts[step + 1]):
            data, base = (tables, offset[f]) if offset[f] >= 0 else (arena, -offset[f] - 1)
            _add_factor(full, shape, data, base, strides[stride_starts[f] :], size, counter)
        for cell in range(cells):
            costs = full[cell * size : (cell + 1) * size]
            best = _first_least(costs)
            taken[taken_starts[step] + cell] = best
            if len(scope) == 1:
                unary[starts[scope[0]] + cell] += costs[best]
            elif len(scope) > 1:
                arena[out[step] + cell] = costs[best]
    for step in range(len(node) - 1, -1, -1):
        cell = 0
        for other in dims[dim_starts[step] : dim_starts[step + 1]]:
            cell = cell * sizes[other] + choices[other]
        choices[node[step]] = taken[taken_starts[step] + cell]


@compiled
def _take_cheapest(total: Floats, now: int, usage: Ints, room: Ints) -> int:
    """The cheapest choice that is cheaper than now's and fits in the room of each span; `now` where there is none."""
    limit = total[now]
    while True:
        best = _first_least(total)
        if not total[best] < limit:
            return now
        if np.all(usage[best] <= room):
            return best
        total[best] = np.inf


@compiled
def settle(
    order: Ints, starts: Ints, costs: Floats, slot_starts: Ints, other: Ints, table: Ints, own: Ints, beside: Ints,
    tables: Floats, break_starts: Ints, breaks: Ints, usage_starts: Ints, usage: Ints, slack: Ints, choices: Ints,
) -> int:  # fmt: skip
    """The cheapest choice that fits for each node; how many have changed."""
    changed = 0
    for v in order:
        size, now = starts[v + 1] - starts[v], choices[v]
        total = costs[starts[v] : starts[v + 1]].copy()
        for s in range(slot_starts[v], slot_starts[v + 1]):
            t = table[s] + choices[other[s]] * beside[s]
            for k in range(size):
                total[k] += tables[t + k * own[s]]
        if not np.min(total) < total[now]:
            continue
        points = breaks[break_starts[v] : break_starts[v + 1]]
        spans = max(len(points) - 1, 0)
        used = usage[usage_starts[v] : usage_starts[v + 1]].reshape(size, spans)
        room = used[now].copy()
        for a in range(spans):
            room[a] += np.min(slack[points[a] : points[a + 1]])
        best = _take_cheapest(total, now, used, room)
        if best != now:
            for a in range(spans):
                slack[points[a] : points[a + 1]] -= used[best, a] - used[now, a]
            choices[v] = best
            changed += 1
    return changed
