"""Link and Links: a directed link for people, all links of a machine in columns. LinkBuilder collects blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError

__all__ = ["MOST_LINKS", "Link", "LinkBuilder", "Links", "refuse_too_many"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class Link:
    """A directed link. Moving `n` bytes takes `alpha_s + beta_s_per_byte * n` and holds the link and its `resources`.

    `resources` are numbers into `Topology.resources`: a switch side, a NIC side, an uplink.
    """

    source: int
    target: int
    alpha_s: float
    beta_s_per_byte: float
    resources: tuple[int, ...] = ()

    def duration_s(self, size_bytes: float) -> float:
        """Time to move that many bytes in one transfer."""
        return self.alpha_s + self.beta_s_per_byte * size_bytes


class Links(Sequence[Link]):
    """Links in columns, read-only; a row is made into a `Link` when somebody asks for it.

    `source`, `target`: int64 of shape (links,). `alpha_s`, `beta_s_per_byte`: float of the same shape. Link k holds the
    resources `held[held_start[k]:held_start[k + 1]]`, int64 (CSR), each once. Equal to any sequence of the same links.
    Raises `InputError` for columns that don't fit each other.
    """

    def __init__(
        self,
        source: NDArray[np.int64],
        target: NDArray[np.int64],
        alpha_s: NDArray[np.float64],
        beta_s_per_byte: NDArray[np.float64],
        held_start: NDArray[np.int64] | None = None,
        held: NDArray[np.int64] | None = None,
    ) -> None:
        count = len(source)
        self.source = _frozen(np.asarray(source, dtype=np.int64))
        self.target = _frozen(np.asarray(target, dtype=np.int64))
        self.alpha_s = _frozen(np.asarray(alpha_s, dtype=np.float64))
        self.beta_s_per_byte = _frozen(np.asarray(beta_s_per_byte, dtype=np.float64))
        held_start = np.zeros(count + 1, dtype=np.int64) if held_start is None else held_start
        self.held_start = _frozen(np.asarray(held_start, dtype=np.int64))
        self.held = _frozen(np.empty(0, dtype=np.int64) if held is None else np.asarray(held, dtype=np.int64))
        if not count == len(self.target) == len(self.alpha_s) == len(self.beta_s_per_byte) == len(self.held_start) - 1:
            raise InputError(f"links: all columns must have {count} entries, as source has (held_start one more)")
        ends = self.held_start
        if ends[0] != 0 or ends[-1] != len(self.held) or (np.diff(ends) < 0).any():
            raise InputError(f"links: held_start must rise from 0 to {len(self.held)}, the length of held")

    @classmethod
    def of(cls, links: Iterable[Link]) -> Links:
        """Columns of any links; those that already are columns are taken as they are."""
        if isinstance(links, cls):
            return links
        rows = list(links)
        held = [tuple(dict.fromkeys(link.resources)) for link in rows]  # named twice, it is still held once
        return cls(
            np.array([link.source for link in rows], dtype=np.int64),
            np.array([link.target for link in rows], dtype=np.int64),
            np.array([link.alpha_s for link in rows], dtype=np.float64),
            np.array([link.beta_s_per_byte for link in rows], dtype=np.float64),
            np.cumsum([0, *map(len, held)], dtype=np.int64),
            np.array([resource for held_by_one in held for resource in held_by_one], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.source)

    @overload
    def __getitem__(self, number: int) -> Link: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Link, ...]: ...

    def __getitem__(self, number: int | slice) -> Link | tuple[Link, ...]:
        if isinstance(number, slice):
            return tuple(self[k] for k in range(*number.indices(len(self))))
        if not -len(self) <= number < len(self):
            raise IndexError(f"link {number} of {len(self)}")
        row = int(number) % len(self)
        return Link(
            int(self.source[row]),
            int(self.target[row]),
            float(self.alpha_s[row]),
            float(self.beta_s_per_byte[row]),
            tuple(self.held[self.held_start[row] : self.held_start[row + 1]].tolist()),
        )

    def __iter__(self) -> Iterator[Link]:
        start, held = self.held_start.tolist(), self.held.tolist()
        columns = (self.source.tolist(), self.target.tolist(), self.alpha_s.tolist(), self.beta_s_per_byte.tolist())
        for number, row in enumerate(zip(*columns, strict=True)):
            yield Link(*row, tuple(held[start[number] : start[number + 1]]))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Links):
            pairs = zip(self._columns(), other._columns(), strict=True)
            return all(np.array_equal(mine, others) for mine, others in pairs)
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(column.tobytes() for column in self._columns()))

    def __repr__(self) -> str:
        return f"Links({len(self)})" if len(self) > 8 else f"Links.of({list(self)})"

    def part(self, rows: Sequence[int] | NDArray[np.int64]) -> Links:
        """Some of the links, in this order."""
        chosen = np.asarray(rows, dtype=np.int64)
        lengths = np.diff(self.held_start)[chosen]
        start = np.append(0, np.cumsum(lengths))
        held = self.held[np.arange(start[-1]) + np.repeat(self.held_start[chosen] - start[:-1], lengths)]
        ends = (self.source[chosen], self.target[chosen])
        return Links(*ends, self.alpha_s[chosen], self.beta_s_per_byte[chosen], start, held)

    def check(self, device_count: int, resource_count: int) -> None:
        """Raises `InputError` for the first link whose ends, costs or resources are out of range."""
        outside = ~(_within(self.source, device_count) & _within(self.target, device_count))
        self._refuse(outside, f"both ends must be in 0..{device_count - 1}")
        self._refuse(self.source == self.target, "the ends must differ")
        for field in ("alpha_s", "beta_s_per_byte"):
            value: NDArray[np.float64] = getattr(self, field)
            self._refuse(~((value >= 0) & (value < math.inf)), f"{field} must be finite and >= 0", value)
        holder = np.repeat(np.arange(len(self)), np.diff(self.held_start))
        stray = np.flatnonzero(~_within(self.held, resource_count))
        if len(stray):
            rule = f"resources must be in 0..{resource_count - 1}, got {self.held[stray[0]]}"
            raise InputError(f"link {self.source[holder[stray[0]]]} -> {self.target[holder[stray[0]]]}: {rule}")
        uses = np.sort(holder * max(resource_count, 1) + self.held)
        twice = uses[1:][uses[1:] == uses[:-1]]
        if len(twice):
            link, resource = divmod(int(twice[0]), resource_count)
            ends = f"link {self.source[link]} -> {self.target[link]}"
            raise InputError(f"{ends}: resources must differ, got {resource} twice")

    def _refuse(self, broken: NDArray[np.bool_], rule: str, value: NDArray[np.float64] | None = None) -> None:
        if broken.any():
            k = int(np.argmax(broken))
            got = "" if value is None else f", got {float(value[k])}"
            raise InputError(f"link {self.source[k]} -> {self.target[k]}: {rule}{got}")

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        return self.source, self.target, self.alpha_s, self.beta_s_per_byte, self.held_start, self.held


def _frozen(values: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The same values, read-only."""
    column = values.view()
    column.flags.writeable = False
    return column


