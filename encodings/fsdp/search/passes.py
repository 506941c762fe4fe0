"""Label setting over passes, as FSDP2 runs them: what each gathers ahead, and what is kept.

A pass gathers what it needs, if that isn't there, and once it is begins gathers of later passes. These hold memory from
then on, and the network takes collectives as they are begun; a scatter is begun when its backward pass is over. A label
is what the passes so far have come to: it is extended by one more gather that its next pass begins, or by that pass.

What memory holds of parameters while a pass runs depends on what has been begun, not on when. So where gradients take
no memory, a label which is nowhere later than another of the same kept layers beats it, and the search is exact but for
the labels that are dropped past a cap, whose bounds count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.fsdp.search.bounds import Tails, last_between_nodes_s, tails_of
from gapless.encodings.fsdp.search.label_setting import Searched, set_labels
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import carried, freed_s
from gapless.options import Deadline

__all__ = ["FEW_LAYERS", "search_passes"]

FEW_LAYERS = 6
"""Up to which searches are to find the optimum."""

_SHARE = 1e-9
"""Of memory: what exceeds it by less is a rounding error."""


class _Sharding(NamedTuple):
    """What a forward gather decides: whether parameters stay until the backward pass, whether a node's share of them
    does, and whether nodes have a replica each."""

    is_kept: bool = False
    is_secondary: bool = False
    is_replicated: bool = False


_OVER_ALL = _Sharding()


def _shardings(costs: Costs) -> list[_Sharding]:
    """Those that are offered."""
    found = [_OVER_ALL] if costs.replicas.is_full else []
    found.append(_Sharding(is_kept=True))
    if costs.replicas.share < 1:
        found.append(_Sharding(is_secondary=True))
    if costs.replicas.bytes is not None:
        found += [_Sharding(is_replicated=True), _Sharding(is_kept=True, is_replicated=True)]
    return found


_NOTHING = (0.0, 0.0)


class _Label:
    """`done`: passes that have run, over at `over_s`; `at`: positions before it are gathered or begun, `ready_s`: when,
    of those that haven't run. `free_s`: when networks are. `held`: bytes of gathered parameters, shares and replicas;
    `peak`: the most so far; `freed`: as `_freed` has it. `kept`: layers that wait for backward passes, `waiting`: their
    parameters; `left`: bytes of these, of shares and of replicas. `in_node`: parameters of `secondary` and `replicated`
    layers that are gathered again, in nodes; `summed`: of replicated ones whose gradients aren't scattered. `flying`:
    end and bytes of each scatter since the first that wasn't over when the last pass was. `collective`: what it added
    to `parent`.
    """

    __slots__ = ("at", "bound_s", "collective", "done", "flying", "free_s", "freed", "held", "in_node", "kept", "left",
                 "over_s", "parent", "peak", "ready_s", "replicated", "secondary", "summed", "waiting")  # fmt: skip

    def __init__(self) -> None:
        self.at = self.done = self.waiting = self.in_node = self.summed = 0
        self.over_s = self.bound_s = self.held = self.left = self.peak = 0.0
        self.freed = _NOTHING
        self.free_s: tuple[float, ...] = ()
        self.ready_s: tuple[float, ...] = ()
        self.kept: tuple[int, ...] = ()
        self.secondary: frozenset[int] = frozenset()
        self.replicated: frozenset[int] = frozenset()
        self.flying: tuple[tuple[float, float], ...] = ()
        self.parent: _Label | None = None
        self.collective: Collective | None = None

    def after(self, collective: Collective | None) -> _Label:
        """A copy, to become the label with a collective more."""
        longer = _Label()
        for name in _COPIED:
            setattr(longer, name, getattr(self, name))
        longer.parent, longer.collective = self, collective
        return longer


_COPIED = tuple(name for name in _Label.__slots__ if name not in ("bound_s", "collective", "parent"))


def search_passes(costs: Costs, most_labels: int, most_scatters: int, best_s: float, deadline: Deadline) -> Searched:
    """The best order of single layers that ends before `best_s`, with at most so many scatters under way when another
    backward pass begins. `most_labels`: kept of as many layers gathered and passes run."""
    extending = _Extending(costs, [tails_of(each) for each in costs.networks], most_scatters)
    first = _Label()
    first.free_s = (0.0,) * len(costs.networks)
    alike = _nearly_same if costs.layers <= FEW_LAYERS and costs.gradient_bytes else _alike
    found = set_labels(
        first, 2 * costs.positions, lambda label: label.at + label.done, extending.extended, alike, _beats,
        most_labels, best_s, deadline,
    )  # fmt: skip
    return found.with_order(lambda best: _order_of(costs, best, most_scatters))


class _Extending:
    """Labels and what they become."""

    def __init__(self, costs: Costs, tails: Sequence[Tails], most_scatters: int) -> None:
        self.costs, self.tails, self.most_scatters = costs, tails, most_scatters
        self._has_flying = bool(costs.gradient_bytes) or most_scatters < costs.layers
        self.most_bytes = costs.memory_bytes * (1 + _SHARE)
        self.sizes = (costs.parameters * costs.gathered_bytes).tolist()
        self.gradients = (costs.parameters * costs.gradient_bytes).tolist()
        self.shardings, self.last_s = _shardings(costs), last_between_nodes_s(costs)
        self.secondary = [size * costs.replicas.share for size in self.sizes]
        self.replicas = (costs.parameters * (costs.replicas.bytes or 0.0)).tolist()
        self.needs = [0.0]
        for layer, need in reversed([*enumerate(_needs(costs, most_scatters).tolist())]):
            least = min(self._left(layer, sharding) for sharding in self.shardings)
            self.needs.insert(0, max(need, least + self.needs[0]))

    def extended(self, label: _Label) -> Iterator[_Label]:
        """Every label with one gather more that its next pass begins, and with that pass."""
        layers = self.costs.layers
        for sharding in self.shardings if label.at < layers else (_OVER_ALL,):
            longer = self._gathered(label, sharding)
            if longer is not None:
                yield longer
        if label.at > label.done:
            longer = self._ran(label)
            if longer is not None:
                yield longer

    def _gathered(self, label: _Label, sharding: _Sharding) -> _Label | None:
        """With its next position's gather begun; None where there is none, or no room for it."""
        costs, done, at = self.costs, label.done, label.at
        if at == costs.positions:
            return None
        layer = costs.layer_at[at]
        if at >= costs.layers and done <= layer:
            return None  # it is there for the forward pass
        left = self._left(layer, sharding)
        if left and label.left + left + self.needs[layer + 1] > self.most_bytes:
            return None  # no later layer would have room for its backward pass
        begun_s = self._may_begin_s(label)
        if at == done and done:
            begun_s = max(begun_s, freed_s(label.over_s, costs.duration_s[done - 1]))
        start_s = max(begun_s, label.free_s[0])  # which is before the pass begins where its gather is still in nodes
        beside = sum(size for end_s, size in label.flying if end_s > (start_s if at > done else begun_s))
        if at > done:
            beside = max(beside, self._beside(label, max(begun_s, label.ready_s[0])))
        replica = self.replicas[layer] if sharding.is_replicated else 0.0
        held = label.held + self.sizes[layer] + replica + (self.secondary[layer] if sharding.is_secondary else 0.0)
        peak = max(held + beside, label.peak + replica)
        if peak > self.most_bytes:
            return None
        longer = label.after(self._gather(label, layer, sharding))
        longer.held, longer.peak, longer.left = held, self._noted(peak), label.left + left
        longer.ready_s = (*label.ready_s, _sent(costs, longer, begun_s))
        if longer.ready_s[0] > longer.over_s:
            longer.freed = _NOTHING
        longer.at += 1
        self._choose(longer, layer, sharding)
        while longer.kept and costs.layers <= longer.at == costs.positions - 1 - longer.kept[-1]:
            longer.waiting -= int(costs.parameters[longer.kept[-1]])
            longer.ready_s, longer.kept, longer.at = (*longer.ready_s, 0.0), longer.kept[:-1], longer.at + 1
        return self._bounded(longer) if self._leaves_room(longer) else None

    def _left(self, layer: int, sharding: _Sharding) -> float:
        """Bytes that stay after a forward pass."""
        share = self.secondary[layer] if sharding.is_secondary else 0.0
        replica = self.replicas[layer] if sharding.is_replicated else 0.0
        return share + replica + (self.sizes[layer] if sharding.is_kept else 0.0)

    def _gather(self, label: _Label, layer: int, sharding: _Sharding) -> Collective:
        if label.at < self.costs.layers:
            return Collective(Kind.FORWARD, layer, layer, sharding.is_kept, label.done, in_node=sharding.is_replicated)
        in_node = layer in label.secondary or layer in label.replicated
        return Collective(Kind.BACKWARD, layer, layer, after=label.done, in_node=in_node)

    def _choose(self, longer: _Label, layer: int, sharding: _Sharding) -> None:
        """Note what a forward gather decides, or that a backward gather is begun."""
        count = int(self.costs.parameters[layer])
        assert longer.collective is not None
        if longer.collective.kind == Kind.BACKWARD:
            longer.in_node -= count if longer.collective.in_node else 0
            return
        if sharding.is_kept:
            longer.kept, longer.waiting = (*longer.kept, layer), longer.waiting + count
        elif sharding.is_secondary or sharding.is_replicated:
            longer.in_node += count
        if sharding.is_secondary:
            longer.secondary |= {layer}
        if sharding.is_replicated:
            longer.replicated, longer.summed = longer.replicated | {layer}, longer.summed + count

    def _noted(self, peak: float) -> float:
        """A peak, where it matters afterwards: replicas add to it."""
        return peak if self.costs.replicas.bytes else 0.0

    def _leaves_room(self, label: _Label) -> bool:
        """Whether backward passes have room for their gradients while all is there that has been begun."""
        layers, held = self.costs.layers, label.held
        if label.at <= layers:
            return True
        for layer in range(label.done, layers):
            held -= 0.0 if self._is_kept(label, layer) else self.sizes[layer]
        for position in range(max(label.done, layers), label.at):
            layer = self.costs.layer_at[position]
            if held + self.gradients[layer] > self.most_bytes:
                return False
            held -= self.sizes[layer] + self._share(label, layer)
        return True

    def _share(self, label: _Label, layer: int) -> float:
        """Bytes that a backward pass frees besides."""
        return self.secondary[layer] if layer in label.secondary else 0.0

    def _ran(self, label: _Label) -> _Label | None:
        """With its next pass, and the scatter of its gradients; None where these have no room."""
        costs, position = self.costs, label.done
        layer, is_backward = costs.layer_at[position], position >= costs.layers
        begin_s = max(self._may_begin_s(label), label.ready_s[0])
        is_summed = layer in label.replicated
        longer = label.after(Collective(Kind.SCATTER, layer, layer, in_node=is_summed) if is_backward else None)
        longer.over_s, longer.ready_s = begin_s + costs.duration_s[position], label.ready_s[1:]
        longer.done += 1
        is_kept = not is_backward and self._is_kept(label, layer)
        freed = 0.0 if is_kept else self.sizes[layer] + is_backward * self._share(label, layer)
        longer.held -= freed
        longer.freed = self._freed(label, begin_s, freed)
        if is_backward:
            most = label.held + self._beside(label, begin_s)
            if most > self.most_bytes:
                return None
            longer.peak = max(label.peak, self._noted(most))
            longer.summed -= int(costs.parameters[layer]) if is_summed else 0
            end_s = _sent(costs, longer, self._may_scatter_s(longer))
            flying = [*label.flying, (end_s, self.gradients[layer])]
            while flying[0][0] < longer.over_s:
                del flying[0]
                if not flying:
                    break
            longer.flying = tuple(flying) if self._has_flying else ()
        return self._bounded(longer)

    def _is_kept(self, label: _Label, layer: int) -> bool:
        """Whether a layer, whose forward pass is next, is kept: its backward pass is next but for what is gathered, or
        waits."""
        return layer in label.kept or self.costs.positions - 1 - layer < label.at

    def _may_begin_s(self, label: _Label) -> float:
        """When its next pass may begin what it needs: few enough scatters are under way."""
        if len(label.flying) <= self.most_scatters:
            return label.over_s
        return max(label.over_s, label.flying[-1 - self.most_scatters][0])

    def _may_scatter_s(self, label: _Label) -> float:
        """When the scatter of its last pass may begin: that waits as the pass after it does."""
        if len(label.flying) < self.most_scatters:
            return label.over_s
        return max(label.over_s, label.flying[-self.most_scatters][0])

    def _freed(self, label: _Label, begin_s: float, freed: float) -> tuple[float, float]:
        """Bytes that are freed as the next pass ends, where that or the one after it takes no time: those of a pass
        that takes time, and those of passes after it that take none, which free what they have read a moment later."""
        briefs = [not duration_s for duration_s in self.costs.duration_s[label.done : label.done + 2]]
        if not any(briefs):
            return _NOTHING
        if not briefs[0]:
            return freed, 0.0
        first, later = label.freed if begin_s == label.over_s else _NOTHING
        return first, later + freed

    def _beside(self, label: _Label, begin_s: float) -> float:
        """Bytes beside gathered parameters when the next pass begins: of gradients that it makes, and of those whose
        scatters aren't over. A pass that takes no time takes what it makes before anything else of its instant is
        freed."""
        done = label.done
        own = self.gradients[self.costs.layer_at[done]] if done >= self.costs.layers else 0.0
        is_brief = not self.costs.duration_s[done] and self.costs.gradient_bytes > 0
        first, later = label.freed if begin_s == label.over_s else _NOTHING
        flying = sum(size for end_s, size in label.flying if end_s > begin_s or (is_brief and end_s == begin_s))
        return own + later + (first if is_brief else 0.0) + flying

    def _first_between_nodes(self, label: _Label) -> int:
        """The first position from `at` on whose gather isn't in nodes alone, where backward passes are next."""
        costs, at = self.costs, label.at
        while costs.layers <= at < costs.positions:
            layer = costs.layer_at[at]
            if layer not in label.secondary and layer not in label.replicated and layer not in label.kept:
                break
            at += 1
        return at

    def _bounded(self, longer: _Label) -> _Label:
        assert longer.parent is not None
        if longer.done == self.costs.positions:
            longer.bound_s = max(*longer.free_s, longer.over_s)
            return longer
        scattered = max(0, longer.done - self.costs.layers)
        state = longer.over_s, longer.at, longer.done, scattered
        outer, *inner = zip(self.tails, longer.free_s, strict=True)
        first = self._first_between_nodes(longer) if longer.in_node else longer.at
        least_s = outer[0].from_s(outer[1], *state, longer.waiting + longer.in_node, longer.summed, first)
        inner_s = (tails.from_s(free_s, *state, longer.waiting) + self.last_s for tails, free_s in inner)
        longer.bound_s = max(longer.parent.bound_s, least_s, *inner_s)
        return longer


