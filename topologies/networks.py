"""Networks whose switches are no devices: which ports and cables the route between two hosts holds.

A switch forwards and never stores, so it is no device of a `Topology`: two hosts have one link, which holds the output
of the one, the input of the other, and each cable between them in the direction of travel, all exclusive (one transfer
at a time). Routes are static. Real networks share a cable between flows and may route adaptively; here, transfers that
meet on a cable take turns, which is what sharing costs in the sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["dragonfly_routes", "fat_tree_routes"]

Ids = NDArray[np.int64]


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
