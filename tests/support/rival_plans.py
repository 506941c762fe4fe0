"""Rival plans for a collective, built apart from the product: TACOS's rule, a packing of trees, a library's ring.

Each returns a schedule that the replay has found clean. They share nothing with the methods of the product but the
question, its lowering to a schedule, and the library's ring.

- *TACOS* (arXiv 2304.05301): a link that is free takes any chunk that its sender has and its receiver lacks, the
  fastest links first; the best of many starts, in several numbers of chunks. Sums run backwards in time.
- *Trees*: a fractional packing by column generation, whose columns are cheapest trees under the prices of links
  (`tree_packings.py`), cut into pieces and put in order by a list schedule.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from tree_packings import Tree, packed_trees

from gapless.checker import check
from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.baselines.library import Baselines
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Sends, Times, to_schedule
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["by_ring", "by_tacos", "by_trees"]

NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Into how many chunks a rank's data are cut."""
TACOS_SENDS, PROBED, BEST_NUMBERS = 150_000, 0.03, 3
"""Sends of all starts, some seconds; the share of them in each number of chunks; how many numbers get the rest."""
PACES = (0.25, 0.5, 1.0)
"""How soon chunks are due, as shares of the time that their turn gives them."""
MOST_TREE_SENDS = 30_000
"""Sends of a tree plan; more pieces are left out."""


@dataclass(frozen=True)
class Send:
    """A chunk over a link, from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    link: int
    chunk: int
    reduces: bool = False


@dataclass(frozen=True)
class Network:
    """Links by number: ends, seconds of a chunk, and the clocks (the link's own, then its resources') that it holds."""

    ranks: int
    source: list[int]
    target: list[int]
    takes_s: list[float]
    clocks: list[tuple[int, ...]]

    @cached_property
    def turned_round(self) -> Network:
        """The same links the other way round."""
        return Network(self.ranks, self.target, self.source, self.takes_s, self.clocks)

    @cached_property
    def clock_count(self) -> int:
        """How many clocks there are."""
        return 1 + max(clock for held in self.clocks for clock in held)

    @cached_property
    def next_links(self) -> list[list[int]]:
        """The links to look at once a send over each is over: those of its receiver, and those that share a clock."""
        users: dict[int, list[int]] = {}
        for link, held in enumerate(self.clocks):
            for clock in held:
                users.setdefault(clock, []).append(link)
        of_rank: list[list[int]] = [[] for _ in range(self.ranks)]
        for link, rank in enumerate(self.source):
            of_rank[rank].append(link)
        found = [{*of_rank[self.target[link]], *of_rank[self.source[link]]} for link in range(len(self.source))]
        for link, held in enumerate(self.clocks):
            for clock in held:
                found[link].update(users[clock])
        return [sorted(each, key=self.takes_s.__getitem__) for each in found]


def network_of(topology: Topology, chunk_bytes: int) -> Network:
    """The network for chunks of so many bytes."""
    links, start, held = len(topology.links), topology.held_start.tolist(), topology.held.tolist()
    takes_s = (topology.alpha_s + topology.beta_s_per_byte * chunk_bytes).tolist()
    clocks = [(link, *(links + each for each in held[start[link] : start[link + 1]])) for link in range(links)]
    return Network(topology.device_count, topology.link_source.tolist(), topology.link_target.tolist(), takes_s, clocks)


def by_tacos(problem: Problem, sends: int = TACOS_SENDS, seed: int = 0) -> Schedule:
    """The best plan by TACOS's rule: a part of the starts in each number of chunks, the others in the best of these."""
    chance, best = random.Random(seed), dict[int, list[Send]]()
    phases = 2 if problem.coarsest.collective.name == "allreduce" else 1

    @cache
    def in_chunks(number: int) -> tuple[Network, list[int]]:
        chunked = problem.in_chunks(number)
        return network_of(chunked.topology, chunked.chunk_bytes), _owners(chunked)

    def start(number: int) -> int:
        """One more start in so many chunks; its sends."""
        plan = _tacos_plan(problem.coarsest.collective.name, *in_chunks(number), chance)
        if number not in best or _end_s(plan) < _end_s(best[number]):
            best[number] = plan
        return len(plan)

    left = sends
    for number in NUMBERS:
        least = phases * len(in_chunks(number)[1]) * (problem.topology.device_count - 1)
        if least > left // 4:
            break
        for _ in range(max(1, int(PROBED * sends / least))):
            left -= start(number)
    ranking = sorted(best, key=lambda number: _end_s(best[number]))[:BEST_NUMBERS]
    for turn in range(sends):
        if left <= 0:
            break
        left -= start(ranking[turn % len(ranking)])
    number = min(best, key=lambda number: _end_s(best[number]))
    return _replayed(problem.in_chunks(number), best[number])


