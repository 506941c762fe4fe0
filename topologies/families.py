"""Generated topologies by name: `ring:8`, `torus:4x4x4`, `fat-tree:k=4`, with costs behind a comma.

`family:size,alpha_us=A,beta_us_per_mb=B`; A and B are one number for all links, or one for each dimension, split by
`/`: `torus:4x4,beta_us_per_mb=20/40`. A fat tree and a dragonfly have three, for routes that stay at one switch, in one
pod or group, or pass between them. Every rank is a node of its own, so that chunks may travel together on every link.
Links go both ways.

Without costs, a link is a single NVLink of an NDv2 (0.7 us, 46 us/MB), and in a fat tree or a dragonfly its NIC
(1.7 us, 106 us/MB): Table 5.1 of the chapter on communication sketches.

A switch of a fat tree or a dragonfly forwards and never stores, so it is no device of a `Topology`: two hosts have one
link, which holds the output of the one, the input of the other, and each cable between them in the direction of travel,
all exclusive (one transfer at a time). Routes are static. Real networks share a cable between flows and may route
adaptively; here, transfers that meet on a cable take turns, which is what sharing costs in the sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.topologies.links import LinkBuilder, refuse_too_many
from gapless.topologies.topology import Nic, Topology
from gapless.units import BYTES_PER_MB, S_PER_US

__all__ = [
    "FAMILIES",
    "Family",
    "dragonfly_routes",
    "family_topology",
    "fat_tree_routes",
    "is_generated",
    "read_options",
]

_NVLINK_US = (0.7, 46.0)
_NIC_US = (1.7, 106.0)
_COST = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Family:
    """A family of topologies. `positional`: the option that the value without `=` is; `what`: one line for people."""

    example: str
    what: str
    positional: str
    build: Callable[[str, Record], Topology]


def is_generated(text: str) -> bool:
    """Whether a name such as `torus:4x4` is one of a family, so that it says its size."""
    return text.partition(":")[0] in FAMILIES


def family_topology(text: str) -> Topology:
    """The topology that a name such as `torus:4x4x4` stands for. Raises `InputError` naming the option."""
    name, _, rest = text.partition(":")
    family = FAMILIES[name]
    where = f"topology {text!r}"
    if not rest.strip():
        raise InputError(f"{where}: must say its size, such as {family.example}")
    record = read_options(rest, where, family.positional)
    topology = family.build(text, record)
    record.close()
    return topology


def read_options(text: str, where: str, positional: str = "") -> Record:
    """`4x4,alpha_us=0.7` as a record; numbers, `true` and `false` are read as such, all else as text."""
    data: dict[str, object] = {}
    for part in text.split(","):
        key, given, value = (piece.strip() for piece in part.partition("="))
        if not given:
            key, value = positional, key
        if not key or not value:
            raise InputError(f"{where}: options must read name=value, got {part.strip()!r}")
        if key in data:
            raise InputError(f"{where}: {key} must be given once")
        data[key] = _value(value)
    return Record(data, where)


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    return float(text) if _COST.fullmatch(text) else text


# -- the families ------------------------------------------------------------------------------------------------------


def _line_or_ring(text: str, record: Record, wraps: bool) -> Topology:
    return _grid(text, record, (record.integer("ranks", 2),), wraps)


def _mesh_or_torus(text: str, record: Record, wraps: bool) -> Topology:
    shape = str(record.raw("shape"))
    if not re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9})*", shape):
        raise record.fail("shape", "sizes of dimensions such as 4x4x4", shape)
    sizes = tuple(int(size) for size in shape.split("x"))
    if min(sizes) < 2:
        raise record.fail("shape", "sizes of at least 2", shape)
    return _grid(text, record, sizes, wraps)


def _hypercube(text: str, record: Record) -> Topology:
    return _grid(text, record, (2,) * record.integer("dimensions", 1, 30), wraps=False)


def _grid(text: str, record: Record, sizes: tuple[int, ...], wraps: bool) -> Topology:
    """Neighbours along each dimension; ranks are numbered with the last dimension fastest."""
    ranks = prod(sizes)
    refuse_too_many(f"topology {text!r}", 2 * len(sizes) * ranks, "ask for a smaller one")
    costs = _costs(record, len(sizes), _NVLINK_US)
    rank = np.arange(ranks).reshape(sizes)
    ends, dimension = [], []
    for axis, size in enumerate(sizes):
        closes = wraps and size > 2  # two ranks are joined once, not twice
        first, second = (rank, np.roll(rank, -1, axis)) if closes else (
            rank.take(range(size - 1), axis), rank.take(range(1, size), axis)
        )  # fmt: skip
        ends += [np.stack([first, second]).reshape(2, -1), np.stack([second, first]).reshape(2, -1)]
        dimension.append(np.full(2 * first.size, axis))
    return _direct(text, ranks, np.concatenate(ends, axis=1), np.concatenate(dimension), costs)


def _hub_and_spoke(text: str, record: Record) -> Topology:
    ranks = record.integer("ranks", 2, 10**6)
    spoke, hub = np.arange(1, ranks), np.zeros(ranks - 1, dtype=np.int64)
    ends = np.concatenate([np.stack([hub, spoke]), np.stack([spoke, hub])], axis=1)
    return _direct(text, ranks, ends, np.zeros(2 * (ranks - 1), dtype=np.int64), _costs(record, 1, _NVLINK_US))


def _direct(text: str, ranks: int, ends: Ids, dimension: Ids, costs: tuple[Floats, Floats]) -> Topology:
    """Independent links with the costs of their dimension, in order of their ends."""
    order = np.lexsort((ends[1], ends[0]))
    builder = LinkBuilder()
    alpha_s, beta_s = (cost[dimension[order]] for cost in costs)
    builder.add(ends[0, order], ends[1, order], alpha_s, beta_s)
    links, _ = builder.finish()
    return Topology(text, tuple(range(ranks)), links)


def _fat_tree(text: str, record: Record) -> Topology:
    ports = record.integer("k", 2)
    if ports % 2:
        raise record.fail("k", "even: half of a switch's ports go up", ports)
    return _switched(text, record, ports**3 // 4, partial(fat_tree_routes, ports))


def _dragonfly(text: str, record: Record) -> Topology:
    routers, hosts, cables = (record.integer(key, 1, 10**6) for key in ("a", "p", "h"))
    groups = record.integer("groups", 2, routers * cables + 1, default=routers * cables + 1)
    return _switched(text, record, groups * routers * hosts, partial(dragonfly_routes, groups, routers, hosts))


def _switched(
    text: str, record: Record, hosts: int, routes: Callable[[Ids, Ids], tuple[Ids, Ids, list[str]]]
) -> Topology:
    """Hosts behind switches: a link for each pair, which holds the ports and cables of its route."""
    refuse_too_many(f"topology {text!r}", hosts * (hosts - 1), "ask for a smaller one")
    if hosts < 2:
        raise InputError(f"topology {text!r}: must have at least 2 hosts, got {hosts}")
    costs = _costs(record, 3, _NIC_US)
    builder = LinkBuilder()
    source, target = np.nonzero(~np.eye(hosts, dtype=np.bool_))
    level, keys, names = routes(source, target)
    builder.keys(len(names))
    builder.add(source, target, costs[0][level], costs[1][level], keys)
    links, used = builder.finish()
    return Topology(
        name=text,
        node_of_device=tuple(range(hosts)),
        links=links,
        resources=tuple(names[key] for key in used.tolist()),
        nics=tuple(Nic(host, (host,)) for host in range(hosts)),
    )


def _costs(record: Record, count: int, default_us: tuple[float, float]) -> tuple[Floats, Floats]:
    """Seconds, and seconds per byte, of each dimension."""
    alpha_us = _cost(record, "alpha_us", count, default_us[0])
    beta_us_per_mb = _cost(record, "beta_us_per_mb", count, default_us[1])
    return alpha_us * S_PER_US, beta_us_per_mb * (S_PER_US / BYTES_PER_MB)


def _cost(record: Record, key: str, count: int, default: float) -> Floats:
    value = record.raw(key, default=default)
    parts = str(value).split("/")
    if not all(_COST.fullmatch(part) for part in parts) or len(parts) not in (1, count):
        rule = "a number >= 0" + (f", or {count} of them split by /" if count > 1 else "")
        raise record.fail(key, rule, value)
    return np.array([float(part) for part in parts] * (count // len(parts)))


FAMILIES: dict[str, Family] = {
    "ring": Family("ring:8", "n ranks in a ring", "ranks", partial(_line_or_ring, wraps=True)),
    "line": Family("line:8", "n ranks in a line", "ranks", partial(_line_or_ring, wraps=False)),
    "hub-and-spoke": Family("hub-and-spoke:8", "rank 0 is joined with each other rank", "ranks", _hub_and_spoke),
    "torus": Family(
        "torus:4x4x4", "a grid of any number of dimensions that closes on itself", "shape",
        partial(_mesh_or_torus, wraps=True),
    ),
    "mesh": Family(
        "mesh:3x5", "a grid of any number of dimensions", "shape", partial(_mesh_or_torus, wraps=False)
    ),
    "hypercube": Family("hypercube:4", "2^d ranks, joined where one bit differs", "dimensions", _hypercube),
    "fat-tree": Family(
        "fat-tree:k=4", "k^3/4 hosts under three levels of k-port switches, routed statically", "k", _fat_tree
    ),
    "dragonfly": Family(
        "dragonfly:a=4,p=2,h=2", "groups of a routers with p hosts and h global cables each, routed minimally", "a",
        _dragonfly,
    ),
}  # fmt: skip
"""The families by name."""


def fat_tree_routes(ports: int, source: Ids, target: Ids) -> tuple[Ids, Ids, list[str]]:
    """Routes in the fat tree of `ports`-port switches (Al-Fares et al., SIGCOMM 2008): full bisection, three levels.

    A pod has ports/2 edge and ports/2 aggregation switches; there are ports/2 groups of ports/2 core switches. The
    target chooses the route up: its place at its edge switch names the aggregation switch, its edge switch names the
    core switch of that group. So all traffic to a host comes down one route, and routes to two hosts share no cable
    downwards.

    Returns, for each pair: the level of the route (0 at one edge switch, 1 in one pod, 2 across), the keys of what it
    holds, int64 of shape (pairs, 6) with -1 for none, and the names of all keys.
    """
    half = ports // 2
    hosts = ports * half * half
    pod_s, edge_s = source // half**2, source // half % half
    pod_t, edge_t, place = target // half**2, target // half % half, target % half
    level = np.where(pod_s != pod_t, 2, np.where(edge_s != edge_t, 1, 0))
    cables = ports * half * half  # of one kind: (pod, switch, port)
    edge_up = 2 * hosts + (pod_s * half + edge_s) * half + place
    core_up = 2 * hosts + cables + (pod_s * half + place) * half + edge_t
    core_down = 2 * hosts + 2 * cables + (pod_t * half + place) * half + edge_t
    edge_down = 2 * hosts + 3 * cables + (pod_t * half + place) * half + edge_t
    in_pod, across = level >= 1, level == 2
    keys = [
        2 * source,
        np.where(in_pod, edge_up, -1),
        np.where(across, core_up, -1),
        np.where(across, core_down, -1),
        np.where(in_pod, edge_down, -1),
        2 * target + 1,
    ]
    triples = [(pod, switch, port) for pod in range(ports) for switch in range(half) for port in range(half)]
    names = [
        *_host_names(hosts),
        *(f"pod{pod}:edge{switch}:up{port}" for pod, switch, port in triples),
        *(f"pod{pod}:aggregation{switch}:up{port}" for pod, switch, port in triples),
        *(f"core{switch * half + port}:down{pod}" for pod, switch, port in triples),
        *(f"pod{pod}:aggregation{switch}:down{port}" for pod, switch, port in triples),
    ]
    return level, np.stack(keys, axis=1), names


def dragonfly_routes(
    groups: int, routers: int, hosts: int, source: Ids, target: Ids
) -> tuple[Ids, Ids, list[str]]:  # fmt: skip
    """Minimal routes in a dragonfly (Kim et al., ISCA 2008): a local cable, a global one, a local one, as needed.

    All routers of a group are joined, and one global cable joins each pair of groups; a group's global cables are dealt
    to its routers evenly, the next groups first. `hosts` are those of one router.

    Returns, for each pair: the level of the route (0 at one router, 1 in one group, 2 across), the keys of what it
    holds, int64 of shape (pairs, 5) with -1 for none, and the names of all keys.
    """
    count = groups * routers * hosts
    group_s, router_s = source // (routers * hosts), source // hosts % routers
    group_t, router_t = target // (routers * hosts), target // hosts % routers
    across = group_s != group_t
    level = np.where(across, 2, np.where(router_s != router_t, 1, 0))

    def gateway(group: Ids, other: Ids) -> Ids:
        """The router of `group` at the cable to the other group."""
        return np.asarray((other - group - 1) % groups * routers // (groups - 1))

    def local(group: Ids, router: Ids, other: Ids) -> Ids:
        return np.where(router == other, -1, 2 * count + (group * routers + router) * routers + other)

    leaves_by = np.where(across, gateway(group_s, group_t), router_t)
    enters_by = np.where(across, gateway(group_t, group_s), router_t)
    first_global = 2 * count + groups * routers * routers
    keys = [
        2 * source,
        local(group_s, router_s, leaves_by),
        np.where(across, first_global + group_s * groups + group_t, -1),
        local(group_t, enters_by, router_t),
        2 * target + 1,
    ]
    names = [
        *_host_names(count),
        *(f"group{g}:router{r}:to{s}" for g in range(groups) for r in range(routers) for s in range(routers)),
        *(f"group{g}:to{other}" for g in range(groups) for other in range(groups)),
    ]
    return level, np.stack(keys, axis=1), names


def _host_names(hosts: int) -> list[str]:
    return [f"host{host}:{side}" for host in range(hosts) for side in ("out", "in")]
