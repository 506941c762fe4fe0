"""Twenty networks for plans to be held against rivals' on: irregular, of 6 to 20 ranks, with unlike bandwidths.

Five of each class: connections that run both ways; one-way links, unlike each other; ranks that send and receive one
message at a time; nodes of unlike sizes whose ranks share NICs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from gapless.topologies.topology import Link, Topology

__all__ = ["rival_networks"]

_BETAS = (12e-12, 20e-12, 46e-12, 80e-12)
_ALPHAS = (0.5e-6, 0.7e-6, 1.3e-6)


def rival_networks() -> Iterator[Topology]:
    """Always the same."""
    for seed, ranks in enumerate((6, 9, 12, 16, 20)):
        yield _connected(ranks, seed)
    for seed, ranks in enumerate((6, 8, 11, 14, 18)):
        yield _one_way(ranks, seed)
    for seed, ranks in enumerate((6, 8, 10, 13, 16)):
        yield _with_ports(ranks, seed)
    for seed, sizes in enumerate(((3, 3), (4, 2, 2), (4, 4, 4), (2, 5, 3, 4), (6, 4, 4, 6))):
        yield _clusters(sizes, seed)


def _connected(ranks: int, seed: int) -> Topology:
    """A random tree, and about as many connections more; each of some speed, alike both ways."""
    chance = random.Random(seed)
    pairs = _tree(chance, ranks)
    while len(pairs) < round(1.7 * ranks):
        pairs.add(tuple(sorted(chance.sample(range(ranks), 2))))
    links = []
    for one, other in sorted(pairs):
        alpha_s, beta_s = chance.choice(_ALPHAS), chance.choice(_BETAS)
        links += [Link(one, other, alpha_s, beta_s), Link(other, one, alpha_s, beta_s)]
    return Topology(f"connected-{ranks}", (0,) * ranks, tuple(links))


def _one_way(ranks: int, seed: int) -> Topology:
    """A one-way ring in some order, and twice as many one-way links more; no two of them need be alike."""
    chance = random.Random(seed)
    order = chance.sample(range(ranks), ranks)
    pairs = set(zip(order, [*order[1:], order[0]], strict=True))
    while len(pairs) < 3 * ranks - 2:
        one, other = chance.sample(range(ranks), 2)
        pairs.add((one, other))
    links = [Link(*pair, chance.choice(_ALPHAS), chance.choice(_BETAS)) for pair in sorted(pairs)]
    return Topology(f"one-way-{ranks}", (0,) * ranks, tuple(links))


def _with_ports(ranks: int, seed: int) -> Topology:
    """Connections as above; each rank sends one message at a time, and receives one."""
    base = _connected(ranks, 100 + seed)
    links = tuple(
        Link(link.source, link.target, link.alpha_s, link.beta_s_per_byte, (link.source, ranks + link.target))
        for link in base.links
    )
    names = tuple(f"rank{rank}:{side}" for side in ("out", "in") for rank in range(ranks))
    return Topology(f"ports-{ranks}", (0,) * ranks, links, names)


def _clusters(sizes: tuple[int, ...], seed: int) -> Topology:
    """Nodes whose ranks are joined by a random network; each has one NIC or two, of some speed, for all other nodes."""
    chance = random.Random(200 + seed)
    node_of = [node for node, size in enumerate(sizes) for _ in range(size)]
    links, names, nics = list[Link](), list[str](), list[list[tuple[int, float, list[int]]]]()
    first = 0
    for node, size in enumerate(sizes):
        ranks = list(range(first, first + size))
        pairs = _tree(chance, size)
        for _ in range(size):
            pairs.add(tuple(sorted(chance.sample(range(size), 2))))
        for one, other in sorted(pairs):
            beta_s = chance.choice(_BETAS[:2])
            links += [
                Link(first + one, first + other, 0.7e-6, beta_s),
                Link(first + other, first + one, 0.7e-6, beta_s),
            ]
        count = chance.choice((1, 2)) if size > 2 else 1
        own = []
        for number in range(count):
            names += [f"node{node}:nic{number}:out", f"node{node}:nic{number}:in"]
            own.append((len(names) - 2, chance.choice((80e-12, 106e-12, 160e-12)), ranks[number::count]))
        nics.append(own)
        first += size
    for node, own in enumerate(nics):
        for out, out_s, senders in own:
            for other, theirs in enumerate(nics):
                for into, into_s, receivers in theirs if other != node else ():
                    links += [Link(source, target, 1.7e-6, max(out_s, into_s), (out, into + 1))
                              for source in senders for target in receivers]  # fmt: skip
    return Topology(f"clusters-{'-'.join(map(str, sizes))}", tuple(node_of), tuple(links), tuple(names))


def _tree(chance: random.Random, ranks: int) -> set[tuple[int, ...]]:
    order = chance.sample(range(ranks), ranks)
    return {tuple(sorted((order[chance.randrange(place)], order[place]))) for place in range(1, ranks)}
