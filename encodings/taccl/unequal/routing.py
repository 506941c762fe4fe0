"""Routing of an ALLTOALLV: shares are cut into pieces, and each takes one of the paths that the fluid has found.

Pieces of large shares go first. Each takes the path on which it adds least to a high power of the loads of lanes, where
a message's alpha counts for as long as nothing else goes over that link. Then all choose again, some rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.taccl.unequal.fluid import Lanes, Path
from gapless.ir.amounts import pieces_of
from gapless.topologies.topology import Topology

__all__ = ["Piece", "pieces_by_share", "routed"]

_POWER = 12
"""Of a lane's load, in the price of taking it for longer."""


@dataclass(frozen=True)
class Piece:
    """`size_bytes` from `source` to `target`, along `path`; the piece is number `place` of its share."""

    source: int
    target: int
    place: int
    size_bytes: int
    path: Path


def pieces_by_share(pieces: Sequence[Piece], ranks: int) -> list[list[int]]:
    """The bytes of the pieces of each pair, in the order of `Amounts.rows`."""
    found: list[list[int]] = [[] for _ in range(ranks * ranks)]
    for piece in sorted(pieces, key=lambda piece: piece.place):
        found[piece.source * ranks + piece.target].append(piece.size_bytes)
    return found


def routed(
    topology: Topology,
    sent: Floats,
    paths: dict[tuple[int, int], list[Path]],
    largest_s: float,
    load_s: float,
    rounds: int,
) -> list[Piece]:
    """The pieces of all shares, none of which takes longer than `largest_s` on a link of its first path.

    `load_s`: about what the busiest lane carries in the end.
    """
    state = _Loads(topology, Lanes.of(topology), load_s)
    slots: list[tuple[int, int, int, int]] = []
    for (source, target), found in paths.items():
        size = int(sent[source, target])
        longest_s = size * float(topology.beta_s_per_byte[list(found[0])].max())
        count = max(1, int(np.ceil(longest_s / largest_s)))
        slots += [(source, target, place, part) for place, part in enumerate(pieces_of(size, count))]
    slots.sort(key=lambda slot: -slot[3])
    taken = [-1] * len(slots)
    for number in range(rounds):
        changed = False
        for k, (source, target, _, size) in enumerate(slots):
            choice = state.choice_of(paths[source, target], (source, target))
            if number:
                if len(choice.paths) == 1:
                    continue
                state.add(choice, taken[k], size, -1)
            best = state.best(choice, size)
            state.add(choice, best, size, 1)
            changed, taken[k] = changed or best != taken[k], best
        if not changed:
            break
    return [
        Piece(source, target, place, size, paths[source, target][path])
        for (source, target, place, size), path in zip(slots, taken, strict=True)
    ]


@dataclass(frozen=True)
class _Choice:
    """The paths of a pair; `lanes[c, k]`: the lanes of path c, `count` of all for none; `beta_s`: of bytes on each.

    `links[c, k]`, `alpha_s`: the link that lane is held for, and its alpha.
    """

    paths: list[Path]
    lanes: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    links: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    beta_s: Floats
    alpha_s: Floats


class _Loads:
    """How long lanes are held by all pieces so far, and by how many pieces links are used."""

    def __init__(self, topology: Topology, lanes: Lanes, top_s: float) -> None:
        self.topology, self.lanes, self.top_s = topology, lanes, top_s
        self.load_s = np.zeros(lanes.count + 1)
        self.users = np.zeros(len(topology.beta_s_per_byte) + 1, dtype=np.int64)
        self.choices: dict[tuple[int, int], _Choice] = {}

    def choice_of(self, paths: list[Path], pair: tuple[int, int]) -> _Choice:
        """The lanes of a pair's paths, as arrays."""
        if pair not in self.choices:
            held = [[(lane, link) for link in path for lane in self.lanes.of_link[link]] for path in paths]
            most, nothing = max(map(len, held)), (self.lanes.count, len(self.users) - 1)
            table = np.array([[*rows, *[nothing] * (most - len(rows))] for rows in held], dtype=np.int64)
            lanes, links = table[:, :, 0], table[:, :, 1]
            beta_s = np.append(self.topology.beta_s_per_byte, 0.0)[links]
            alpha_s = np.append(self.topology.alpha_s, 0.0)[links]
            self.choices[pair] = _Choice(paths, lanes, links, beta_s, alpha_s)
        return self.choices[pair]

    def best(self, choice: _Choice, size: int) -> int:
        """The path that adds least."""
        if len(choice.paths) == 1:
            return 0
        more_s = choice.beta_s * size + choice.alpha_s * (self.users[choice.links] == 0)
        top_s = max(float(self.load_s[:-1].max()), self.top_s)
        heat = ((self.load_s[choice.lanes] + more_s) / top_s) ** _POWER
        return int((more_s * (heat + 1e-3)).sum(axis=1).argmin())

    def add(self, choice: _Choice, number: int, size: int, sign: int) -> None:
        """Put a piece on a path, or take it away."""
        links = choice.paths[number]
        for link in links:
            before = self.users[link]
            self.users[link] += sign
            alpha_s = self.topology.alpha_s[link] if not before or not self.users[link] else 0.0
            more_s = sign * (size * self.topology.beta_s_per_byte[link] + alpha_s)
            for lane in self.lanes.of_link[link]:
                self.load_s[lane] += more_s
