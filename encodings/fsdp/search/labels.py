"""Label setting over groups, what is kept, and the order of gathers and scatters.

A label is what the first collectives have come to: when the network is free, the first position whose parameters aren't
gathered, the first that hasn't run and when those before it are over, how many layers are scattered, and what memory
will be taken and freed when. It is extended by one more gather or scatter of up to so many layers. A gather starts as
soon as there is room for it, a backward pass as soon as there is room for its gradients.

Where gradients take no memory, memory is only ever freed by what goes on, so that a label which is nowhere later and
nowhere holds more than another of the same kept groups beats it, whatever follows. So the search without them is exact,
but for the labels that are dropped past a cap, whose bounds count; and it bounds the question with them, too.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gapless.encodings.fsdp.search.bounds import Tails, tails_of
from gapless.encodings.fsdp.search.label_setting import Searched, set_labels
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import Change, freed_s, taken_s
from gapless.options import Deadline

__all__ = ["greedy", "search"]

_SHARE = 1e-9
"""Of memory: what exceeds it by less is a rounding error."""

Kept = tuple[tuple[int, int], ...]
"""Groups of layers that wait for their backward passes, (first, last) each, the last of the layers last."""
Pending = tuple[float, float]
"""Of a position that hasn't run: when its parameters are there, and bytes of them that are freed when it is over."""


class _Label:
    """`at`: positions before it are gathered; `done`: have run, and are over at `over_s`; `pending`: those between.
    `scattered`: layers, the last first. `backward_s`: when the backward passes of the others are over. `taken`: bytes
    at `free_s`, when the network is free; `changes`: after that. `waiting`: parameters of `kept`. `begun`: when the
    passes began that the last collective let run.
    """

    __slots__ = ("at", "backward_s", "begun", "bound_s", "changes", "collective", "done", "free_s", "kept", "over_s",
                 "parent", "pending", "scattered", "start_s", "taken", "waiting")  # fmt: skip

    def __init__(self) -> None:
        self.at = self.done = self.scattered = self.waiting = 0
        self.free_s = self.over_s = self.start_s = self.bound_s = self.taken = 0.0
        self.changes: list[Change] = []
        self.pending: list[Pending] = []
        self.kept: Kept = ()
        self.backward_s: list[float] = []
        self.begun: list[float] = []
        self.parent: _Label | None = None
        self.collective: Collective | None = None

    def after(self, collective: Collective, start_s: float, end_s: float) -> _Label:
        """A copy, to become the label with one collective more."""
        longer = _Label()
        longer.at, longer.done, longer.scattered, longer.waiting = self.at, self.done, self.scattered, self.waiting
        longer.free_s, longer.over_s, longer.start_s, longer.taken = end_s, self.over_s, start_s, self.taken
        longer.changes, longer.pending, longer.kept = list(self.changes), list(self.pending), self.kept
        longer.backward_s, longer.parent, longer.collective = list(self.backward_s), self, collective
        return longer


def search(costs: Costs, most_labels: int, most_layers: int, best_s: float, deadline: Deadline) -> Searched:
    """The best order that ends before `best_s`.

    `most_labels`: kept of as many layers gathered and scattered. `most_layers`: of a group.
    """
    extending = _Extending(costs, tails_of(costs), most_layers)
    found = set_labels(
        _Label(), costs.positions + costs.layers, lambda label: label.at + label.scattered, extending.extended,
        _alike, _beats, most_labels, best_s, deadline,
    )  # fmt: skip
    return found.with_order(lambda best: _order_of(costs, best))


def greedy(costs: Costs) -> Order | None:
    """Layer by layer, each collective as soon as the network is free and there is room: what starts first, and of those
    a gather; None where memory leaves nothing to go on with."""
    extending, label = _Extending(costs, tails_of(costs), 1), _Label()
    while label.done < costs.positions or label.scattered < costs.layers:
        longer = [each for each in extending.extended(label) if each.collective and not each.collective.kept]
        if not longer:
            return None
        label = min(longer, key=lambda each: (each.start_s, each.scattered))
    return _order_of(costs, label)


