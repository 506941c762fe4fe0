"""The logical topology: the part of the physical one that a sketch leaves to the synthesiser (TACCL, section 5.4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.sketch.format import InterNode, Policy, Sketch
from gapless.encodings.taccl.symmetry.automorphisms import Automorphism, automorphism
from gapless.encodings.taccl.symmetry.rotations import rotation
from gapless.errors import InputError
from gapless.ir.collective import Collective
from gapless.topologies.ports.congestion import Congestion
from gapless.topologies.topology import Link, Topology

__all__ = ["Hyperedge", "LogicalTopology", "apply_sketch", "check_reach", "is_part"]


@dataclass(frozen=True)
class Hyperedge:
    """The links that stand for one switch of one node, and how many of them the routing should use."""

    policy: Policy
    links: tuple[int, ...]


@dataclass(frozen=True)
class LogicalTopology:
    """What the synthesiser works on.

    `topology` holds the links that the sketch keeps; a NIC that it splits is there as lanes. `allowed[c, l]`: bool,
    whether chunk c may travel on link l (a part of its sum as well, where it is reduced). `own_first[l]`: whether
    link l must carry its sender's own chunks first. `unused`: the symmetries of the sketch that the collective hasn't.
    `inside`: symmetries that bind sends within a part of the sketch's partition only; `is_between[l]`: whether link l
    joins two parts, None without a partition. `one_by_one`: a rank sends a chunk to one rank at a time; so it is
    backwards in time where parts are added up.
    """

    topology: Topology
    allowed: NDArray[np.bool_]
    hyperedges: tuple[Hyperedge, ...]
    symmetry: tuple[Automorphism, ...]
    own_first: NDArray[np.bool_]
    unused: tuple[str, ...] = ()
    one_by_one: bool = False
    inside: tuple[Automorphism, ...] = ()
    is_between: NDArray[np.bool_] | None = None


def apply_sketch(topology: Topology, collective: Collective, sketch: Sketch | None) -> LogicalTopology:
    """The logical topology of a sketch, all of the physical one without a sketch.

    Raises `InputError` if the sketch is for another number of nodes, names a rank that isn't there, splits a NIC into
    more than it has, leaves a chunk no path to a rank that needs it, or asks for a symmetry that isn't one.
    """
    if sketch is None:
        allowed = np.broadcast_to(np.bool_(True), (collective.chunk_count, len(topology.links)))  # takes no memory
        own_first = np.zeros(len(topology.links), dtype=np.bool_)
        logical = LogicalTopology(topology, allowed, (), (), own_first)
        if nx.is_strongly_connected(topology.to_networkx()):
            return logical
    else:
        logical = _apply(topology, collective, sketch)
    if not collective.reduces:  # else phase by phase
        where = f"topology {topology.name!r}" if sketch is None else f"sketch {sketch.name}"
        check_reach(logical, collective, where, "; a link goes one way without both_ways" if sketch is None else "")
    return logical


def _apply(topology: Topology, collective: Collective, sketch: Sketch) -> LogicalTopology:
    where = f"sketch {sketch.name}"
    nodes = topology.node_count
    if sketch.node_count not in (None, nodes):
        raise InputError(
            f"{where}: nnodes is {sketch.node_count}, the topology has {nodes} nodes; give --nodes {sketch.node_count}"
        )
    _check_ranks(topology, sketch, where)
    links = [link for link in topology.links if _same_node(topology, link)]
    resources = list(topology.resources)
    if nodes > 1:
        if sketch.inter_node is None:
            raise InputError(f"{where}: internode_sketch is missing, and the topology has {nodes} nodes")
        links += _inter_node_links(topology, sketch.inter_node, resources, where)
    links, hyperedges = _switched(topology, links, resources, sketch, where)
    congestion = _with_lanes(topology, resources)
    logical_links = replace(topology, links=tuple(links), resources=tuple(resources), congestion=congestion)
    allowed = _allowed(logical_links, collective, sketch.inter_node)
    own_first = np.full(len(links), sketch.inter_node is not None and sketch.inter_node.enforce_ordering)
    symmetry = _symmetry(logical_links, collective, sketch, allowed, where)
    kept = tuple(found for found in symmetry.values() if found is not None)
    unused = tuple(title for title, found in symmetry.items() if found is None)
    is_between = _is_between(logical_links, sketch, kept, where)
    if is_between is not None and not collective.reduces and max(map(len, collective.destinations)) <= 1:
        kept, unused = (), tuple(symmetry)  # each chunk takes a path of its own: symmetries bind whole paths
    return LogicalTopology(
        topology=logical_links,
        allowed=allowed,
        hyperedges=hyperedges,
        symmetry=kept if is_between is None else (),
        own_first=own_first & logical_links.is_inter_node,
        unused=unused,
        inside=() if is_between is None else kept,
        is_between=is_between,
    )


def _check_ranks(topology: Topology, sketch: Sketch, where: str) -> None:
    local_count = topology.ranks_per_node

    def check(title: str, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if not 0 <= rank < local_count:
                raise InputError(
                    f"{where}: {title}: ranks must be in 0..{local_count - 1} (local to a node), got {rank}"
                )

    for switch in sketch.switches:
        check("switches", switch)
    if sketch.inter_node is None:
        return
    receivers = sketch.inter_node.receivers(local_count)
    check("internode_conn", receivers)
    for ranks in receivers.values():
        check("internode_conn", ranks)
    for origin, senders in (sketch.inter_node.relays or {}).items():
        check("gpus_to_sender_rev_map", (origin, *senders))
    for sender in sketch.inter_node.beta_split or {}:
        check("beta_split", [sender])
    if sketch.inter_node.beta_split is not None:
        for sender in sorted(set(receivers) - set(sketch.inter_node.beta_split)):
            raise InputError(
                f"{where}: beta_split: must name every sender of internode_conn, sender {sender} is missing"
            )
    for origin in range(local_count):
        relays = sketch.inter_node.senders_of(origin)
        if topology.node_count > 1 and relays is not None and not set(relays) & set(receivers):
            raise InputError(
                f"{where}: the relay of rank {origin} must be a sender of internode_conn "
                f"({', '.join(map(str, receivers))}), got {', '.join(map(str, relays)) or 'none'}"
            )


def _inter_node_links(topology: Topology, sketch: InterNode, resources: list[str], where: str) -> list[Link]:
    """The links between nodes that the sketch keeps, with the share of the NIC that each has."""
    local_count = topology.ranks_per_node
    receivers = sketch.receivers(local_count)
    kept = [
        link
        for link in topology.links
        if not _same_node(topology, link) and link.target % local_count in receivers.get(link.source % local_count, ())
    ]
    lanes = {name: number for number, name in enumerate(resources)}
    joined = {(link.source % local_count, link.target % local_count) for link in kept}  # rails join some pairs only
    connections = [(sender, end) for sender, ends in receivers.items() for end in ends if (sender, end) in joined]
    splits = {pair: _split(topology, sketch, pair, connections) for pair in connections}
    _check_shares(topology, sketch, splits, where)
    links = []
    for link in kept:
        pair = (link.source % local_count, link.target % local_count)
        if splits[pair] == 1:
            links.append(link)
            continue
        lane = f"{pair[0]}" if sketch.beta_split is not None else f"{pair[0]}-{pair[1]}"
        # A link names the NICs that it leaves by and comes in by first and last. What lies between, an uplink, is not
        # split: it stays one resource that every connection takes whole.
        names = [
            topology.resources[resource] + ("" if 0 < k < len(link.resources) - 1 else f":lane{lane}")
            for k, resource in enumerate(link.resources)
        ]
        numbers = tuple(lanes.setdefault(name, len(lanes)) for name in names)
        links.append(Link(link.source, link.target, link.alpha_s, link.beta_s_per_byte * splits[pair], numbers))
    resources[:] = list(lanes)
    return links


def _with_lanes(topology: Topology, resources: list[str]) -> tuple[Congestion, ...]:
    """The congestion of a topology whose NICs are split: the connections of all lanes of a port count together."""
    lanes: dict[str, list[int]] = {}
    for lane in range(len(topology.resources), len(resources)):
        lanes.setdefault(resources[lane].partition(":lane")[0], []).append(lane)
    return tuple(
        replace(
            one,
            ports=tuple(
                (*port, *(lane for number in port for lane in lanes.get(topology.resources[number], ())))
                for port in one.ports
            ),
        )
        for one in topology.congestion
    )


def _split(topology: Topology, sketch: InterNode, pair: tuple[int, int], connections: list[tuple[int, int]]) -> float:
    """1/n of the NIC's bandwidth is this connection's: as `beta_split` says, else an even share of the busier NIC.

    Ranks that are joined without a NIC, as in a torus, share nothing.
    """
    nic = _nic_of_local_rank(topology)
    if not {*pair} <= nic.keys():
        return 1
    if sketch.beta_split is not None:
        return sketch.beta_split[pair[0]]
    out = sum(nic.get(sender) == nic[pair[0]] for sender, _ in connections)
    into = sum(nic.get(receiver) == nic[pair[1]] for _, receiver in connections)
    return max(out, into)


def _check_shares(topology: Topology, sketch: InterNode, splits: dict[tuple[int, int], float], where: str) -> None:
    """The lanes of a NIC must not add up to more than the NIC (whole NICs are taken in turn instead)."""
    nic = _nic_of_local_rank(topology)
    for side in (0, 1):
        shares: dict[int, dict[object, float]] = {}
        for pair, split in splits.items():
            if pair[side] not in nic:
                continue
            lane = pair[0] if sketch.beta_split is not None else pair
            shares.setdefault(nic[pair[side]], {})[lane] = 1 / split
        for number, of_lane in sorted(shares.items()):
            if sum(of_lane.values()) > 1 + 1e-9 and min(of_lane.values()) < 1:
                raise InputError(
                    f"{where}: beta_split: the lanes of NIC {number} must share its bandwidth, "
                    f"they add up to {100 * sum(of_lane.values()):.0f} %"
                )


def _switched(
    topology: Topology, links: list[Link], resources: list[str], sketch: Sketch, where: str
) -> tuple[list[Link], tuple[Hyperedge, ...]]:
    """Mark the links of each switch-hyperedge; a rank sends, and receives, one transfer at a time through a switch.

    A set of ranks that stands k times is k planes of one switch: k times the bandwidth, as in TACCL's own reader.
    """
    planes: dict[frozenset[int], int] = {}
    for switch in sketch.switches:
        key = frozenset(switch)
        for other in planes:
            if key & other and key != other:
                raise InputError(
                    f"{where}: switches: two switches must be equal or share no rank, got {sorted(key & other)} in both"
                )
        planes[key] = planes.get(key, 0) + 1
    policies = {frozenset(switch): policy for switch, policy in zip(sketch.switches, sketch.policies, strict=True)}
    local_count = topology.ranks_per_node
    lanes = {name: number for number, name in enumerate(resources)}
    behind = {(s.node, frozenset(r % local_count for r in s.ranks)) for s in topology.switches}
    hyperedges = []
    for node in range(topology.node_count):
        for number, (ranks, count) in enumerate(planes.items()):
            members = [k for k, link in enumerate(links) if _inside(link, node, ranks, local_count)]
            if not members:
                raise InputError(f"{where}: switches[{number}]: the topology has no link between ranks {sorted(ranks)}")
            for k in members:
                sides = links[k].resources
                if (node, ranks) not in behind:  # the topology doesn't know of this switch: the sketch adds its sides
                    names = (
                        f"node{node}:hyperedge{number}:out{links[k].source}",
                        f"node{node}:hyperedge{number}:in{links[k].target}",
                    )
                    sides += tuple(lanes.setdefault(name, len(lanes)) for name in names)
                links[k] = replace(links[k], beta_s_per_byte=links[k].beta_s_per_byte / count, resources=sides)
            hyperedges.append(Hyperedge(policies[ranks], tuple(members)))
    resources[:] = list(lanes)
    return links, tuple(hyperedges)


def _allowed(topology: Topology, collective: Collective, sketch: InterNode | None) -> NDArray[np.bool_]:
    """A chunk leaves a node by its relays and is never sent back to the node that it came from.

    Parts of a sum take the relays of the root of their chunk, towards it and away from it.
    """
    allowed = np.ones((collective.chunk_count, len(topology.links)), dtype=np.bool_)
    if sketch is None:
        return allowed
    local_count = topology.ranks_per_node
    inter_node = np.flatnonzero(topology.is_inter_node)
    local_sender = topology.link_source[inter_node] % local_count
    target_node = topology.link_target[inter_node] // local_count
    for chunk, owner in enumerate(collective.roots):
        senders = sketch.senders_of(owner % local_count)
        away = np.asarray(collective.reduces | (target_node != owner // local_count))
        allowed[chunk, inter_node] = away if senders is None else away & np.isin(local_sender, senders)
    return allowed


def _symmetry(
    topology: Topology, collective: Collective, sketch: Sketch, allowed: NDArray[np.bool_], where: str
) -> dict[str, Automorphism | None]:
    """The sketch's symmetries by name, None for those that the collective hasn't."""
    found: dict[str, Automorphism | None] = {}
    for number, (offset, group) in enumerate(sketch.symmetry):
        name = f"[{offset}, {group or 'all'}]"
        title = f"{where}: symmetry_offsets[{number}] = {name}"
        group = group or topology.device_count
        if topology.device_count % group:
            raise InputError(f"{title}: the group size must divide the {topology.device_count} ranks")
        if offset % group:  # a rotation by the whole group moves nothing
            permutation = rotation(offset, group, topology.device_count)
            found[name] = automorphism(permutation, topology, collective, allowed, title)
    for number, images in enumerate(sketch.permutations):
        name = f"symmetry_permutations[{number}]"
        title = f"{where}: {name}"
        if sorted(images) != list(range(topology.device_count)):
            raise InputError(f"{title}: must hold each of the {topology.device_count} ranks once")
        found[name] = automorphism(np.array(images, dtype=np.int64), topology, collective, allowed, title)
    return found


def _is_between(
    topology: Topology, sketch: Sketch, symmetry: Sequence[Automorphism], where: str
) -> NDArray[np.bool_] | None:
    """Whether each link joins two parts of the sketch's partition, bool; None without one."""
    if not sketch.partition:
        return None
    title, count = f"{where}: symmetry_partition", topology.device_count
    if sorted(rank for part in sketch.partition for rank in part) != list(range(count)):
        raise InputError(f"{title}: must hold each of the {count} ranks once")
    parts = {frozenset(part) for part in sketch.partition}
    for number, part in enumerate(sketch.partition):
        for images in symmetry:
            image = frozenset(images.ranks[list(part)].tolist())
            if image not in parts:
                raise InputError(f"{title}[{number}]: a symmetry must map it to a part, it becomes {sorted(image)}")
    part_of = np.empty(count, dtype=np.int64)
    for number, part in enumerate(sketch.partition):
        part_of[list(part)] = number
    return np.asarray(part_of[topology.link_source] != part_of[topology.link_target])


