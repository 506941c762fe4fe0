"""Menus: the options of many nodes as arrays, and the choice of the fastest that fits for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.monet.ways import Option

__all__ = ["Choice", "Menu", "best_of", "menus_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NO_OPTION = Option(0.0, 2**62, 0)
"""Stands where a node has no option of a kind; it never fits."""


@dataclass
class Choice:
    """One option a row: its number on the menu, whether in place, its time, and the bytes that it lacks (0: fits)."""

    pick: Ints
    in_place: Mask
    duration_s: Floats
    lack: Floats

    @classmethod
    def empty(cls, count: int) -> Choice:
        """`count` rows still to be put."""
        return cls(np.zeros(count, np.int64), np.zeros(count, np.bool_), np.zeros(count), np.zeros(count))

    def put(self, rows: Ints | Mask, other: Choice) -> None:
        """Take over the rows of another choice."""
        self.pick[rows], self.in_place[rows] = other.pick, other.in_place
        self.duration_s[rows], self.lack[rows] = other.duration_s, other.lack

    def at(self, rows: Ints | Mask) -> Choice:
        """Some rows."""
        return Choice(self.pick[rows], self.in_place[rows], self.duration_s[rows], self.lack[rows])

    def ways(self, menus: dict[bool, Menu], nodes: Ints) -> Ints:
        """The number of the chosen way among the node's own."""
        rows = zip(nodes.tolist(), self.pick.tolist(), self.in_place.tolist(), strict=True)
        return np.array([menus[flag].options[node][pick].way for node, pick, flag in rows], dtype=np.int64)


@dataclass(frozen=True)
class Menu:
    """Options of many nodes, fastest first: float, shape (nodes, options), padded with options that never fit."""

    duration_s: Floats
    workspace_bytes: Floats
    options: list[list[Option]]

    @classmethod
    def of(cls, options: list[list[Option]]) -> Menu:
        """A menu from a list of options per node, each with at least one."""
        width = max(len(its) for its in options)
        duration_s, workspace = np.zeros((len(options), width)), np.full((len(options), width), np.inf)
        for node, its in enumerate(options):
            duration_s[node, : len(its)] = [option.duration_s for option in its]
            workspace[node, : len(its)] = [option.workspace_bytes for option in its]
        return cls(duration_s, workspace, options)

    def choose(self, nodes: Ints, room: Floats) -> Choice:
        """For each node the fastest option that fits its room; where none fits, the one with the least workspace."""
        workspace = self.workspace_bytes[nodes]
        fits = workspace <= room[:, None]
        pick = np.where(fits.any(axis=1), fits.argmax(axis=1), workspace.argmin(axis=1))
        lack = np.maximum(workspace[np.arange(len(nodes)), pick] - room, 0.0)
        return Choice(pick, np.zeros(len(nodes), dtype=np.bool_), self.duration_s[nodes, pick], lack)


def menus_of(options: list[list[Option]]) -> dict[bool, Menu]:
    """Two menus: the options out of place (False) and in place (True)."""
    return {
        flag: Menu.of([[option for option in its if option.in_place == flag] or [_NO_OPTION] for its in options])
        for flag in (False, True)
    }


def best_of(menus: dict[bool, Menu], nodes: Ints, room: Floats, may: Mask, must: bool = False) -> Choice:
    """The better of the best options out of place and, where a node `may`, in place; in place in any case if `must`."""
    choice = menus[False].choose(nodes, room)
    rows = np.flatnonzero(may)
    if len(rows):
        other = menus[True].choose(nodes[rows], room[rows])
        other.in_place[:] = True
        less, same = other.lack < choice.lack[rows], other.lack == choice.lack[rows]
        better = np.full(len(rows), True) if must else less | (same & (other.duration_s <= choice.duration_s[rows]))
        choice.put(rows[better], other.at(better))
    return choice
