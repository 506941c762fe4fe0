"""Matching on the time-expanded graph: a free link takes chunks that its sender has and its receiver lacks.

As in TACOS (arXiv 2304.05301), event by event, with sums (backwards in time), shared ports, sketches, chunks that only
some ranks want, and groups: two hundred thousand sends a second. Of links that share ports, those whose receivers lack
most go first: else the same ranks would always come last, and be late. `State` is what changes in a try. States are
copied in between, so that another try can go on from there.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gapless.encodings.taccl.flow.network import Network

__all__ = ["PICKS", "Choice", "Release", "State", "construct", "start_of"]

Pick = Literal["any", "farthest", "rarest", "rarest and handed on"]
PICKS: tuple[Pick, ...] = ("any", "farthest", "rarest", "rarest and handed on")

_SAME_TIME = 1e-9
"""Events that differ by this share of their time happen at once: sums of the same terms in another order."""
_COPIES = 40
"""Copies of its states that a try makes."""
_FAIR = 1e-6
"""For each chunk that its receiver lacks a link counts as faster by this share: less than links differ by."""


@dataclass(frozen=True)
class Choice:
    """How a try chooses.

    `pick`: which of the chunks that a link may take: any by chance; one that has farthest to go from the receiver; one
    that most ranks lack; of those, one that most of the receiver's neighbours lack. `most[k]`: chunks that travel
    together on links of kind k, 0 where these are not used. `noise`: links that are free at once go fastest first, by
    times that differ by up to this share. `once`: a chunk comes into a bottleneck set once, but by sends that end by
    `spare_until_s`, or where nothing else is left. `waits`: how often a link that could take something waits for the
    next event, when there may be more to take along. `closed`: links that are not used unless nothing else is left.
    """

    most: tuple[int, ...]
    pick: Pick = "rarest"
    noise: float = 0.0
    once: bool = False
    spare_until_s: float = 0.0
    waits: float = 0.0
    closed: frozenset[int] = frozenset()

    def opens(self, network: Network) -> list[bool]:
        """Whether each link may be used."""
        return [self.most[kind] > 0 and link not in self.closed for link, kind in enumerate(network.kind)]

    def relaxed(self) -> Choice | None:
        """Without the first of its rules that may have left a rank without a chunk; None if there is none."""
        if self.waits:
            return replace(self, waits=0.0)
        if self.closed:
            return replace(self, closed=frozenset())
        return replace(self, once=False) if self.once else None


@dataclass(frozen=True)
class Release:
    """From when on chunks are at their owners (by bit), and clocks are free; seconds."""

    chunk_s: Sequence[float]
    clock_s: Sequence[float]


@dataclass
class State:
    """A try up to `now_s`.

    `have`, `need`: as in `Network`, now; `sending`: what each rank is sending, where it sends a chunk to one rank at a
    time. `outside[s]`: chunks that nobody sends into set s yet. `lacking[b]`: ranks that nobody sends chunk b yet;
    `left`: their sum; `by_lacking[n]`: the chunks that n ranks lack. `sends`: (start, end, link, bits). `events`: a
    heap of (end, send), -1 for clocks that become free by themselves. `arrivals`: (time, bit) of chunks that are still
    to come to their owners, soonest first.
    """

    now_s: float
    have: list[int]
    need: list[int]
    sending: list[int]
    outside: list[int]
    lacking: list[int]
    by_lacking: list[int]
    free_s: list[float]
    sends: list[tuple[float, float, int, tuple[int, ...]]]
    events: list[tuple[float, int]]
    arrivals: list[tuple[float, int]]
    left: int

    def copy(self) -> State:
        """Another state that goes on from here."""
        return State(
            self.now_s, self.have[:], self.need[:], self.sending[:], self.outside[:], self.lacking[:],
            self.by_lacking[:], self.free_s[:], self.sends[:], self.events[:], self.arrivals[:], self.left,
        )  # fmt: skip

    @property
    def makespan_s(self) -> float:
        """The end of the last send."""
        return max((send[1] for send in self.sends), default=0.0)


def start_of(network: Network, release: Release | None = None) -> State:
    """The state in which nothing has been sent."""
    by_lacking = [0] * (max(network.lacking) + 1)
    for bit, count in enumerate(network.lacking):
        by_lacking[count] |= 1 << bit
    have, free_s, arrivals = network.have[:], [0.0] * network.clock_count, list[tuple[float, int]]()
    if release is not None:
        have, free_s = [0] * len(have), list(release.clock_s)
        arrivals = sorted((at_s, bit) for bit, at_s in enumerate(release.chunk_s))
    return State(
        now_s=0.0, have=have, need=network.need[:], sending=[0] * len(have), outside=network.outside[:],
        lacking=network.lacking[:], by_lacking=by_lacking, free_s=free_s, sends=[],
        events=[(at_s, -1) for at_s in sorted({at_s for at_s in free_s if at_s > 0})],
        arrivals=arrivals, left=sum(network.lacking),
    )  # fmt: skip


def construct(
    network: Network, choice: Choice, chance: random.Random, state: State, limit_s: float, copies: list[State]
) -> bool:
    """Go on from a state until every rank is sent what it wants; False where no send that ends by `limit_s` is left.

    `copies` gets copies of the states in between, from the first on.
    """
    every = [link for links in network.links_of for link in links]
    noise = [1 + choice.noise * chance.random() for _ in every]
    urgency = [0.0] * len(network.source)
    for link, factor in zip(every, noise, strict=True):
        urgency[link] = factor * (network.alpha_s[link] + network.chunk_s[link])
    step, due, links = 1 + sum(network.lacking) // _COPIES, len(state.sends), every
    is_open, need, target = choice.opens(network), state.need, network.target
    while state.left:
        if len(state.sends) >= due:
            copies.append(state.copy())
            due = len(state.sends) + step
        links = [link for link in links if is_open[link]]
        if network.shares_clocks:
            links.sort(key=lambda link: urgency[link] * (1 - _FAIR * need[target[link]].bit_count()))
        else:
            links.sort(key=urgency.__getitem__)
        _serve(network, choice, chance, state, links, limit_s, choice.once)
        if choice.once and choice.spare_until_s > state.now_s:
            _serve(network, choice, chance, state, links, min(limit_s, choice.spare_until_s), once=False)
        if not state.left:
            break
        links = _advance(network, state)
        if not links:
            less = choice.relaxed()
            if less is None:
                return False
            choice, is_open, links = less, less.opens(network), every
    return True


def _serve(
    network: Network,
    choice: Choice,
    chance: random.Random,
    state: State,
    links: Iterable[int],
    limit_s: float,
    once: bool,
) -> None:
    """Start a send on every one of some links that is free, and may take something by `limit_s`."""
    source, target, clocks, may_pass, enters = (
        network.source, network.target, network.clocks, network.may_pass, network.enters
    )  # fmt: skip
    have, need, sending, outside, free_s, now_s = (
        state.have, state.need, state.sending, state.outside, state.free_s, state.now_s
    )  # fmt: skip
    for link in links:
        for clock in clocks[link]:
            if free_s[clock] > now_s:
                break
        else:
            rank = source[link]
            chunks = have[rank] & need[target[link]] & may_pass[link] & ~sending[rank]
            if chunks and once:
                for number in enters[link]:
                    chunks &= outside[number]
            if chunks and now_s + network.alpha_s[link] + network.chunk_s[link] <= limit_s:
                if choice.waits and chance.random() < choice.waits:
                    continue
                _send(network, choice, chance, state, link, chunks, limit_s)


def _send(
    network: Network, choice: Choice, chance: random.Random, state: State, link: int, chunks: int, limit_s: float
) -> None:
    """Start a send of as many of some chunks as the choice lets travel together, and as are over by `limit_s`."""
    source, target, chunk_s = network.source[link], network.target[link], network.chunk_s[link]
    need, lacking, by_lacking, want = state.need, state.lacking, state.by_lacking, network.want[target]
    most, end_s, bits, taken = choice.most[network.kind[link]], state.now_s + network.alpha_s[link], list[int](), 0
    while chunks and len(bits) < most and end_s + chunk_s <= limit_s:
        bit = _picked(network, choice.pick, chance, state, target, chunks)
        mask = 1 << bit
        bits.append(bit)
        chunks ^= mask
        taken |= mask
        end_s += chunk_s
        if want & mask:
            count = lacking[bit]
            lacking[bit] = count - 1
            by_lacking[count] ^= mask
            by_lacking[count - 1] |= mask
            state.left -= 1
    state.have[source] &= ~(taken & network.single)
    need[target] &= ~taken | network.single
    if network.one_at_a_time:
        state.sending[source] |= taken
    for number in network.enters[link]:
        state.outside[number] &= ~taken
    for clock in network.clocks[link]:
        state.free_s[clock] = end_s
    heapq.heappush(state.events, (end_s, len(state.sends)))
    state.sends.append((state.now_s, end_s, link, tuple(bits)))


def _picked(network: Network, pick: Pick, chance: random.Random, state: State, target: int, chunks: int) -> int:
    """One of some chunks, by its bit."""
    if pick == "farthest":
        for farthest in network.to_go[target]:
            if chunks & farthest:
                chunks &= farthest
                break
    elif pick != "any":
        by_lacking = state.by_lacking
        count = len(by_lacking) - 1
        while not chunks & by_lacking[count]:
            count -= 1
        chunks &= by_lacking[count]
        if pick == "rarest and handed on" and chunks & (chunks - 1):
            need, ends = state.need, network.target
            for link in network.links_of[target]:
                chunks = chunks & need[ends[link]] or chunks
    at = int(chance.random() * chunks.bit_length())
    above = chunks >> at  # the next bit from a place by chance on: the last is always there
    return at + (above & -above).bit_length() - 1


def _advance(network: Network, state: State) -> list[int]:
    """On to the next event: chunks have come, clocks are free. Returns the links to be looked at, none at the end."""
    events, arrivals, have, sending = state.events, state.arrivals, state.have, state.sending
    if not events and not arrivals:
        return []
    state.now_s = now_s = min(first[0][0] for first in (events, arrivals) if first)
    until_s, links = now_s * (1 + _SAME_TIME), set[int]()
    while events and events[0][0] <= until_s:
        state.now_s, number = heapq.heappop(events)
        if number < 0:
            links.update(link for some in network.links_of for link in some)
            continue
        _, _, link, bits = state.sends[number]
        target, came = network.target[link], 0
        for bit in bits:
            came |= 1 << bit
        have[target] |= came & ~(network.single & network.want[target])
        sending[network.source[link]] &= ~came
        links.update(network.next_links[link])
    while arrivals and arrivals[0][0] <= until_s:
        _, bit = arrivals.pop(0)
        have[network.owner[bit]] |= 1 << bit
        links.update(network.links_of[network.owner[bit]])
    return list(links)