class _Extending:
    """Labels and what they become."""

    def __init__(self, costs: Costs, tails: Tails, most_layers: int) -> None:
        self.costs, self.tails, self.most_layers = costs, tails, most_layers
        self.most_bytes = costs.memory_bytes * (1 + _SHARE)
        self.gradients = (costs.parameters * costs.gradient_bytes).tolist()
        needs = costs.parameters * (costs.gathered_bytes + costs.gradient_bytes)
        self.needs = [*np.maximum.accumulate(needs[::-1])[::-1].tolist(), 0.0]

    def extended(self, label: _Label) -> Iterator[_Label]:
        """Every label with one collective more."""
        layers = self.costs.layers
        is_forward = label.at < layers
        end = layers if is_forward else self._backward_end(label)
        for at in range(label.at, min(end, label.at + self.most_layers)):
            for kept in (False, True) if is_forward else (False,):
                longer = self._gathered(label, at, kept)
                if longer is not None:
                    yield longer
        for count in range(1, min(len(label.backward_s), self.most_layers) + 1):
            longer = self._scattered(label, count)
            if longer is not None:
                yield longer

    def _backward_end(self, label: _Label) -> int:
        """Up to where backward gathers go before kept parameters."""
        return self.costs.positions - 1 - label.kept[-1][1] if label.kept else self.costs.positions

    def _gathered(self, label: _Label, last: int, is_kept: bool) -> _Label | None:
        """With the positions from its next to `last` gathered; None where memory never has room for them."""
        costs = self.costs
        one, two = sorted((costs.layer_at[label.at], costs.layer_at[last]))
        count = costs.between(one, two)
        size = count * costs.gathered_bytes
        if is_kept and (label.waiting + count) * costs.gathered_bytes + self.needs[two + 1] > self.most_bytes:
            return None  # no later layer would have room for its backward pass
        start_s = self._room_s(label.taken, label.changes, size, label.free_s)
        if start_s is None:
            return None
        collective = Collective(Kind.FORWARD if last < costs.layers else Kind.BACKWARD, one, two, is_kept)
        longer = label.after(collective, start_s, start_s + costs.collective_s(collective))
        insort(longer.changes, (start_s, size))
        longer.pending += [(longer.free_s, 0.0)] * (last + 1 - label.at)
        if is_kept:
            longer.kept, longer.waiting = (*label.kept, (one, two)), label.waiting + count
        else:
            longer.pending[-1] = (longer.free_s, size)
        longer.at = last + 1
        self._add_kept(longer)
        return self._settled(longer)

    def _add_kept(self, longer: _Label) -> None:
        """Backward passes whose parameters are kept are ready, as far as they are next."""
        costs = self.costs
        while longer.kept and costs.layers <= longer.at == costs.positions - 1 - longer.kept[-1][1]:
            first, last = longer.kept[-1]
            count = costs.between(first, last)
            longer.pending += [(0.0, 0.0)] * (last - first) + [(0.0, count * costs.gathered_bytes)]
            longer.at += last - first + 1
            longer.kept, longer.waiting = longer.kept[:-1], longer.waiting - count

    def _scattered(self, label: _Label, count: int) -> _Label | None:
        """With the gradients of the next `count` layers scattered."""
        costs = self.costs
        last = costs.layers - 1 - label.scattered
        collective = Collective(Kind.SCATTER, last - count + 1, last)
        start_s = max(label.free_s, label.backward_s[count - 1])
        longer = label.after(collective, start_s, start_s + costs.collective_s(collective))
        longer.scattered += count
        del longer.backward_s[:count]
        if costs.gradient_bytes:
            insort(longer.changes, (longer.free_s, -costs.between(last - count + 1, last) * costs.gradient_bytes))
        return self._settled(longer)

    def _run(self, longer: _Label) -> None:
        """Run the positions that are pending, as far as memory has room for gradients."""
        costs = self.costs
        ran = 0
        for ready_s, freed in longer.pending:
            position = longer.done
            begin_s: float | None = max(longer.over_s, ready_s)
            if position >= costs.layers and costs.gradient_bytes:
                size = self.gradients[costs.layer_at[position]]
                begin_s = self._room_s(longer.taken, longer.changes, size, max(longer.over_s, ready_s))
                if begin_s is None:
                    break
                insort(longer.changes, (taken_s(begin_s, costs.duration_s[position]), size))
            assert begin_s is not None
            longer.over_s = begin_s + costs.duration_s[position]
            longer.begun.append(begin_s)
            if position >= costs.layers:
                longer.backward_s.append(longer.over_s)
            if freed:
                insort(longer.changes, (freed_s(longer.over_s, costs.duration_s[position]), -freed))
            longer.done += 1
            ran += 1
        del longer.pending[:ran]

    def _settled(self, longer: _Label) -> _Label | None:
        """The label with what it lets run, and memory at its end; None where there is too much of it before."""
        self._run(longer)
        changes, taken, most = longer.changes, longer.taken, self.most_bytes
        number = 0
        while number < len(changes) and changes[number][0] <= longer.free_s:
            taken += changes[number][1]
            number += 1
            is_whole = number == len(changes) or changes[number][0] > changes[number - 1][0]
            if taken > most and is_whole:
                return None
        longer.taken = taken
        del changes[:number]
        if longer.done == self.costs.positions and longer.scattered == self.costs.layers:
            longer.bound_s = max(longer.free_s, longer.over_s)
        else:
            assert longer.parent is not None
            least_s = self.tails.from_s(
                longer.free_s, longer.over_s, longer.at, longer.done, longer.scattered, longer.waiting
            )
            longer.bound_s = max(longer.parent.bound_s, least_s)
        return longer

    def _room_s(self, taken: float, changes: list[Change], size: float, not_before_s: float) -> float | None:
        """From when on there is room for so many bytes, by what is known; None where there never is."""
        room = self.most_bytes - size
        since_s: float | None = not_before_s if taken <= room else None
        for when_s, by in changes:
            taken += by
            if when_s <= not_before_s:
                since_s = not_before_s if taken <= room else None
            elif taken > room:
                since_s = None
            elif since_s is None:
                since_s = when_s
        return since_s