def _within(numbers: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    return np.asarray((numbers >= 0) & (numbers < count))


MOST_LINKS = 4_000_000
"""More links than any solver here can use; they would take half a gigabyte."""


class LinkBuilder:
    """Collects blocks of links. Resources have keys (any numbers >= 0) until `finish` numbers those in use."""

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[np.generic], ...]] = []
        self._next_key = 0

    def keys(self, count: int) -> int:
        """The first of `count` new consecutive resource keys."""
        first = self._next_key
        self._next_key += count
        return first

    def add(
        self,
        source: NDArray[np.int64],
        target: NDArray[np.int64],
        alpha_s: NDArray[np.float64] | float,
        beta_s_per_byte: NDArray[np.float64] | float,
        keys: NDArray[np.int64] | None = None,
    ) -> None:
        """A block of links: ends and costs of shape (block,) or scalars; `keys`, (block, held), has -1 for none."""
        count = len(source)
        keys = np.empty((count, 0), dtype=np.int64) if keys is None else keys
        costs = (np.broadcast_to(cost, (count,)) for cost in (alpha_s, beta_s_per_byte))
        self._blocks.append((source, target, *costs, (keys >= 0).sum(axis=1), keys[keys >= 0]))

    def finish(self) -> tuple[Links, NDArray[np.int64]]:
        """The links, and the keys of the resources that they hold; resources are numbered in order of first use."""
        if not self._blocks:
            return Links.of(()), np.empty(0, dtype=np.int64)
        source, target, alpha_s, beta_s_per_byte, lengths, keys = (
            np.concatenate(column) for column in zip(*self._blocks, strict=True)
        )
        used, first, number = np.unique(keys, return_index=True, return_inverse=True)
        by_first_use = np.argsort(first)
        rank = np.empty(len(used), dtype=np.int64)
        rank[by_first_use] = np.arange(len(used))
        held_start = np.concatenate([[0], np.cumsum(lengths)])
        links = Links(source, target, alpha_s, beta_s_per_byte, held_start, rank[number.reshape(-1)])
        return links, used[by_first_use]


def refuse_too_many(what: str, links: int, way_out: str) -> None:
    """Raises `InputError` where a machine would have more than `MOST_LINKS` links."""
    if links > MOST_LINKS:
        raise InputError(f"{what}: must have at most {MOST_LINKS:,} links, would have {links:,}; {way_out}")
