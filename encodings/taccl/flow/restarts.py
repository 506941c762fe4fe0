"""Matching with restarts: many randomised constructions on the time-expanded graph, and the best of them rebuilt.

A try begins anew, or goes on from a moment of the best plan so far: with other rules, other groups, and other chances
from there on. It must end sooner than the best by a little, so that slow links take nothing that would end later, and
fast ones get it. Where sums are spread in a second phase, each starts when it is complete, and each link once the first
phase is done with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import find_bottleneck_sets
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import Candidate, checked
from gapless.encodings.taccl.chunked import MOST_PAIRS, Chunked, Phase
from gapless.encodings.taccl.flow.network import Network, Ports, closed_links, contested_ports, network_of
from gapless.encodings.taccl.flow.phases import PhaseSearch, search_phases
from gapless.encodings.taccl.flow.time_expanded import (
    PICKS,
    Choice,
    Release,
    State,
    construct,
    start_of,
)
from gapless.encodings.taccl.ordering.sends import lowered
from gapless.encodings.taccl.parameters import Matching
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.encodings.taccl.symmetry.quotient import Columns, QuotientProblem, quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.options import Deadline, SolveOptions

__all__ = ["matched_plan", "may_be_matched"]

_DEFAULTS = Matching()
_MOST_NEIGHBOURS = 4_000_000
"""Pairs of links that share a port above which looking at all of them takes longer than anything else."""
_QUICK_SHARE = 0.2
"""Of the work with symmetry, where a plan is to be quick: one send stands for many."""
_FEW_ALIKE = 10
"""Every chunk is planned by itself as well where there is work for so many tries."""
_ALPHA_SHARE = 0.02
"""Of a chunk's time on its link; where no latency is more, sharing it is worth nothing."""
_LOOK = 0.05
"""How much work it is to look at a link, as a share of a send."""
_FEW_KINDS = 4
"""Of so many kinds of links, each is left out in one of the first tries."""
_SHORTER = (1e-9, 0.003, 0.01)
"""By what share a try must be shorter than the best: little finds more often, much finds more."""
_NOISE = (0.0, 0.5)
_WAITS = (0.0, 0.0, 0.1, 0.3)
_SPARE = (0.0, 0.8, 0.9, 0.95, 1.0)
"""Until when a chunk may come into a bottleneck set again, as a share of the best time."""


@dataclass(frozen=True)
class _Made:
    """A try that is complete: its end, what it chose, and copies of the states that led to it."""

    state: State
    choice: Choice
    copies: Sequence[State]
    makespan_s: float


_Best = tuple[_Made, Network, QuotientProblem]


@dataclass(kw_only=True)
class _Search(PhaseSearch[_Best]):
    """Tries for one phase."""

    parameters: Matching
    chance: random.Random
    enough_s: float

    @property
    def best_s(self) -> float:
        """When the best try ends, inf without one."""
        return np.inf if self.best is None else self.best[0].makespan_s

    @property
    def over(self) -> bool:
        """Whether the work is done, the time is up, or the best is good enough."""
        return self.best is not None and (self.left <= 0 or self.best_s <= self.enough_s or self.deadline.over)

    def end_s(self, best: _Best) -> float:
        """When a try is over."""
        return best[0].makespan_s

    def sends(self, best: _Best) -> Columns:
        """All sends of a try."""
        made, network, quotient = best
        return _columns(network, quotient, made.state)


def may_be_matched(problem: Chunked) -> bool:
    """Whether a matching can plan it: its phases are parts of every plan, there is no order on links, and not too many
    pairs of chunk and link.
    """
    small = problem.pair_count <= MOST_PAIRS
    return small and is_spread_backwards(problem.collective) and not problem.logical.own_first.any()


def matched_plan(
    problem: Chunked,
    options: SolveOptions,
    parameters: Matching = _DEFAULTS,
    bounds: Bounds | None = None,
    is_quick: bool = False,
) -> Candidate | None:
    """The best of many matchings, replayed; its bound holds for any grouping of the problem's chunks.

    `is_quick`: with symmetry, chunks are not planned one by one as well, and the bound is one that is worked out at
    once. Without `bounds`, it is that of the shortest paths alone, so that no time goes into linear programs. None for
    what `may_be_matched` rules out, where a single try would take more work than all may, where a sketch leaves some
    chunk no path, and where the time is up before there is a plan.
    """
    if not may_be_matched(problem):
        return None
    deadline, count = Deadline(options), len(problem.phases)

    def begun(phase: Phase, share: SolveOptions) -> _Search:
        known = None if bounds is None else bounds if phase is problem.phases[-1] else bounds.phases[0]
        enough_s = 0.0
        if known is not None:
            least_s = known.quick_any_grouping_s if is_quick else known.any_grouping_s
            enough_s = least_s / max(1 - options.gap, 1e-9)
        return _Search(
            phase, share, Deadline(share), parameters.sends // count, "matching",
            parameters=parameters, chance=random.Random(options.seed), enough_s=enough_s,
        )  # fmt: skip

    def run(search: _Search, number: int, found: Sequence[Columns]) -> None:
        within = None if bounds is None else bounds.phases[number]
        _match(search, within, found[-1] if found else None, is_quick)

    offered = partial(_candidate, problem, bounds, True)  # quick bounds do
    found = search_phases(problem, options, deadline, begun, run, offered, in_turn=False)
    return None if found is None else _candidate(problem, bounds, is_quick, *found)


