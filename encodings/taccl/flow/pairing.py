"""Pairing: one partner for each port that leads into a bottleneck set, so that none waits for another.

Three nodes on rails send to each other: where a NIC may send to either of the others, two of them often send to each
other, and the third is idle. Where each sends to one only, and all take in from another one, all are busy all the time.
"""

from __future__ import annotations

import random

from gapless.encodings.taccl.flow.network import Network

__all__ = ["Ports", "closed_links", "contested_ports"]

Ports = dict[int, dict[int, list[int]]]
"""By the clock that a send leaves through, and the one that it comes in through: links."""


def contested_ports(network: Network) -> Ports:
    """The ports of links into bottleneck sets that hold two clocks; none where each port has a single partner."""
    ports: Ports = {}
    for links in network.links_of:
        for link in links:
            if network.enters[link] and len(network.clocks[link]) == 2:
                leaves, comes = network.clocks[link]
                ports.setdefault(leaves, {}).setdefault(comes, []).append(link)
    partners = [comes for ends in ports.values() for comes in ends]
    is_contested = any(len(ends) > 1 for ends in ports.values()) or len(set(partners)) < len(partners)
    return ports if is_contested else {}


def closed_links(ports: Ports, chance: random.Random) -> frozenset[int]:
    """The links between ports that aren't partners, where as many as can be have one, else by chance."""
    partner: dict[int, int] = {}
    leaves = list(ports)
    chance.shuffle(leaves)
    for port in leaves:
        _find_partner(port, ports, partner, chance, set())
    return frozenset(
        link
        for port, ends in ports.items()
        for comes, links in ends.items()
        if partner.get(comes) != port
        for link in links
    )


def _find_partner(port: int, ports: Ports, partner: dict[int, int], chance: random.Random, seen: set[int]) -> bool:
    """Find a port a partner, if need be by finding another one for the port that has it (an augmenting path)."""
    for comes in chance.sample(list(ports[port]), len(ports[port])):
        if comes in seen:
            continue
        seen.add(comes)
        if comes not in partner or _find_partner(partner[comes], ports, partner, chance, seen):
            partner[comes] = port
            return True
    return False
