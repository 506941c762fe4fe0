"""The topology of a plan file: devices, links with what they share, and what connections cost their ports."""

from __future__ import annotations

import math
from typing import Any

from gapless.errors import InputError
from gapless.io.columns import float_column, int_column, ragged_data, read_ragged, texts
from gapless.io.record import Record
from gapless.ir.schedule import Ragged
from gapless.topologies.congestion import Congestion, read_slowdown
from gapless.topologies.topology import Links, Nic, Switch, Topology

__all__ = ["read_topology", "topology_data"]


def topology_data(topology: Topology) -> dict[str, Any]:
    """What `read_topology` reads back."""
    shared = Ragged(topology.held_start, topology.held)
    return {
        "name": topology.name,
        "node_of_device": list(topology.node_of_device),
        "memory_bytes": [None if math.isinf(capacity) else int(capacity) for capacity in topology.memory_bytes],
        "engines": [list(engine) for engine in topology.engines],
        "resources": list(topology.resources),
        "nics": [{"node": nic.node, "ranks": list(nic.ranks)} for nic in topology.nics],
        "switches": [{"node": switch.node, "ranks": list(switch.ranks)} for switch in topology.switches],
        "links": {
            "source": topology.link_source,
            "target": topology.link_target,
            "alpha_s": topology.alpha_s,
            "beta_s_per_byte": topology.beta_s_per_byte,
            "resources": ragged_data(shared),
        },
        **({"congestion": [_congestion_data(one) for one in topology.congestion]} if topology.congestion else {}),
    }


def _congestion_data(one: Congestion) -> dict[str, Any]:
    ports, table = [list(port) for port in one.ports], one.table
    return {"ports": ports, "connections": list(table.connections), "slowdown": list(table.slowdown)}


def read_topology(record: Record) -> Topology:
    """The topology of a plan. Raises `InputError` that names the field."""
    memory = record.array("memory_bytes")
    engines = record.array("engines")
    for engine in engines:
        if not (isinstance(engine, list) and len(engine) == 2 and isinstance(engine[1], str)):
            raise record.fail("engines", "a list of [device, name]", engine)
    topology = Topology(
        name=record.text("name"),
        node_of_device=record.integers("node_of_device", 0),
        memory_bytes=tuple(
            math.inf if capacity is None else record.whole("memory_bytes", capacity, 0) for capacity in memory
        ),
        engines=tuple((record.whole("engines", device, 0), name) for device, name in engines),
        resources=tuple(texts(record, "resources")),
        nics=tuple(Nic(*_read_group(entry)) for entry in record.records("nics")),
        switches=tuple(Switch(*_read_group(entry)) for entry in record.records("switches")),
        links=_read_links(record.record("links")),
        congestion=tuple(_read_congestion(entry) for entry in record.records("congestion", default=[])),
    )
    record.close()
    return topology


def _read_congestion(entry: Record) -> Congestion:
    ports = entry.array("ports")
    for port in ports:
        if not isinstance(port, list):
            raise entry.fail("ports", "a list of lists of resources", port)
    numbers = tuple(tuple(entry.whole("ports", resource, 0) for resource in port) for port in ports)
    return Congestion(numbers, read_slowdown(entry))


def _read_group(entry: Record) -> tuple[int, tuple[int, ...]]:
    node, ranks = entry.integer("node", 0), entry.integers("ranks", 0)
    entry.close()
    return node, ranks


def _read_links(record: Record) -> Links:
    source, target = int_column(record, "source"), int_column(record, "target")
    alpha_s, beta_s = float_column(record, "alpha_s"), float_column(record, "beta_s_per_byte")
    shared = read_ragged(record.record("resources"))
    record.close()
    if not len(source) == len(target) == len(alpha_s) == len(beta_s) == len(shared):
        raise InputError(f"{record.where}: all columns must have {len(source)} entries, as source has")
    return Links(source, target, alpha_s, beta_s, shared.start, shared.values)
