"""Pins: one operator has to be fast, and the search makes room for it.

A fast convolution may need gigabytes of workspace. It takes a dozen changes to make that much room, and none of them
gains anything before the last, so a search that minimises time never begins. On a graph where the operator has no
slower implementation, what is missing counts as passing the budget, and each change is worth something. Keep-sets of
that graph are keep-sets of the problem's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gapless.encodings.monet.decisions import Decisions, implementations_of
from gapless.encodings.monet.offload.keeper import keeper_of
from gapless.encodings.monet.parameters import Cooling
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.annealing import Annealing
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph

__all__ = ["Pin", "Pins", "pinned", "pins_of"]


@dataclass(frozen=True)
class Pin:
    """A node of the forward or the backward pass that may take no longer than `most_s`; it took `saved_s` more."""

    is_backward: bool
    node: int
    most_s: float
    saved_s: float

    @property
    def key(self) -> tuple[bool, int, float]:
        """What it is, whatever it saves."""
        return self.is_backward, self.node, self.most_s


class Pins:
    """Searches with one pin each, beside the one that `annealing` is for."""

    def __init__(self, problem: Problem, annealing: Annealing, cooling: Cooling) -> None:
        self._problem, self._annealing, self._cooling = problem, annealing, cooling
        self._searches: dict[tuple[bool, int, float], Annealing] = {}

    def round(self, steps: int, stop: Callable[[], bool]) -> KeepSet | None:
        """Rounds with a pin that is new to the best plan, the one that saves most, else where the cheapest plan is.

        Returns the best keep-set with that pin, None where there is none, or nothing that a pin could save.
        """
        best = self._annealing.best
        if best is None:
            return None
        search = self._begun(best.keep, best.outcome.cost_s)
        if search is not None:
            search.round(best.keep, steps, stop)
        else:
            fitting = [
                (other.best.outcome.cost_s, other) for other in self._searches.values() if other.best is not None
            ]
            search = min(fitting, key=lambda pair: pair[0], default=(0.0, None))[1]
        if search is None or search.best is None:
            return None
        search.round(search.best.keep, steps, stop, self._cooling.warm)
        return search.best.keep

    def _begun(self, keep: KeepSet, cost_s: float) -> Annealing | None:
        """A search with a pin that hasn't been tried and saves enough, None where there is no such pin."""
        graph = self._problem.graph
        pins = pins_of(graph, self._annealing.keeper.decide(keep))
        pins = [
            pin for pin in pins if pin.key not in self._searches and pin.saved_s > self._cooling.least_saved * cost_s
        ]
        if not pins:
            return None
        pin = max(pins, key=lambda pin: pin.saved_s)
        keeper = keeper_of(replace(self._problem, graph=pinned(graph, pin), starts=()))
        self._searches[pin.key] = self._annealing.of(keeper)
        return self._searches[pin.key]


def pins_of(graph: TrainingGraph, decisions: Decisions) -> list[Pin]:
    """The implementations that are faster than those of given decisions, in the forward and in the backward pass."""
    found: list[Pin] = []
    for number, node in enumerate(graph.backward):
        now_s = decisions.backward_run(graph, number).duration_s
        choices = node.variants[int(decisions.variant[number])].implementations
        found += [Pin(True, number, faster_s, now_s - faster_s) for faster_s in _faster(choices, now_s)]
    for number, forward in enumerate(graph.forward):
        if forward.creator is None:
            now_s = decisions.run(graph, 0, number).duration_s
            choices = implementations_of(graph, number, 0, bool(decisions.in_place[0, number]))
            found += [Pin(False, number, faster_s, now_s - faster_s) for faster_s in _faster(choices, now_s)]
    return found


def _faster(choices: tuple[Implementation, ...], now_s: float) -> list[float]:
    return sorted({impl.duration_s for impl in choices if impl.duration_s < now_s})


def pinned(graph: TrainingGraph, pin: Pin) -> TrainingGraph:
    """The graph in which the node has no slower implementation, where a variant or a kind of run has a fast one."""
    if pin.is_backward:
        backward = list(graph.backward)
        backward[pin.node] = _backward(backward[pin.node], pin.most_s)
        return replace(graph, backward=tuple(backward))
    forward = list(graph.forward)
    forward[pin.node] = _forward(forward[pin.node], pin.most_s)
    return replace(graph, forward=tuple(forward))


def _backward(node: BackwardNode, most_s: float) -> BackwardNode:
    fast = [replace(variant, implementations=_fast(variant.implementations, most_s)) for variant in node.variants]
    return replace(node, variants=tuple(fast))


def _forward(node: ForwardNode, most_s: float) -> ForwardNode:
    """Each implementation has its run out of place, its later runs and its run in place, which stay together."""
    kinds = [kind for kind in (node.implementations, node.in_place) if kind]
    fast = [
        place for place in range(len(node.implementations)) if min(kind[place].duration_s for kind in kinds) <= most_s
    ]

    def chosen(kind: tuple[Implementation, ...]) -> tuple[Implementation, ...]:
        return tuple(kind[place] for place in fast) if kind else kind

    return replace(
        node, implementations=chosen(node.implementations), again=chosen(node.again), in_place=chosen(node.in_place)
    )


def _fast(choices: tuple[Implementation, ...], most_s: float) -> tuple[Implementation, ...]:
    return tuple(impl for impl in choices if impl.duration_s <= most_s) or choices
