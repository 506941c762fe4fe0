"""Generated topologies: counts, degrees and diameters in closed form, and names that say what is wrong with them."""

from __future__ import annotations

from math import prod

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.topologies.families import FAMILIES, family_topology
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

sizes = st.lists(st.integers(2, 5), min_size=1, max_size=3)


def degrees(topology: Topology) -> list[int]:
    """Links out of each rank, which must be as many as come in."""
    out, into = (
        np.bincount(ends, minlength=topology.device_count) for ends in (topology.link_source, topology.link_target)
    )
    assert (out == into).all()
    return sorted(set(out.tolist()))


def diameter(topology: Topology) -> int:
    return int(nx.diameter(topology.to_networkx()))


@pytest.mark.parametrize(
    ("name", "ranks", "links", "hops", "degree"),
    [
        ("ring:8", 8, 16, 4, [2]),
        ("ring:7", 7, 14, 3, [2]),
        ("ring:2", 2, 2, 1, [1]),
        ("line:8", 8, 14, 7, [1, 2]),
        ("hub-and-spoke:8", 8, 14, 2, [1, 7]),
        ("torus:4x4", 16, 64, 4, [4]),
        ("torus:4x4x4", 64, 384, 6, [6]),
        ("torus:2x3", 6, 18, 2, [3]),
        ("mesh:3x5", 15, 44, 6, [2, 3, 4]),
        ("mesh:2x3x4", 24, 92, 6, [3, 4, 5]),
        ("hypercube:4", 16, 64, 4, [4]),
        ("fat-tree:k=2", 2, 2, 1, [1]),
        ("fat-tree:k=4", 16, 240, 1, [15]),
        ("dragonfly:a=4,p=2,h=2", 72, 72 * 71, 1, [71]),
        ("dragonfly:a=3,p=1,h=1,groups=2", 6, 30, 1, [5]),
    ],
)
def test_size_degree_and_diameter(name: str, ranks: int, links: int, hops: int, degree: list[int]) -> None:
    topology = load_topology(name)
    assert (topology.device_count, len(topology.links)) == (ranks, links)
    assert diameter(topology) == hops
    assert degrees(topology) == degree
    assert topology.node_count == ranks
    assert topology.name == name


