"""Menus: lists of options as arrays, and the choice of the fastest option that fits for many steps at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.implementations import Option

__all__ = ["Menus", "best_first"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
        shape = (max(1, max(len(its) for its in options) - 1), len(options))
        limits, steps_s = np.full(shape, -np.inf), np.zeros(shape)
        for number, its in enumerate(options):
            for place, (option, slower) in enumerate(pairwise(its)):
                limits[place, number] = option.workspace_bytes
                steps_s[place, number] = slower.duration_s - option.duration_s
        first_s = np.array([its[0].duration_s if its else 0.0 for its in options])
        least = np.array([float(its[-1].workspace_bytes) if its else -np.inf for its in options])
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
    for option in sorted(
        options, key=lambda its: (its.duration_s, not its.in_place, its.workspace_bytes, its.implementation)
    ):
        if not kept or option.workspace_bytes < kept[-1].workspace_bytes:
            kept.append(option)
    return kept