def _candidate(
    problem: Chunked, bounds: Bounds | None, is_quick: bool, searches: Sequence[_Search], found: Sequence[Columns]
) -> Candidate:
    """The phases in turn, replayed, with the bounds of the problem."""
    if bounds is None:
        bounds_s = {"latency": bounds_of(problem).latency_s}
    else:
        bounds_s = bounds.quick_any_grouping if is_quick else bounds.any_grouping
    best = [search.best for search in searches if search.best is not None]
    return Candidate(
        problem, checked(lowered(problem, found, retimed=True)), "matching",
        variant="; ".join(_name(made.choice) for made, _, _ in best),
        bound_s=max(bounds_s.values()),
        bounds_s=bounds_s,
        account={"rotations": len(best[0][2].rotations), "tries": sum(search.tries for search in searches)},
    )  # fmt: skip


def _match(search: _Search, bounds: Bounds | None, before: Columns | None, is_quick: bool) -> None:
    """Tries for a phase; `before`: the sends of the phase before it.

    `is_quick`: with symmetry, chunks are not planned one by one as well.
    """
    phase, problem = search.phase, search.phase.problem
    bottlenecks = [] if bounds is None or search.deadline.over else list(bounds.bottlenecks)
    quotients = _quotients(problem, search)
    if is_quick and len(quotients) > 1:
        quotients, search.left = quotients[:1], int(_QUICK_SHARE * search.left)
    for number, quotient in enumerate(quotients):
        if _sends(quotient) > search.left or _neighbours(quotient) > _MOST_NEIGHBOURS:
            continue
        sets = find_bottleneck_sets(quotient.topology, bottlenecks, quotient.rotations)
        network = network_of(problem, quotient, sets, phase.backwards, search.options.seed)
        release = None if before is None else _release(network, quotient, before)
        reserve = search.left * (len(quotients) - 1 - number) // (len(quotients) - number)
        _try_all(search, network, quotient, release, reserve)


def _quotients(problem: Chunked, search: _Search) -> list[QuotientProblem]:
    """One chunk of each orbit, if there is symmetry, and every chunk by itself, if there is work for that."""
    alone = no_rotations(problem.logical.topology)
    quotient = quotient_problem(problem, None if problem.is_free else alone)
    least = _sends(quotient)
    if len(quotient.rotations) == 1 or least * len(quotient.rotations) * _FEW_ALIKE > search.left:
        return [quotient]
    return [quotient, quotient_problem(problem, alone)]


def _try_all(
    search: _Search, network: Network, quotient: QuotientProblem, release: Release | None, reserve: int
) -> None:
    """Tries on one quotient until no more than `reserve` is left of the work, or the last ones were of no use."""
    start, own, tries, found_at, found_left = start_of(network, release), None, 0, 0, search.left
    each, once, ports = *_work(network), contested_ports(network)
    while not tries or (search.left > reserve and not search.over):
        if search.parameters.are_enough(tries - found_at, found_left - search.left):
            break
        again = own is not None and search.chance.random() < search.parameters.restart_share
        choice = _paired(search, ports, _choice(search, network, own, tries), own, tries)
        kept = (
            list(own.copies[: 1 + search.chance.randrange(len(own.copies))]) if own is not None and again else [start]
        )
        state, copies = kept.pop().copy(), list[State]()
        known, shorter = len(state.sends), search.chance.choice(_SHORTER)
        limit_s = np.inf if search.best is None else search.best_s * (1 - shorter)
        is_complete = construct(network, choice, search.chance, state, limit_s, copies)
        tries, search.tries = tries + 1, search.tries + 1
        search.left -= round(once + each * (len(state.sends) - known))
        if is_complete and state.makespan_s < search.best_s:
            own = _Made(state, choice, [*kept, *copies], state.makespan_s)
            found_at, found_left = tries, search.left
            search.keep((own, network, quotient))