@given(sizes)
def test_torus_and_mesh_of_any_shape(shape: list[int]) -> None:
    name = "x".join(map(str, shape))
    torus, mesh = family_topology(f"torus:{name}"), family_topology(f"mesh:{name}")
    ranks = prod(shape)
    assert len(torus.links) == sum(ranks * (2 if size > 2 else 1) for size in shape)
    assert len(mesh.links) == sum(2 * ranks * (size - 1) // size for size in shape)
    assert diameter(torus) == sum(size // 2 for size in shape)
    assert diameter(mesh) == sum(size - 1 for size in shape)
    assert degrees(torus) == [sum(2 if size > 2 else 1 for size in shape)]


def test_hypercube_joins_numbers_that_differ_in_one_bit() -> None:
    cube = family_topology("hypercube:5")
    assert {bin(source ^ target).count("1") for source, target in cube.to_networkx().edges} == {1}


def test_each_dimension_of_a_grid_can_have_its_own_costs() -> None:
    torus = family_topology("torus:3x4,alpha_us=1/2,beta_us_per_mb=20/40")
    same_row = torus.link_source // 4 == torus.link_target // 4
    assert torus.alpha_s.tolist() == pytest.approx(np.where(same_row, 2e-6, 1e-6).tolist())
    assert torus.beta_s_per_byte.tolist() == pytest.approx(np.where(same_row, 40e-12, 20e-12).tolist())


def test_default_costs_are_those_of_table_5_1() -> None:
    for name, alpha_us, beta_us_per_mb in (("ring:4", 0.7, 46), ("fat-tree:k=4", 1.7, 106)):
        topology = family_topology(name)
        assert topology.alpha_s.tolist() == pytest.approx([alpha_us * 1e-6] * len(topology.links))
        assert topology.beta_s_per_byte.tolist() == pytest.approx([beta_us_per_mb * 1e-12] * len(topology.links))


def test_every_family_lists_an_example_that_works() -> None:
    for name, family in FAMILIES.items():
        assert family.example.startswith(f"{name}:")
        assert family_topology(family.example).device_count > 1


# -- routes of fat trees and dragonflies ------------------------------------------------------------------------------


def routes(topology: Topology) -> dict[tuple[int, int], list[str]]:
    return {(link.source, link.target): [topology.resources[r] for r in link.resources] for link in topology.links}


@pytest.mark.parametrize("ports", [2, 4, 6])
def test_fat_tree_has_the_ports_and_cables_of_its_switches(ports: int) -> None:
    """k^3/4 cables at each of three levels, both ways; two ports of one edge switch are all there is of k = 2."""
    tree = family_topology(f"fat-tree:k={ports}")
    assert tree.device_count == ports**3 // 4
    hosts_and_cables = 2 * 3 * ports**3 // 4
    assert len(tree.resources) == hosts_and_cables


def test_fat_tree_route_is_as_long_as_hosts_are_apart() -> None:
    tree = routes(family_topology("fat-tree:k=4"))
    assert len(tree[0, 1]) == 2
    assert tree[0, 2] == ["host0:out", "pod0:edge0:up0", "pod0:aggregation0:down1", "host2:in"]
    assert tree[0, 15] == [
        "host0:out", "pod0:edge0:up1", "pod0:aggregation1:up1", "core3:down3", "pod3:aggregation1:down1", "host15:in",
    ]  # fmt: skip


def test_fat_tree_has_full_bisection_for_shifts() -> None:
    """Every host sends to the one half the hosts away: no two routes meet."""
    tree = family_topology("fat-tree:k=4")
    found = routes(tree)
    used = [resource for host in range(16) for resource in found[host, (host + 8) % 16]]
    assert len(used) == len(set(used))


def test_dragonfly_goes_by_one_global_cable_and_two_local_ones_at_most() -> None:
    topology = family_topology("dragonfly:a=4,p=2,h=2")
    for (source, target), route in routes(topology).items():
        cables = route[1:-1]
        crossing = [name for name in cables if "router" not in name]
        assert len(crossing) == (source // 8 != target // 8)
        assert len(cables) - len(crossing) <= (2 if crossing else 1)
        assert (route[0], route[-1]) == (f"host{source}:out", f"host{target}:in")


@pytest.mark.parametrize(("groups", "most"), [(9, 2), (5, 1), (2, 1)])
def test_dragonfly_deals_its_global_cables_to_the_routers_evenly(groups: int, most: int) -> None:
    """The router that needs no local cable to reach a group is the one at the global cable."""
    found = routes(family_topology(f"dragonfly:a=4,p=1,h=2,groups={groups}"))
    cables: dict[int, set[int]] = {router: set() for router in range(4)}
    for (source, target), route in found.items():
        if source < 4 <= target and not any(name.startswith("group0:router") for name in route):
            cables[source].add(target // 4)
    assert sorted(group for joined in cables.values() for group in joined) == list(range(1, groups))
    assert max(len(joined) for joined in cables.values()) == most


def test_dragonfly_has_all_its_cables() -> None:
    """Hosts, all pairs of routers in a group, all pairs of groups; both ways."""
    topology = family_topology("dragonfly:a=4,p=2,h=2")
    assert len(topology.resources) == 2 * 72 + 9 * 4 * 3 + 9 * 8


# -- names that are wrong ----------------------------------------------------------------------------------------------

BROKEN = [
    ("ring", "topology 'ring': must say its size, such as ring:8"),
    ("ring:", "must say its size, such as ring:8"),
    ("ring:1", "ranks: must be a whole number >= 2, got 1"),
    ("ring:x", 'ranks: must be a whole number >= 2, got "x"'),
    ("ring:8,,", "options must read name=value, got ''"),
    ("ring:8,9", "ranks must be given once"),
    ("ring:8,alpha=1", r"field 'alpha' is unknown; did you mean 'alpha_us'\?"),
    ("ring:8,nodes=2", "field 'nodes' is unknown; known are alpha_us, beta_us_per_mb, ranks"),
    ("ring:8,alpha_us=-1", "alpha_us: must be a number >= 0, got -1"),
    ("ring:8,alpha_us=1e999", "alpha_us: must be a number >= 0, got Infinity"),
    ("torus:4x4,alpha_us=1e999/1", "alpha_s must be finite and >= 0, got inf"),
    ("ring:8,alpha_us=1/2", 'alpha_us: must be a number >= 0, got "1/2"'),
    ("torus:4x", 'shape: must be sizes of dimensions such as 4x4x4, got "4x"'),
    ("mesh:4x1", "shape: must be sizes of at least 2"),
    ("torus:4x4,beta_us_per_mb=1/2/3", "beta_us_per_mb: must be a number >= 0, or 2 of them split by /"),
    ("torus:9999x9999", "must have at most 4,000,000 links"),
    ("hypercube:31", r"dimensions: must be a whole number in 1\.\.30"),
    ("hypercube:30", "must have at most 4,000,000 links"),
    ("fat-tree:k=3", "k: must be even: half of a switch's ports go up, got 3"),
    ("fat-tree:k=999999998", "must have at most 4,000,000 links"),
    ("dragonfly:a=4", "field 'p' is missing"),
    ("dragonfly:a=4,p=2,h=2,groups=10", r"groups: must be a whole number in 2\.\.9, got 10"),
    ("hub-and-spoke:0", r"ranks: must be a whole number in 2\.\."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "message"), BROKEN, ids=[name for name, _ in BROKEN])
def test_broken_name_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_topology(name)
    assert "\n" not in str(error.value)


def test_size_is_not_said_twice() -> None:
    with pytest.raises(InputError, match="its name says its size, got 2 nodes besides; leave nodes out"):
        load_topology("ring:8", 2)
    assert load_topology("ring:8", 1).device_count == 8
