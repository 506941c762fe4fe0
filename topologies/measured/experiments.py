"""Experiments: flows that are timed, of single links, and of links at once, whether they slow each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gapless.array_types import Floats

__all__ = ["Experiments", "Flow", "OutOfTimeError", "Prober", "Sample", "Settings", "lowest_agreed"]


@dataclass(frozen=True)
class Flow:
    """`chunks` chunks of `size_bytes` from a rank to another: all `at_once`, or each once the last was acknowledged.

    Time ends when the last is acknowledged, by an empty message. `warm_bytes` go first: they use up what a shaped
    network lets pass in a burst, and open a connection's window. Time then begins when they are acknowledged. Chunks
    that go at once follow them without a pause, so that no latency is in their time.
    """

    source: int
    target: int
    chunks: int
    size_bytes: int
    at_once: bool
    warm_bytes: int = 0

    @property
    def latencies(self) -> int:
        """How often alpha is in the time: there and back, whenever something is acknowledged."""
        return 2 * (not self.follows) if self.at_once else 2 * self.chunks

    @property
    def follows(self) -> bool:
        """Whether what is timed comes right behind the warm part."""
        return self.at_once and self.warm_bytes > 0

    @property
    def sent_bytes(self) -> int:
        """What is timed."""
        return self.chunks * self.size_bytes


class Prober(Protocol):
    """Carries out flows between the ranks of a machine."""

    @property
    def rank_count(self) -> int:
        """The number of ranks."""

    def time(self, flows: Sequence[Flow]) -> Floats:
        """Seconds that each flow takes, all begun together once all are warm: float, shape (flows,)."""


@dataclass(frozen=True)
class Sample:
    """What a flow took that was alone in the machine."""

    flow: Flow
    time_s: float


Pair = tuple[int, int]

_WITHIN = (1.33, 1.1)
"""Two measurements agree within these factors: of alpha, which varies more, and of beta."""
_LEAST_LARGE = 2**17
"""Bytes of a large message, at least: more than what goes through a network as one piece, or passes in a burst."""
_JOINT_SPANS = 2
"""Flows at once last so many times as long as others: what passes in a burst is then a small part of them."""
_FIRST = 2**14
"""Bytes of the first message over a link that nothing is known of; twice as many go before it."""
_GROWTH = 8
"""A message has at most so many times the bytes of those before it on its link: a sender that was held up finds the
acknowledgements of two messages at once, and the time between them too short by any factor.
"""
_SCAN_SHARE = 0.5
"""Of the time, after which no pair is measured once more for the structure; every pair is measured once."""
_NEEDED = 2.5
"""So many times as long as once over every pair may it take until the structure is known."""
_SMALL = 8
"""Bytes of the smallest message: so few that it takes alpha alone, also where a network lets them pass unshaped."""


class OutOfTimeError(Exception):
    """The time is over, or somebody stops the profiler: what is known by now is what there is."""


@dataclass(frozen=True)
class Settings:
    """How to measure.

    `sizes`: of chunks, bytes; without any, 8 bytes, and what a link carries in `span_s`, half and a quarter of that.
    `span_s`: about what a flow of the profiler's own choice takes. `small_chunks`: so many of the smallest chunks go in
    turn. `warm_bytes`: go before what is timed, at most. `scans`: how often every pair is measured for the structure,
    if two agree. `tries`: how often links that seem to slow each other are tried. `precision`: the half of an
    interval, as a share of the cost, that is small enough. `most_samples`: of a class of links.
    """

    sizes: tuple[int, ...] = ()
    span_s: float = 0.025
    small_chunks: int = 10
    warm_bytes: int = 2**17
    scans: int = 2
    tries: int = 3
    precision: float = 0.03
    most_samples: int = 200


@dataclass
class Experiments:
    """The experiments on a machine, and what they found.

    `samples`: those of flows that were alone, by pair. `count`: experiments so far. `left_s`: seconds until all has to
    end, 0 once somebody stops it. No flow begins of which it is known that it ends later.
    """

    prober: Prober
    settings: Settings
    left_s: Callable[[], float] = lambda: math.inf
    samples: dict[Pair, list[Sample]] = field(default_factory=dict)
    count: int = 0
    joint: int = 0
    _kept_s: float = 0.0

    @contextmanager
    def at_most(self, share: float) -> Iterator[None]:
        """Within the block, only this share of the time that is left may be used."""
        before_s, left_s = self._kept_s, self._remaining_s()
        self._kept_s += (1 - share) * left_s if left_s < math.inf else 0.0
        try:
            yield
        finally:
            self._kept_s = before_s

    def needed_s(self, taken_s: float) -> float:
        """About how long it takes until the structure is known, by how far it is after `taken_s`."""
        ranks = self.prober.rank_count
        return _NEEDED * taken_s * ranks * (ranks - 1) / max(len(self.samples), 1)

    def alone(self, flow: Flow, beta: float = 0.0) -> float:
        """Seconds that a flow takes by itself, where a byte takes about `beta`."""
        (time_s,) = self._time([flow], beta * (flow.sent_bytes + flow.warm_bytes))
        self.samples.setdefault((flow.source, flow.target), []).append(Sample(flow, time_s))
        return float(time_s)

    def scan(self) -> tuple[Floats, Floats]:
        """Alpha and beta of every ordered pair, roughly: float, shape (ranks, ranks), nan on the diagonal.

        The lowest that another one agrees with: a pair for which no two agree is measured again, up to three times.
        Half of the time is for this; where links are so slow that it is over before, some pairs are measured once.
        """
        ranks = self.prober.rank_count
        found: dict[Pair, list[tuple[float, float]]] = {}
        ends_with_s = (1 - _SCAN_SHARE) * self._remaining_s()
        for number in range(self.settings.scans + 3):
            for pair in _spread_out(ranks):
                if number and self._remaining_s() < ends_with_s:
                    break
                if number < self.settings.scans or not _agree(found[pair]):
                    found.setdefault(pair, []).append(self._rough(pair, found.get(pair, [])))
        costs = np.full((2, ranks, ranks), np.nan)
        for pair, rows in found.items():
            for cost, column, within in zip(costs, np.transpose(rows), _WITHIN, strict=True):
                lowest = lowest_agreed(column, within)
                cost[pair] = np.median(column) if lowest is None else lowest
        return costs[0], costs[1]

    def _rough(self, pair: Pair, before: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Alpha of some small messages in turn, beta of a large one."""
        beta = max(found for _, found in before) if before else self._first(pair)
        small, large = self._sizes(pair, beta)
        few = Flow(*pair, self.settings.small_chunks, small, at_once=False)
        alpha_s = max(self.alone(few) / few.latencies - small * beta / 2, 0.0)
        return alpha_s, self.alone(Flow(*pair, 1, large, at_once=True, warm_bytes=self._warm(beta)), beta) / large

    def _first(self, pair: Pair) -> float:
        """Beta by messages that grow until one is large enough for the beta that it shows itself."""
        beta, size = 0.0, _FIRST
        while True:
            beta = self.alone(Flow(*pair, 1, size, at_once=True, warm_bytes=2 * _FIRST), beta) / size
            if self.settings.sizes or _large(self.settings.span_s / beta) <= _GROWTH * size:
                return beta
            size *= _GROWTH

    def _sizes(self, pair: Pair, beta: float) -> tuple[int, int]:
        """The smallest and the largest chunk to send over a link."""
        if self.settings.sizes:
            return min(self.settings.sizes), max(self.settings.sizes)
        return _SMALL, self._grown(pair, _large(self.settings.span_s / beta))

    def _grown(self, pair: Pair, size: int) -> int:
        """The size, or what is allowed after the messages that the link has carried."""
        return min(size, _GROWTH * max(each.flow.sent_bytes for each in self.samples[pair]))

    def _warm(self, beta: float) -> int:
        """What goes first over a link: no more than takes four times as long as what is timed."""
        return min(self.settings.warm_bytes, _whole_size(4 * self.settings.span_s / beta))

    def more(self, pair: Pair, beta: float, number: int) -> None:
        """One more flow over a link, alone: the next of its design, which is gone through again and again."""
        designed = self._design(pair, beta)
        size, chunks, at_once = designed[number % len(designed)]
        self.alone(Flow(*pair, chunks, size, at_once, self._warm(beta) if size > designed[0][0] else 0), beta)

    def _design(self, pair: Pair, beta: float) -> list[tuple[int, int, bool]]:
        """Sizes, numbers of chunks, and whether they go at once, the smallest in turn first.

        Many of the smallest chunks go in turn only: at once they would measure what each costs its sender.
        """
        small, large = self._sizes(pair, beta)
        rows = [(small, self.settings.small_chunks, False)]
        for size in self.settings.sizes or (large, large // 2, large // 4):
            counts = [chunks for chunks in (1, 2, 4) if chunks == 1 or chunks * size <= large]
            rows += [(size, chunks, at_once) for chunks in counts for at_once in (False, True) if size > small]
        return rows

    def together(self, groups: Sequence[Sequence[Pair]], alpha_s: Floats, beta: Floats) -> Floats:
        """Groups of links used at once: how many times as long as it would be alone the last flow of each takes.

        Each flow alone takes about as long as the others. What one of two that share something is held up by doesn't
        depend on how fairly it is shared. Groups are taken to disturb each other by nothing. Float, shape (groups,).
        """
        flows, alone_s = [], []
        for group in groups:
            span_s = max(_JOINT_SPANS * self.settings.span_s, _LEAST_LARGE * max(beta[pair] for pair in group))
            for pair in group:
                size = self._grown(pair, _whole_size(span_s / beta[pair]))
                flows.append(Flow(*pair, 1, size, at_once=True))
                alone_s.append(2 * alpha_s[pair] + size * beta[pair])
        self.joint += 1
        times_s = self._time(flows, max(alone_s))
        ends = np.cumsum([len(group) for group in groups])
        parts = zip(np.split(times_s, ends[:-1]), np.split(np.array(alone_s), ends[:-1]), strict=True)
        return np.array([taken.max() / alone.max() for taken, alone in parts])

    def shared_s(self, pairs: Sequence[Pair], alpha_s: Floats, beta: Floats) -> float:
        """Seconds for each byte over links that are used at once, each with an even share of a message's bytes."""
        sizes = [
            max(_large(_JOINT_SPANS * self.settings.span_s / beta[pair]) // len(pairs) // 1024, 1) * 1024
            for pair in pairs
        ]
        flows = [Flow(*pair, 1, size, at_once=True) for pair, size in zip(pairs, sizes, strict=True)]
        times_s = self._time(flows, max(size * beta[pair] for pair, size in zip(pairs, sizes, strict=True)))
        return float(max(times_s - [2 * alpha_s[pair] for pair in pairs]) / sum(sizes))

    def _remaining_s(self) -> float:
        return self.left_s() - self._kept_s

    def _time(self, flows: list[Flow], least_s: float) -> Floats:
        """What flows take that take at least so long. Raises `OutOfTimeError` where there is no time for them."""
        if self._remaining_s() <= least_s:
            raise OutOfTimeError
        self.count += 1
        return self.prober.time(flows)


def _agree(rows: Sequence[tuple[float, float]]) -> bool:
    """Whether two of the alphas agree, and two of the betas."""
    pairs = zip(np.transpose(rows), _WITHIN, strict=True)
    return all(lowest_agreed(column, within) is not None for column, within in pairs)


def lowest_agreed(values: Floats, within: float) -> float | None:
    """The lowest value that another one is within a factor of, above it; None where there is none."""
    ordered = np.sort(values)
    close = np.flatnonzero(ordered[1:] <= within * ordered[:-1])
    return float(ordered[close[0]]) if len(close) else None


def _whole_size(size: float) -> int:
    """A size to send: whole kilobytes, from 16 KiB to 1 GiB."""
    return int(np.clip(size // 1024, 16, 2**20)) * 1024


def _large(size: float) -> int:
    """A size to send that says what a byte costs."""
    return max(_whole_size(size), _LEAST_LARGE)


def _spread_out(ranks: int) -> list[Pair]:
    """All ordered pairs, so that one rank isn't busy for long."""
    return [(source, (source + step) % ranks) for step in range(1, ranks) for source in range(ranks)]
