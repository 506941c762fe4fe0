"""Ranges: which candidate, with how many instances, serves which sizes, and where one hands over to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gapless.encodings.taccl.sweep.candidates import Candidate, Times

__all__ = ["Choice", "Range", "choose", "to_ranges"]

_BISECTIONS = 8

Choice = tuple[Candidate, int]
"""A candidate and its number of instances."""


@dataclass(frozen=True)
class Range:
    """`choice` serves buffers from `min_bytes` on, below `max_bytes`, 0 for no limit; `sizes_bytes` were asked for.

    One range's `max_bytes` is the next one's `min_bytes`. The original runtime takes that size for the next range, the
    executor for both, of which the first file by name has it; where both programs cut their buffers into more than one
    chunk by a common number, it is a size that neither takes.
    """

    choice: Choice
    sizes_bytes: tuple[int, ...]
    min_bytes: int
    max_bytes: int


def choose(
    sizes_bytes: Sequence[int],
    choices: Sequence[Sequence[Choice]],
    times: Times,
    tolerance: float,
    can_be: Callable[[Choice], bool],
) -> list[Choice]:
    """For each size one of its choices within the tolerance of the fastest that `can_be`, with the fewest changes.

    From the least size on, the choice that serves most sizes in a row, and of those the fastest there. A size that has
    none takes its neighbour's; empty where no size has any.
    """
    good = [_good(size, some, times, tolerance, can_be) for size, some in zip(sizes_bytes, choices, strict=True)]
    if not any(good):
        return []
    served = next(some for some in good if some)
    for place, some in enumerate(good):
        served = good[place] = some or served
    chosen: list[Choice] = []
    while len(chosen) < len(good):
        reach = {choice: _reach(choice, good, len(chosen)) for choice in good[len(chosen)]}
        furthest = max(reach.values())
        best = next(choice for choice in reach if reach[choice] == furthest)  # ascending in time
        chosen += [best] * (furthest - len(chosen))
    return chosen


def _good(
    size_bytes: int,
    choices: Sequence[Choice],
    times: Times,
    tolerance: float,
    can_be: Callable[[Choice], bool],
) -> list[Choice]:
    """The choices within the tolerance of the fastest, that first; of equals the first given."""
    order = sorted(choices, key=lambda choice: times.makespan_s(choice[0], size_bytes, choice[1]))
    good: list[Choice] = []
    limit_s = math.inf
    for choice in order:
        time_s = times.makespan_s(choice[0], size_bytes, choice[1])
        if time_s > limit_s:
            break
        if can_be(choice):
            limit_s = min(limit_s, time_s * (1 + max(tolerance, 1e-12)))
            good.append(choice)
    return good


def _reach(choice: Choice, good: list[list[Choice]], place: int) -> int:
    """The first place from `place` on where the choice is not good any more."""
    while place < len(good) and choice in good[place]:
        place += 1
    return place


def to_ranges(sizes_bytes: Sequence[int], chosen: Sequence[Choice], times: Times) -> list[Range]:
    """Neighbouring sizes of one choice together; the first range begins at 0 and the last has no end."""
    starts = [k for k in range(len(chosen)) if k == 0 or chosen[k] != chosen[k - 1]]
    borders = [0, *(_border(sizes_bytes, chosen, k, times) for k in starts[1:]), 0]
    stops = [*starts[1:], len(chosen)]
    return [
        Range(chosen[start], tuple(sizes_bytes[start:stop]), borders[number], borders[number + 1])
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
    ]


def _border(sizes_bytes: Sequence[int], chosen: Sequence[Choice], place: int, times: Times) -> int:
    """Where the choice before `place` begins to be slower than the one there: by bisection between the two sizes."""
    before, after = chosen[place - 1], chosen[place]
    low, high = sizes_bytes[place - 1], sizes_bytes[place]
    for _ in range(_BISECTIONS):
        middle = math.isqrt(low * high)
        if middle in (low, high):
            break
        if times.makespan_s(after[0], middle, after[1]) <= times.makespan_s(before[0], middle, before[1]):
            high = middle
        else:
            low = middle
    return _between_multiples(sizes_bytes[place - 1], sizes_bytes[place], high, before, after)


def _between_multiples(least: int, most: int, wanted: int, before: Choice, after: Choice) -> int:
    """A number near the wanted one, in least + 1 .. most, that is no multiple of what both cut their buffers into."""
    step = math.gcd(before[0].chunks * before[1], after[0].chunks * after[1])
    found = wanted // step * step + 1
    for border in (found, found + step, found - step):
        if least < border <= most:
            return border
    return max(least + 1, min(wanted, most))
