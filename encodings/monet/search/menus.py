"""Menus: lists of options as arrays, and the choice of the fastest option that fits for many steps at once.

`StepMenus` has those of all steps of a plan: of forward nodes, of recomputations, and of backward nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.options import Option, again_options, backward_options, forward_options
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Menus", "StepMenus", "best_first"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Menus:
    """Menus by number, each with its options best first: every next one is slower and takes less workspace.

    `first_s`: the time of the first option; `limit_bytes`: its workspace, if there is another option. `least_bytes`:
    the workspace of the last one. Float, shape (menus,). An empty menu stands for a step that doesn't run.
    `limits_bytes`, `steps_s`: for each option but the last, the room below which it doesn't fit, and how much longer
    the next one takes, shape (options - 1, menus).
    """

    options: list[list[Option]]
    first_s: Floats
    limit_bytes: Floats
    least_bytes: Floats
    limits_bytes: Floats
    steps_s: Floats

    @classmethod
    def of(cls, options: list[list[Option]]) -> Menus:
        """Menus from the options of each, as `best_first` gives them."""
        shape = (max(1, max(len(menu) for menu in options) - 1), len(options))
        limits, steps_s = np.full(shape, -np.inf), np.zeros(shape)
        for number, menu in enumerate(options):
            for place, (option, slower) in enumerate(pairwise(menu)):
                limits[place, number] = option.workspace_bytes
                steps_s[place, number] = slower.duration_s - option.duration_s
        first_s = np.array([menu[0].duration_s if menu else 0.0 for menu in options])
        least = np.array([float(menu[-1].workspace_bytes) if menu else -np.inf for menu in options])
        return cls(options, first_s, limits[0].copy(), least, limits, steps_s)

    def pick(self, menus: Ints, room: Floats) -> Ints:
        """The number of the fastest option of each menu that fits its room; the last option where none fits."""
        return np.asarray((self.limits_bytes[:, menus] > room).sum(axis=0))

    def total(self, menus: Ints, room: Floats) -> tuple[float, float]:
        """The time of all picked options, and the most bytes that one lacks (0: all fit)."""
        cost_s = self.first_s[menus].sum()
        tight = (self.limit_bytes[menus] > room).nonzero()[0]
        if len(tight):
            rows = menus[tight]
            cost_s += (self.steps_s[:, rows] * (self.limits_bytes[:, rows] > room[tight])).sum()
        return float(cost_s), max(float((self.least_bytes[menus] - room).max()), 0.0)


def best_first(options: Iterable[Option]) -> list[Option]:
    """The options that can be the best for some room; of two that are alike the one in place."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.duration_s, not o.in_place, o.workspace_bytes, o.implementation)):
        if not kept or option.workspace_bytes < kept[-1].workspace_bytes:
            kept.append(option)
    return kept


class StepMenus:
    """Numbers the menus of one graph: which one a step picks from depends on whether it may run in place.

    `over`: int64, shape (nodes,): the input that a node may run in place over, or the number of nodes for none.
    """

    def __init__(self, graph: TrainingGraph, last_use: Sequence[int]) -> None:
        self._nodes = len(graph.forward)
        nodes = range(self._nodes)
        over = [_overwrites(graph, node, last_use) for node in nodes]
        self.over = np.array([self._nodes if place is None else place for place in over])
        first = [forward_options(graph, node) for node in nodes]
        may = [_out_of_place(first[node]) if over[node] is None else best_first(first[node]) for node in nodes]
        self._note_intermediates(graph, first, may)
        again = [again_options(graph, node) for node in nodes]
        backward = [backward_options(node) for node in graph.backward]
        most = max(len(node.variants) for node in graph.backward)
        menus = [*map(_out_of_place, first), *may, *map(_out_of_place, again), *again]
        self._first_variant = np.arange(len(backward)) * most + len(menus)
        menus += [[pick for pick in group if pick.variant == number] for group in backward for number in range(most)]
        self._nothing = len(menus)
        self._out_of_place = np.arange(self._nodes)
        self._no_tensor = np.ones(1, dtype=np.bool_)
        self.menus = Menus.of([*map(best_first, menus), []])

    def _note_intermediates(self, graph: TrainingGraph, first: list[list[Option]], may: list[list[Option]]) -> None:
        """An intermediate runs in place where its creator does: mostly known from what is kept, else from the room."""
        made = [node for node, op in enumerate(graph.forward) if op.creator is not None]
        self._made = np.array(made, dtype=np.int64)
        self._decisive = self.over.copy()  # the tensor which, if it is kept, makes a node run out of place
        wavering: list[tuple[int, int]] = []
        for node in made:
            over, creator = int(self.over[node]), graph.forward[node].creator
            if over == self._nodes or creator is None:
                continue
            self._decisive[node] = self.over[creator]
            in_place = {option.in_place for option in may[creator]}
            may[node] = _made_in_place(first[node], int(graph.output_bytes[over]))
            if in_place == {False}:
                may[node] = _out_of_place(first[node])
            elif len(in_place) == 2:
                wavering.append((node, creator))
        self._wavering = np.array(wavering, dtype=np.int64).reshape(-1, 2)

    def forward(self, kept: Mask, room: Floats) -> Ints:
        """The menu of each forward node, given what is kept and the room of each; an empty one if it doesn't run."""
        free = np.concatenate((~kept, self._no_tensor))
        menus: Ints = self._out_of_place + self._nodes * free[self._decisive]
        menus[self._made[free[self._made]]] = self._nothing
        if len(self._wavering):
            made, creator = self._wavering[kept[self._wavering[:, 0]]].T
            picks = self.menus.pick(menus[creator], room[creator]).tolist()
            chosen = [self.menus.options[menu][pick] for menu, pick in zip(menus[creator].tolist(), picks, strict=True)]
            menus[made] = made + self._nodes * np.array([option.in_place for option in chosen], dtype=np.int64)
        return menus

    def again(self, nodes: Ints, may: Mask) -> Ints:
        """The menus of recomputed nodes, and whether each `may` run in place."""
        return np.asarray(nodes + self._nodes * (2 + may))

    def backward(self, variant: Ints) -> Ints:
        """The menu of each backward node with its variant."""
        return np.asarray(self._first_variant + variant)


def _out_of_place(options: list[Option]) -> list[Option]:
    return [option for option in options if not option.in_place]


def _made_in_place(options: list[Option], over_bytes: int) -> list[Option]:
    """Options of an intermediate whose creator runs in place.

    The measured workspace in place gives back an input that the row doesn't hold any more: not a second time.
    """
    return [
        replace(option, workspace_bytes=option.workspace_bytes + over_bytes) for option in options if option.in_place
    ]


def _overwrites(graph: TrainingGraph, node: int, last_use: Sequence[int]) -> int | None:
    """The input that a node may run in place over, None if there is none: it must have no use after the node."""
    over = graph.forward[node].overwrites
    user = node if graph.forward[node].creator is None else graph.forward[node].creator
    return None if over is None or last_use[over] != user else over