def is_part(logical: Topology, machine: Topology) -> bool:
    """Whether each logical link is one of the machine's, as slow or slower, and holds what that holds or more."""
    held: dict[tuple[int, int], list[Link]] = {}
    for link in machine.links:
        held.setdefault((link.source, link.target), []).append(link)
    return all(
        any(
            own.alpha_s <= link.alpha_s
            and own.beta_s_per_byte <= link.beta_s_per_byte
            and {*own.resources} <= {*link.resources}
            for own in held[link.source, link.target]
        )
        for link in logical.links
    )


def check_reach(logical: LogicalTopology, collective: Collective, where: str, hint: str = "") -> None:
    """Raise `InputError` where a chunk, of a collective that doesn't reduce, has no path to a rank that needs it.

    The message opens with `where`, and ends with `hint`.
    """
    networks: dict[bytes, nx.DiGraph[int]] = {}  # most sketches allow most chunks the same links
    reached: dict[tuple[int, bytes], set[int]] = {}
    for chunk, (owner, wanted) in enumerate(zip(collective.owners, collective.destinations, strict=True)):
        links = logical.allowed[chunk]
        key = (owner, links.tobytes())
        if key[1] not in networks:
            networks[key[1]] = logical.topology.to_networkx(links=np.flatnonzero(links).tolist())
        if key not in reached:
            reached[key] = nx.descendants(networks[key[1]], owner)
        for rank in wanted:
            if rank not in reached[key]:
                raise InputError(
                    f"{where}: leaves ranks apart: chunk {chunk} of rank {owner} has no path to rank {rank}, "
                    f"it reaches only {len(reached[key])} of {collective.rank_count - 1} ranks{hint}"
                )


def _nic_of_local_rank(topology: Topology) -> dict[int, int]:
    return {rank: number for number, nic in enumerate(topology.nics) if nic.node == 0 for rank in nic.ranks}


def _same_node(topology: Topology, link: Link) -> bool:
    return topology.node_of_device[link.source] == topology.node_of_device[link.target]


def _inside(link: Link, node: int, ranks: frozenset[int], local_count: int) -> bool:
    ends = (link.source, link.target)
    return all(end // local_count == node and end % local_count in ranks for end in ends)
