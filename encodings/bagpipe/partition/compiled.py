"""The loops of partitions, compiled: costs, who uses which ids, and the assignment of least cost.

Each gives what its function over arrays does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints, Mask
from gapless.methods.compiled import compiled

__all__ = [
    "added_costs",
    "assigned",
    "between_trainers",
    "costs",
    "count_uses",
    "move_uses",
    "one_user",
    "rooted_messages",
    "settled_users",
    "used_by_trainer",
]

Costs = NDArray[np.integer]

_FAR = 2**60


@compiled
def _summed(index: NDArray[np.int32], examples: Ints, per_id: NDArray[np.int32]) -> NDArray[np.int32]:
    """What the ids of each example come to at each trainer, of `per_id`, ids x trainers."""
    added = np.zeros((len(examples), per_id.shape[1]), np.int32)
    for table in range(index.shape[1]):
        for at in range(len(examples)):
            id_ = index[examples[at], table]
            for trainer in range(per_id.shape[1]):
                added[at, trainer] += per_id[id_, trainer]
    return added


@compiled
def used_by_trainer(index: NDArray[np.integer], trainer: Ints, ids: int, trainers: int) -> NDArray[np.int32]:
    """As `uses_by_trainer` of examples with as many ids each."""
    counts = np.zeros((trainers, ids), np.int32)
    for table in range(index.shape[1]):
        for example in range(len(index)):
            counts[trainer[example], index[example, table]] += 1
    return counts


@compiled
def one_user(users: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_]]:
    """As `roots.one_user`, of users by trainer."""
    user = np.zeros(users.shape[1], np.int64)
    count = np.zeros(users.shape[1], np.int16)
    for trainer in range(len(users)):
        for place in range(len(user)):
            user[place] = trainer if users[trainer, place] else user[place]
            count[place] += users[trainer, place]
    return user, count == 1


@compiled
def between_trainers(users: NDArray[np.bool_], owner: Ints) -> Ints:
    """As `Traffic.of_users`, of users by trainer: from trainers, from servers, sent; (3, trainers)."""
    trainers = len(users)
    rows = np.zeros((3, trainers), np.int64)
    others = np.zeros(len(owner), np.int32)
    for trainer in range(trainers):
        fetched = served = 0
        for place in range(len(owner)):
            is_fetched = users[trainer, place] and owner[place] != trainer
            fetched += is_fetched
            served += is_fetched and owner[place] < 0
            others[place] += is_fetched
        rows[0, trainer], rows[1, trainer] = fetched - served, served
    for place in range(len(owner)):
        if owner[place] >= 0:
            rows[2, owner[place]] += others[place]
    return rows


@compiled
def move_uses(
    index: NDArray[np.int32], examples: Ints, trainer: Ints, times: int, owner: NDArray[np.int32],
    counts: NDArray[np.int32], moved: Ints,
) -> None:  # fmt: skip
    """As `Uses.take` (`times` is -1) and `Uses.put` (1); `moved` is kept up to date. Table after table."""
    unused, rows = np.int64(times < 0), moved.copy()  # the count before, of what stops or starts to be used
    for table in range(index.shape[1]):
        for at in range(len(examples)):
            id_, to = index[examples[at], table], trainer[at]
            before = counts[id_, to]
            counts[id_, to] = before + times
            if before == unused and owner[id_] != to:
                rows[owner[id_] + 1, to] += times
    moved[:] = rows


@compiled
def count_uses(index: NDArray[np.int32], examples: Ints, taken: NDArray[np.int32]) -> None:
    """Add the uses of the examples to the counts of their ids."""
    for table in range(index.shape[1]):
        for example in examples:
            taken[index[example, table]] += 1


@compiled
def added_costs(
    index: NDArray[np.int32], examples: Ints, counts: NDArray[np.int32], taken: NDArray[np.int32],
    owner: NDArray[np.int32], receive: Floats, send: Floats, weight: Floats, per_id: NDArray[np.int32],
) -> NDArray[np.int32]:  # fmt: skip
    """As `Uses.costs`, in the finer unit. `per_id`: room to work in, ids x trainers."""
    trainers = len(receive)
    for id_ in range(len(taken)):
        if taken[id_] == 0:
            continue
        of, share = owner[id_], weight[taken[id_]]
        sent = send[of] if of >= 0 else 0.0
        for trainer in range(trainers):
            cost = np.rint((receive[trainer] + sent) * share)
            per_id[id_, trainer] = np.int32(cost) if counts[id_, trainer] == 0 else 0
        if of >= 0:
            per_id[id_, of] = 0
    return _summed(index, examples, per_id)


@compiled
def costs(owner: NDArray[np.integer], slot: NDArray[np.integer], cost: NDArray[np.integer]) -> None:
    """The cost matrix of examples with as many ids each, written into `cost`."""
    examples, trainers = cost.shape
    held = np.zeros(trainers + 1, cost.dtype)  # what is cached nowhere counts at -1, the last
    for example in range(examples):
        held[:] = 0
        for table in range(slot.shape[1]):
            held[owner[slot[example, table]]] += 1
        cached = slot.shape[1] - held[-1]
        for trainer in range(trainers):
            cost[example, trainer] = cached - held[trainer]


@compiled
def _favourites(cost: Costs, places: Ints, prices: Ints) -> tuple[Ints, Ints, Ints]:
    """Each example where cost and price are least: the members of trainer j are `held[j]` from `first[j]` on.

    Trainers with too many only lose members, the others never hold more than they have places.
    """
    examples, trainers = cost.shape
    favourite = np.empty(examples, np.int64)
    held = np.zeros(trainers, np.int64)
    for example in range(examples):
        best, least = 0, cost[example, 0] + prices[0]
        for trainer in range(1, trainers):
            priced = cost[example, trainer] + prices[trainer]
            if priced < least:
                best, least = trainer, priced
        favourite[example] = best
        held[best] += 1
    first = np.zeros(trainers, np.int64)
    first[1:] = np.cumsum(np.maximum(held, places))[:-1]
    members = np.empty(np.maximum(held, places).sum(), np.int64)
    held[:] = 0
    for example in range(examples):
        trainer = favourite[example]
        members[first[trainer] + held[trainer]] = example
        held[trainer] += 1
    return members, first, held


@compiled
def _renew(
    cost: Costs, members: Ints, first: Ints, held: Ints, least: Ints, attain: Ints, source: int, targets: Ints,
    count: int,
) -> None:  # fmt: skip
    """The least that moving a member of `source` to each of the first `count` targets costs, and how many attain it."""
    trainers = cost.shape[1]
    if 4 * count > trainers:  # along whole rows, which the compiler does many at a time
        lowest = np.full(trainers, _FAR)
        attained = np.zeros(trainers, np.int64)
        for example in members[first[source] : first[source] + held[source]]:
            own = np.int64(cost[example, source])
            for target in range(trainers):
                lowest[target] = min(lowest[target], cost[example, target] - own)
        for example in members[first[source] : first[source] + held[source]]:
            own = np.int64(cost[example, source])
            for target in range(trainers):
                attained[target] += cost[example, target] - own == lowest[target]
        least[source], attain[source] = lowest, attained
        return
    for at in range(count):
        least[source, targets[at]], attain[source, targets[at]] = _FAR, 0
    for example in members[first[source] : first[source] + held[source]]:
        own = np.int64(cost[example, source])
        for at in range(count):
            target = targets[at]
            more = cost[example, target] - own
            if more < least[source, target]:
                least[source, target], attain[source, target] = more, 1
            elif more == least[source, target]:
                attain[source, target] += 1


@compiled
def _leave(
    cost: Costs, members: Ints, first: Ints, held: Ints, least: Ints, source: int, target: int, count: int,
    leaving: Ints,
) -> None:  # fmt: skip
    """Take the first `count` members of `source` that cost least on `target`; the others keep their order."""
    gone = kept = 0
    for place in range(first[source], first[source] + held[source]):
        example = members[place]
        if gone < count and np.int64(cost[example, target]) - cost[example, source] == least[source, target]:
            leaving[gone] = example
            gone += 1
        else:
            members[first[source] + kept] = example
            kept += 1
    held[source] = kept


@compiled
def _without(
    cost: Costs, members: Ints, first: Ints, held: Ints, least: Ints, attain: Ints, source: int, gone: Ints,
    lost: Ints,
) -> None:  # fmt: skip
    """The costs of the arcs from `source` once these examples are gone; `lost` is room to work in."""
    trainers = cost.shape[1]
    for example in gone:
        own = np.int64(cost[example, source])
        for target in range(trainers):
            attain[source, target] -= cost[example, target] - own == least[source, target]
    count = 0
    for target in range(trainers):
        if attain[source, target] == 0:
            lost[count] = target
            count += 1
    _renew(cost, members, first, held, least, attain, source, lost, count)


@compiled
def _arrive(
    cost: NDArray[np.integer],
    members: Ints,
    first: Ints,
    held: Ints,
    least: Ints,
    attain: Ints,
    target: int,
    gone: Ints,
) -> None:
    """Add these examples to the members of `target`."""
    for example in gone:
        members[first[target] + held[target]] = example
        held[target] += 1
        own = np.int64(cost[example, target])
        for other in range(cost.shape[1]):
            more = cost[example, other] - own
            if more < least[target, other]:
                least[target, other], attain[target, other] = more, 1
            elif more == least[target, other]:
                attain[target, other] += 1


@compiled
def _shortest_path(least: Ints, surplus: Ints, prices: Ints) -> Ints:
    """As `transport._shortest_path`, round by round; the prices are changed in place."""
    trainers = len(surplus)
    distance = np.where(surplus > 0, 0, _FAR)
    before = np.full(trainers, -1)
    is_nearer = surplus > 0
    while is_nearer.any():
        nearest = np.full(trainers, -1)
        nearer = distance.copy()
        for source in range(trainers):
            if not is_nearer[source] or least[source, 0] >= _FAR:
                continue
            here = distance[source] - prices[source]
            for target in range(trainers):
                through = here + least[source, target] + prices[target]
                if through < nearer[target]:
                    nearer[target], nearest[target] = through, source
        is_nearer = nearest >= 0
        distance = nearer
        before = np.where(is_nearer, nearest, before)
    last = -1
    for trainer in range(trainers):
        if surplus[trainer] < 0 and (last < 0 or distance[trainer] < distance[last]):
            last = trainer
    for trainer in range(trainers):
        prices[trainer] -= min(distance[trainer], distance[last])
    path = np.empty(trainers, np.int64)
    path[trainers - 1], count = last, 1
    while before[path[trainers - count]] >= 0:
        path[trainers - count - 1] = before[path[trainers - count]]
        count += 1
    return path[trainers - count :]


@compiled
def assigned(cost: Costs, places: Ints, start: Ints) -> tuple[Ints, Ints, int]:
    """Trainer of each example, prices, steps: the loop of `transport`, with counts of what attains each arc's cost."""
    examples, trainers = cost.shape
    members, first, held = _favourites(cost, places, start)
    surplus = held - places
    least = np.full((trainers, trainers), _FAR, np.int64)
    attain = np.zeros((trainers, trainers), np.int64)
    every = np.arange(trainers)
    for trainer in range(trainers):
        _renew(cost, members, first, held, least, attain, trainer, every, trainers)
    prices, steps = start.copy(), 0
    leaving = np.empty(examples, np.int64)
    lost = np.empty(trainers, np.int64)
    while surplus.max() > 0:
        path = _shortest_path(least, surplus, prices)
        source, target = path[0], path[-1]
        count = min(surplus[source], -surplus[target])
        for arc in range(len(path) - 1):
            count = min(count, attain[path[arc], path[arc + 1]])
        for arc in range(len(path) - 1):
            _leave(cost, members, first, held, least, path[arc], path[arc + 1], count, leaving[arc * count :])
        for arc in range(len(path) - 1):
            gone = leaving[arc * count : (arc + 1) * count]
            _without(cost, members, first, held, least, attain, path[arc], gone, lost)
            _arrive(cost, members, first, held, least, attain, path[arc + 1], gone)
        surplus[source] -= count
        surplus[target] += count
        steps += 1
    trainer_of = np.empty(examples, np.int64)
    for trainer in range(trainers):
        trainer_of[members[first[trainer] : first[trainer] + held[trainer]]] = trainer
    return trainer_of, prices, steps