def _end_s(plan: Sequence[Send]) -> float:
    return max(send.end_s for send in plan)


def _tacos_plan(name: str, network: Network, owners: list[int], chance: random.Random) -> list[Send]:
    """All sends of one start: spread, collected (the same backwards in time), or one after the other."""
    plan: list[Send] = []
    if name != "allgather":
        back = _spread(network.turned_round, owners, chance, one_at_a_time=True)
        until_s = max(send.end_s for send in back)
        plan = [Send(until_s - send.end_s, until_s - send.start_s, send.link, send.chunk, True) for send in back]
    if name != "reducescatter":
        begin_s = max((send.end_s for send in plan), default=0.0)
        there = _spread(network, owners, chance, one_at_a_time=False)
        plan += [Send(begin_s + send.start_s, begin_s + send.end_s, send.link, send.chunk) for send in there]
    return plan


def _spread(network: Network, owners: list[int], chance: random.Random, one_at_a_time: bool) -> list[Send]:
    """Every chunk from its owner to all ranks. `one_at_a_time`: a rank sends a chunk to one rank at a time."""
    everything = (1 << len(owners)) - 1
    have = [sum(1 << chunk for chunk, owner in enumerate(owners) if owner == rank) for rank in range(network.ranks)]
    lacks = [everything & ~own for own in have]
    sending, free_s, sends = [0] * network.ranks, [0.0] * network.clock_count, list[Send]()
    order, next_links, now_s = list(range(len(network.source))), network.next_links, 0.0
    chance.shuffle(order)
    order.sort(key=network.takes_s.__getitem__)
    events: list[tuple[float, int, int]] = []
    while True:
        for link in order:
            source, target = network.source[link], network.target[link]
            if any(free_s[clock] > now_s for clock in network.clocks[link]):
                continue
            chunks = have[source] & lacks[target] & ~sending[source]
            if not chunks:
                continue
            above = chunks >> (at := chance.randrange(chunks.bit_length()))
            chunk = at + (above & -above).bit_length() - 1
            end_s = now_s + network.takes_s[link]
            lacks[target] &= ~(1 << chunk)
            sending[source] |= int(one_at_a_time) << chunk
            for clock in network.clocks[link]:
                free_s[clock] = end_s
            sends.append(Send(now_s, end_s, link, chunk))
            heapq.heappush(events, (end_s, link, chunk))
        if not events:
            break
        now_s, woken = events[0][0], set[int]()
        while events and events[0][0] <= now_s * (1 + 1e-9):
            at_s, link, chunk = heapq.heappop(events)
            now_s = max(now_s, at_s)
            have[network.target[link]] |= 1 << chunk
            sending[network.source[link]] &= ~(1 << chunk)
            woken.update(next_links[link])
        order = sorted(woken, key=lambda link: (network.takes_s[link], chance.random()))
    assert not any(lacks), "a rank is out of reach"
    return sends


def by_trees(problem: Problem) -> Schedule | None:
    """The best plan along packed trees, over all numbers of pieces; None where there is no packing."""
    coarsest = problem.in_chunks(1)
    name, topology = coarsest.collective.name, coarsest.topology
    packing = packed_trees(name, topology)
    best, best_s, worse = None, np.inf, 0
    for number in NUMBERS:
        chunked = problem.in_chunks(number)
        network, owners = network_of(topology, chunked.chunk_bytes), _owners(chunked)
        if best is not None and 2 * len(owners) * (network.ranks - 1) > MOST_TREE_SENDS:
            break
        plan = _along_trees(name, network, _shared_out(packing, owners, name))
        end_s = _end_s(plan)
        if end_s < best_s:
            best, best_s, worse = (chunked, plan), end_s, 0
        else:
            worse += 1
        if worse == 3:
            break
    return None if best is None else _replayed(*best)