def _needs(costs: Costs, most_scatters: int) -> Floats:
    """Bytes beside kept parameters that are seen to be there for each layer's backward pass: its own, or those of the
    gradients before it as long as their scatter is under way; where passes wait for scatters, as many as may be."""
    gradients, own = (costs.parameters * each for each in (costs.gradient_bytes, costs.gathered_bytes))
    before = np.append(gradients[1:], 0.0)
    if most_scatters >= costs.layers:
        both: Floats = own + np.maximum(gradients, before)
        return both
    in_flight: Floats = np.array(own)
    for k in range(most_scatters + 1):
        in_flight[: costs.layers - k] += gradients[k:]
    return in_flight


def _sent(costs: Costs, longer: _Label, from_s: float) -> float:
    """When a label's collective is over that may begin at an instant; networks are free after it."""
    free_s = [*longer.free_s]
    assert longer.collective is not None
    end_s = [end for _, _, end in carried(costs, longer.collective, free_s, from_s)][-1]
    longer.free_s = tuple(free_s)
    return end_s


def _alike(label: _Label) -> tuple[object, ...]:
    """What labels have in common of which one may beat another."""
    return (label.at, label.done, label.kept, label.secondary, label.replicated)


def _nearly_same(label: _Label) -> tuple[object, ...]:
    """Also which of the next passes have what they need without a gather: gradients are made the sooner for that, and
    may find less room. Of few layers there are labels enough for it."""
    return (*_alike(label), tuple(not ready_s for ready_s in label.ready_s))


