"""Networks without symmetry: regular graphs, meshes with dead links, mixed bandwidths, clusters with a slow NIC."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import networkx as nx

from gapless.topologies.files import load_topology
from gapless.topologies.topology import Link, Topology

__all__ = ["irregular_networks", "mesh_with_dead_links", "mixed_bandwidths", "regular_graph", "with_slow_nic"]

_ALPHA_S = 0.7e-6


def irregular_networks() -> Iterator[Topology]:
    """Twenty of them, always the same."""
    for seed in range(6):
        yield regular_graph(24, (3, 4, 5)[seed % 3], seed)
    for seed, (rows, columns) in enumerate([(4, 4), (3, 5), (4, 5), (4, 6), (5, 5)]):
        yield mesh_with_dead_links(rows, columns, 2 + seed % 3, seed)
    for seed in range(5):
        yield mixed_bandwidths(10 + 2 * seed, seed)
    for rank, factor in ((3, 2.0), (0, 4.0), (13, 3.0), (7, 1.5)):
        yield with_slow_nic(rank, factor)


def regular_graph(ranks: int, degree: int, seed: int) -> Topology:
    """Connections of one speed, as many at every rank."""
    graph = nx.random_regular_graph(degree, ranks, seed)
    return _two_way(f"regular-{ranks}-{degree}-{seed}", graph, 46e-12)


def mesh_with_dead_links(rows: int, columns: int, dead: int, seed: int) -> Topology:
    """A mesh without some of its connections, still in one piece."""
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    edges = sorted(graph.edges)
    random.Random(seed).shuffle(edges)
    for edge in edges:
        if dead and nx.is_connected(nx.restricted_view(graph, [], [edge])):
            graph.remove_edge(*edge)
            dead -= 1
    return _two_way(f"mesh-{rows}x{columns}-{seed}", graph, 46e-12)


def mixed_bandwidths(ranks: int, seed: int) -> Topology:
    """A ring and half as many chords, each connection of one of three speeds."""
    rng = random.Random(seed)
    graph = nx.cycle_graph(ranks)
    while graph.number_of_edges() < ranks + ranks // 2:
        graph.add_edge(*rng.sample(range(ranks), 2))
    for edge in graph.edges:
        graph.edges[edge]["beta"] = rng.choice([20e-12, 46e-12, 80e-12])
    return _two_way(f"mixed-{ranks}-{seed}", graph, 46e-12)


def with_slow_nic(rank: int, factor: float) -> Topology:
    """Three DGX A100, where one rank's NIC is so many times slower than the others'."""
    cluster = load_topology("dgx-a100", 3)
    node = cluster.node_of_device
    links = tuple(
        replace(link, beta_s_per_byte=factor * link.beta_s_per_byte)
        if rank in (link.source, link.target) and node[link.source] != node[link.target]
        else link
        for link in cluster.links
    )
    return replace(cluster, name=f"dgx-a100 x 3, NIC of {rank} {factor:g} times slower", links=links)


def _two_way(name: str, graph: nx.Graph[int], beta_s_per_byte: float) -> Topology:
    links = tuple(
        Link(source, target, _ALPHA_S, costs.get("beta", beta_s_per_byte))
        for a, b, costs in sorted(graph.edges(data=True), key=lambda edge: edge[:2])
        for source, target in ((a, b), (b, a))
    )
    return Topology(name, (0,) * graph.number_of_nodes(), links)