def _choice(search: _Search, network: Network, best: _Made | None, number: int) -> Choice:
    """The first tries take each rule as it is, or leave out a kind of links; the others choose as the best, or any."""
    chance, groups, waits = search.chance, search.parameters.groups, search.chance.choice(_WAITS)
    if all(a < _ALPHA_SHARE * (a + b) for a, b in zip(network.alpha_s, network.chunk_s, strict=True)):
        groups, waits = (1,), 0.0
    if number < len(PICKS):
        return Choice((1,) * network.kinds, PICKS[-1 - number], once=bool(network.outside))
    if number < len(PICKS) + network.kinds <= len(PICKS) + _FEW_KINDS:
        unused = number - len(PICKS)
        return Choice(tuple(int(kind != unused) for kind in range(network.kinds)), once=bool(network.outside))
    if best is not None and chance.random() < search.parameters.alike_share:
        return best.choice
    alike = chance.random() < search.parameters.alike_share
    most = [chance.choice(groups)] * network.kinds if alike else chance.choices(groups, k=network.kinds)
    if network.kinds > 1 and chance.random() < search.parameters.unused_share:
        most[chance.randrange(network.kinds)] = 0
    spare_s = 0.0 if search.best is None else chance.choice(_SPARE) * search.best_s
    once = bool(network.outside) and chance.random() < search.parameters.once_share
    return Choice(tuple(most), chance.choice(PICKS), chance.choice(_NOISE), once, spare_s, waits)


def _paired(search: _Search, ports: Ports, choice: Choice, best: _Made | None, number: int) -> Choice:
    """With a single partner for each port, where ports are contested: the best try's, or others."""
    chance, parameters = search.chance, search.parameters
    if not ports or (number and chance.random() >= parameters.paired_share):
        return choice
    if best is not None and best.choice.closed and chance.random() < parameters.alike_share:
        return replace(choice, closed=best.choice.closed)
    return replace(choice, closed=closed_links(ports, chance))


def _work(network: Network) -> tuple[float, float]:
    """How much work a send is, and how much a try is beside its sends: links are looked at, most of them to no end."""
    mean = sum(map(len, network.next_links)) / len(network.next_links)
    return 1 + _LOOK * mean, 10 + _LOOK * len(network.source)


def _release(network: Network, quotient: QuotientProblem, before: Columns) -> Release:
    """When the phase before is done with each chunk, and with each clock."""
    chunk_s = np.zeros(1 + max(int(quotient.images.max()), int(before.chunk.max())))
    np.maximum.at(chunk_s, before.chunk, before.end_s)
    clock_s = np.zeros(quotient.group_count)
    for link, end_s in zip(before.link.tolist(), before.end_s.tolist(), strict=True):
        for clock in quotient.groups[link]:
            clock_s[clock] = max(clock_s[clock], end_s)
    return Release(chunk_s[quotient.chunks[network.chunks]].tolist(), clock_s.tolist())


def _columns(network: Network, quotient: QuotientProblem, state: State) -> Columns:
    """All sends, without those that lead nowhere wanted, in order of their starts."""
    rows = _useful(network, state)
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return quotient.columns(np.array(network.chunks)[columns[0]], *columns[1:])


def _useful(network: Network, state: State) -> list[tuple[int, int, float, float, int]]:
    """Rows of bit, link, start, end and place of the sends that bring a chunk nearer to a rank that wants it."""
    rows = list[tuple[int, int, float, float, int]]()
    asked = [0] * len(network.want)  # chunks that a later send takes from each rank
    for start_s, end_s, link, bits in sorted(state.sends, key=lambda send: -send[0]):
        source, target = network.source[link], network.target[link]
        useful = [bit for bit in bits if (network.want[target] | asked[target]) >> bit & 1]
        for place, bit in enumerate(useful):
            asked[source] |= 1 << bit
            rows.append((bit, link, start_s, end_s, place))
    return rows


def _sends(quotient: QuotientProblem) -> int:
    """How many sends a try makes, at least."""
    return int(quotient.wanted.sum())


def _neighbours(quotient: QuotientProblem) -> int:
    """Pairs of links that share a clock."""
    clocks = np.fromiter((clock for clocks in quotient.groups for clock in clocks), dtype=np.int64)
    return int((np.bincount(clocks).astype(np.int64) ** 2).sum())


def _name(choice: Choice) -> str:
    """For people: `rarest, groups of 1, 4`."""
    sizes = ", ".join(map(str, sorted(set(choice.most))))
    rules = [", into bottlenecks once"] * choice.once + [", a partner a port"] * bool(choice.closed)
    return f"{choice.pick}, groups of {sizes}{''.join(rules)}"