def _alike(label: _Label) -> tuple[object, ...]:
    """What labels have in common of which one may beat another."""
    return (label.at, label.done, label.scattered, label.kept)


def _beats(one: _Label, other: _Label) -> bool:
    """Whether one is nowhere later than another, and never holds more."""
    if one.free_s > other.free_s or one.over_s > other.over_s:
        return False
    if any(early > late for early, late in zip(one.backward_s, other.backward_s, strict=True)):
        return False
    if any(early > late for (early, _), (late, _) in zip(one.pending, other.pending, strict=True)):
        return False
    mine, theirs = one.taken, other.taken
    merged = heapq.merge([(*change, True) for change in one.changes], [(*change, False) for change in other.changes])
    for when_s, by, is_mine in merged:
        if when_s > other.free_s and mine > theirs:
            return False
        mine, theirs = (mine + by, theirs) if is_mine else (mine, theirs + by)
    return mine <= theirs


def _order_of(costs: Costs, label: _Label) -> Order:
    """The collectives of a label, with the positions that they wait for, and what holds back backward passes."""
    chain: list[_Label] = []
    node: _Label | None = label
    while node is not None and node.collective is not None:
        chain.append(node)
        node = node.parent
    chain.reverse()
    begin_s = [when_s for each in chain for when_s in each.begun]
    over_s = [when_s + costs.duration_s[position] for position, when_s in enumerate(begin_s)]
    ends_s = [each.free_s for each in chain]
    collectives: list[Collective] = []
    holds, ready_s, before = [0] * costs.layers, [0.0] * costs.positions, _Label()
    for number, each in enumerate(chain):
        assert each.collective is not None
        waits = each.collective.kind != Kind.SCATTER and each.start_s > before.free_s
        after = bisect_right(over_s[: before.done], each.start_s) if waits else 0
        collectives.append(replace(each.collective, after=after))
        if each.collective.kind == Kind.BACKWARD:
            for layer in range(each.collective.first, each.collective.last + 1):
                ready_s[costs.positions - 1 - layer] = each.free_s
        for position in range(max(before.done, costs.layers), each.done):
            if begin_s[position] > max(over_s[position - 1], ready_s[position]):
                holds[costs.layer_at[position]] = bisect_right(ends_s[: number + 1], begin_s[position])
        before = each
    return Order(tuple(collectives), tuple(holds))
