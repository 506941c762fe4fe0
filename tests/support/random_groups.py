"""Random process groups on the networks of `random_networks.py`, one or two at once, each with a collective."""

from __future__ import annotations

import random
from dataclasses import replace

import networkx as nx
from random_networks import Question, question

from gapless.encodings.taccl import Chunked
from gapless.ir.process_groups import Group, Groups
from gapless.topologies.topology import Topology

__all__ = ["groups_question"]

_PLAIN, _SUMS = ("allgather", "alltoall", "broadcast", "gather"), ("allreduce", "reducescatter", "reduce")
_MOST_CHUNKS = {False: 9, True: 4}
"""By whether chunks are added up: a model of sums is larger."""


def groups_question(seed: int) -> Question:
    """Of the network of this seed. Groups may share ranks; where others forward nothing, their links are left out."""
    chance, network = random.Random(seed), question(seed)
    topology, chunk_bytes = network.problem.topology, network.problem.chunk_bytes
    groups = _groups(chance, topology.device_count, chunk_bytes)
    if groups.is_disjoint and all(_connected(topology, group) for group in groups.groups):
        groups = replace(groups, relays=chance.random() < 0.5)
    problem = Chunked.of(topology, groups, chunk_bytes)
    ends = {(link.source, link.target) for link in problem.topology.links}
    wires = [wire for wire in network.wires if (wire.source, wire.target) in ends]
    return Question(wires, problem, 1)


def _groups(chance: random.Random, ranks: int, chunk_bytes: int) -> Groups:
    while True:
        found = []
        for _ in range(chance.choice([1, 2, 2])):
            name = chance.choice([*_PLAIN, *_SUMS])
            members = tuple(chance.sample(range(ranks), chance.choice([2, 3])))
            alone = Group(name, members, 1).among_itself()
            found.append(Group(name, members, chunk_bytes * max(map(len, alone.inputs))))
        groups = Groups(tuple(found))
        joined = groups.joined(ranks)
        if joined.chunk_count <= _MOST_CHUNKS[joined.reduces]:
            return groups


def _connected(topology: Topology, group: Group) -> bool:
    return nx.is_strongly_connected(topology.to_networkx().subgraph(group.ranks))