def _shared_out(packing: Sequence[tuple[Tree, float]], owners: list[int], name: str) -> list[Tree]:
    """A tree for each chunk, of its owner where it has one, each tree for its share of chunks, in even turn."""
    found: list[Tree | None] = [None] * len(owners)
    groups = {None: range(len(owners))} if name == "allreduce" else {
        owner: [chunk for chunk, of in enumerate(owners) if of == owner] for owner in set(owners)}  # fmt: skip
    for owner, chunks in groups.items():
        own = [(tree, share) for tree, share in packing if owner is None or tree.root == owner]
        whole = sum(share for _, share in own)
        given = [0] * len(own)
        for place, chunk in enumerate(chunks):
            behind = [(place + 1) * share / whole - count for (_, share), count in zip(own, given, strict=True)]
            chosen = int(np.argmax(behind))
            given[chosen] += 1
            found[chunk] = own[chosen][0]
    return [tree for tree in found if tree is not None]


def _along_trees(name: str, network: Network, trees: list[Tree]) -> list[Send]:
    """List scheduling of each chunk up and down its tree: chunks in turn, the longest way to go first."""
    links, needs, reduces, chunks, extra = list[int](), list[list[int]](), list[bool](), list[int](), list[int]()

    def add(link: int, needed: list[int], is_sum: bool, chunk: int, target: int) -> int:
        links.append(link)
        needs.append(needed)
        reduces.append(is_sum)
        chunks.append(chunk)
        extra.append(-1 - (chunk * network.ranks + target) if is_sum else 0)  # a rank adds one part at a time
        return len(links) - 1

    for chunk, tree in enumerate(trees):
        arrived: dict[int, list[int]] = {}
        if name != "allgather":
            for link in reversed(tree.up):
                target = network.target[link]
                arrived.setdefault(target, []).append(
                    add(link, arrived.get(network.source[link], []), True, chunk, target)
                )
        if name != "reducescatter":
            brought = {tree.root: arrived.get(tree.root, [])}
            for link in tree.down:
                target = network.target[link]
                brought[target] = [add(link, brought[network.source[link]], False, chunk, target)]
    to_go_s = [0.0] * len(links)
    for send in range(len(links) - 1, -1, -1):
        to_go_s[send] += network.takes_s[links[send]]
        for before in needs[send]:
            to_go_s[before] = max(to_go_s[before], to_go_s[send])
    until_s = [0.0] * len(links)
    for send, needed in enumerate(needs):
        until_s[send] = max((until_s[before] + network.takes_s[links[before]] for before in needed), default=0.0)
    busy_s = [0.0] * network.clock_count
    for link in links:
        for clock in network.clocks[link]:
            busy_s[clock] += network.takes_s[link]
    due_s = {chunk: max(busy_s) * place / len(trees) for place, chunk in enumerate(_turns(trees, name))}
    rules = [[(-to_go_s[send], due_s[chunks[send]]) for send in range(len(links))]]
    rules += [
        [(pace * due_s[chunks[send]] + until_s[send], -to_go_s[send]) for send in range(len(links))] for pace in PACES
    ]
    plans = (_listed(network, links, needs, extra, urgency) for urgency in rules)
    times = min(plans, key=lambda times: max(end_s for _, end_s in times))
    return [Send(*times[send], links[send], chunks[send], reduces[send]) for send in range(len(links))]


def _turns(trees: list[Tree], name: str) -> list[int]:
    """The chunks in turn; of chunks with owners, one of each after the other."""
    count: dict[int, int] = {}
    place = []
    for chunk, tree in enumerate(trees):
        count[tree.root] = count.get(tree.root, -1) + 1
        place.append((chunk if name == "allreduce" else count[tree.root], chunk))
    return [chunk for _, chunk in sorted(place)]