@compiled
def settled_users(
    uses: NDArray[np.int32], ids: Ints, owner: Ints, root: Ints
) -> tuple[Mask, Ints, Mask, Ints, Ints]:  # fmt: skip
    """As `cuts.Settled.of`, in the order of its fields, but with users and uses trainers x rows."""
    trainers, rows = uses.shape
    users = np.empty((trainers, rows), np.bool_)
    user, is_alone = np.zeros(rows, np.int64), np.empty(rows, np.bool_)
    owner_after, root_after = owner.copy(), root.copy()
    for row in range(rows):
        turn = ids[row] % trainers
        rank, most, first, nearest, count, has_root = turn, np.int64(-1), 0, trainers, 0, False
        for trainer in range(trainers):
            times = np.int64(uses[trainer, row])
            is_user = times > 0
            users[trainer, row] = is_user
            if is_user:
                user[row] = trainer
                count += 1
                has_root |= trainer == root[row]
                distance = trainer - turn if trainer >= turn else trainer - turn + trainers
                if distance < nearest:
                    first, nearest = trainer, distance
                if owner[row] < 0 and times * trainers + rank > most:
                    owner_after[row], most = trainer, times * trainers + rank
            rank = rank + 1 if rank + 1 < trainers else 0
        is_alone[row] = count == 1
        root_after[row] = user[row] if count == 1 else (root[row] if has_root else first)
    return users, user, is_alone, owner_after, root_after


@compiled
def rooted_messages(
    users: Mask, prefetched: Mask, in_next: Mask, at_once: Mask, before: Ints, is_alone: Mask, root: Ints
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """As `counts._rooted_messages`. `users`: trainers x rows; `before`: the roots before the batch."""
    trainers, rows = users.shape
    fetched, relayed = np.zeros(trainers, np.int64), np.zeros(trainers, np.int64)
    received, sent = np.zeros((4, trainers), np.int64), np.zeros((4, trainers), np.int64)
    for row in range(rows):
        old, new = before[row], root[row]
        sending = 0 if at_once[row] else 1
        gathering = 2 if in_next[row] else 3
        to_send = to_gather = 0
        for trainer in range(trainers):
            if users[trainer, row]:
                fetched[trainer] += prefetched[row]
                if old >= 0 and trainer != old:
                    received[sending, trainer] += 1
                    to_send += 1
                if not is_alone[row] and trainer != new:
                    received[gathering, trainer] += 1
                    to_gather += 1
        if to_send:
            sent[sending, old] += to_send
            relayed[old] += sending == 0
        if to_gather:
            sent[gathering, new] += to_gather
    return fetched, received, sent, relayed