def _beats(one: _Label, other: _Label) -> bool:
    """Whether one is nowhere later than another, and has no more gradients under way when its next pass begins."""
    if one.over_s > other.over_s or one.peak > other.peak or sum(one.freed) > sum(other.freed):
        return False
    if any(early > late for early, late in zip(one.free_s, other.free_s, strict=True)):
        return False
    if any(early > late for early, late in zip(one.ready_s, other.ready_s, strict=True)):
        return False
    if _in_flight_bytes(one) > _in_flight_bytes(other):
        return False
    ends = [end_s for end_s, _ in one.flying]
    others = [end_s for end_s, _ in other.flying][-len(ends) :] if ends else []
    others = [other.over_s] * (len(ends) - len(others)) + others
    return all(early <= late for early, late in zip(ends, others, strict=True))


def _in_flight_bytes(label: _Label) -> float:
    """Bytes of gradients whose scatters aren't over when the next pass could begin."""
    begin_s = max((label.over_s, *label.ready_s[:1]))
    return sum(size for end_s, size in label.flying if end_s > begin_s)


def _order_of(costs: Costs, label: _Label, most_scatters: int) -> Order:
    """The collectives of a label, and what holds back backward passes."""
    collectives: list[Collective] = []
    node: _Label | None = label
    while node is not None:
        if node.collective is not None:
            collectives.append(node.collective)
        node = node.parent
    collectives.reverse()
    holds, scatters = [0] * costs.layers, list[int]()
    for number, each in enumerate(collectives):
        if each.kind == Kind.SCATTER:
            scatters.append(number + 1)
            if each.first and len(scatters) > most_scatters:
                holds[each.first - 1] = scatters[-1 - most_scatters]
    return Order(tuple(collectives), tuple(holds))