def _listed(
    network: Network, links: list[int], needs: list[list[int]], extra: list[int], urgency: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Start and end of each send: whenever links are free, the most urgent one that is ready starts."""
    after: list[list[int]] = [[] for _ in links]
    missing = [len(needed) for needed in needs]
    for send, needed in enumerate(needs):
        for before in needed:
            after[before].append(send)
    ready: dict[int, list[tuple[tuple[float, float], int]]] = {}
    for send in range(len(links)):
        if not missing[send]:
            ready.setdefault(links[send], []).append((urgency[send], send))
    for waiting in ready.values():
        heapq.heapify(waiting)
    users: dict[int, list[int]] = {}
    for link, held in enumerate(network.clocks):
        for clock in held:
            users.setdefault(clock, []).append(link)
    free_s, times, events, now_s = dict[int, float](), [(0.0, 0.0)] * len(links), list[tuple[float, int]](), 0.0
    looks = sorted(ready)
    while looks or events:
        heads = sorted((ready[link][0], link) for link in looks if ready.get(link))
        for (_, send), link in heads:
            held = network.clocks[link]
            if any(free_s.get(clock, 0.0) > now_s for clock in held):
                continue
            waiting = ready[link]
            put_off = []
            while waiting and extra[waiting[0][1]] and free_s.get(extra[waiting[0][1]], 0.0) > now_s:
                put_off.append(heapq.heappop(waiting))
            if waiting:
                _, send = heapq.heappop(waiting)
                end_s = now_s + network.takes_s[link]
                times[send] = now_s, end_s
                for clock in (*held, *((extra[send],) if extra[send] else ())):
                    free_s[clock] = end_s
                heapq.heappush(events, (end_s, send))
            for each in put_off:
                heapq.heappush(waiting, each)
        if not events:
            break
        now_s, woken = events[0][0], set[int]()
        while events and events[0][0] <= now_s * (1 + 1e-9):
            at_s, send = heapq.heappop(events)
            now_s = max(now_s, at_s)
            for later in after[send]:
                missing[later] -= 1
                if not missing[later]:
                    heapq.heappush(ready.setdefault(links[later], []), (urgency[later], later))
                    woken.add(links[later])
            for clock in network.clocks[links[send]]:
                woken.update(users[clock])
            if extra[send]:
                woken.update(link for link in ready if network.target[link] == network.target[links[send]])
        looks = sorted(woken)
    assert not any(missing)
    return times


def by_ring(problem: Problem) -> Schedule | None:
    """The library's ring in its fastest variant; None where no ring runs through all ranks."""
    coarsest = problem.in_chunks(1)
    try:
        found = Baselines(coarsest.topology, coarsest.collective).of_size(coarsest.chunk_bytes, most_transfers=20_000)
    except InputError:
        return None
    rings = [each.schedule for each in found if each.name == "ring"]
    return rings[0] if rings else None


def _owners(chunked: Chunked) -> list[int]:
    """The rank that each chunk starts from, or is added up at."""
    collective = chunked.collective
    if collective.name == "allreduce":  # any will do: as many on each rank
        return [chunk % collective.rank_count for chunk in range(collective.chunk_count)]
    ends = collective.inputs if collective.name == "allgather" else collective.outputs
    owner = {chunk: rank for rank, buffer in enumerate(ends) for chunk in buffer}
    return [owner[chunk] for chunk in range(collective.chunk_count)]


def _replayed(chunked: Chunked, plan: list[Send]) -> Schedule:
    """The schedule of the sends, each as early as their order allows, once the replay has found it clean."""
    plan = sorted(plan, key=lambda send: (send.start_s, send.end_s))
    chunk, link = (np.array([getattr(send, key) for send in plan]) for key in ("chunk", "link"))
    reduces = np.array([send.reduces for send in plan], dtype=np.bool_)
    none = np.zeros(len(plan), dtype=np.int64)
    sends = Sends(chunk, link, (), none, reduces, np.zeros_like(reduces))
    times = Times(np.array([send.start_s for send in plan]), np.array([send.end_s for send in plan]), none)
    schedule = to_schedule(chunked.topology, chunked.collective, chunked.chunk_bytes, sends, times)
    report = check(schedule)
    assert report.valid, report.violations[:3]
    return schedule
