"""The graph and the topology of a plan file.

The graph: tensors, ops with their implementations, where copies are at first and in the end. The topology: devices,
links with what they share, and what connections cost their ports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

import numpy as np

from gapless.errors import InputError
from gapless.io.columns import float_column, int_column, ragged_data, read_ragged
from gapless.io.record import Record, is_number
from gapless.ir.graph import Budget, Graph, Implementation, Op, Placement
from gapless.ir.schedule import Ragged
from gapless.topologies.ports.congestion import Congestion, read_slowdown
from gapless.topologies.ports.switch_groups import Reduction, SwitchGroup
from gapless.topologies.topology import Links, Nic, Switch, Topology

__all__ = ["graph_data", "read_graph", "read_topology", "topology_data"]

_MANY_OPS = 5000
"""From so many plain ops on, files have them as columns."""
_MOST_CONTRIBUTION = 2**20
"""A set of contributions has a bit for each number up to the highest."""


def graph_data(graph: Graph) -> dict[str, object]:
    """What `read_graph` reads back."""
    return {
        "size_bytes": graph.size_bytes,
        "tensor_names": list(graph.tensor_names),
        "ops": _op_columns(graph.ops) or [_op_data(op) for op in graph.ops],
        "initial": _placement_data(graph.initial),
        "required": _placement_data(graph.required),
        **({"budgets": [{"name": one.name, "limit": one.limit} for one in graph.budgets]} if graph.budgets else {}),
    }


def _op_columns(ops: Sequence[Op]) -> dict[str, object]:
    """Many ops that each have one plain implementation, as columns, which take a fraction of the memory to read; empty
    for others.
    """
    if len(ops) < _MANY_OPS or not all(map(_is_plain, ops)):
        return {}
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(op.kind for op in ops))}
    only = [op.implementations[0] for op in ops]
    return {
        "names": [op.name for op in ops],
        "kinds": list(kinds),
        "kind": np.array([kinds[op.kind] for op in ops], dtype=np.int64),
        "duration_s": np.array([one.duration_s for one in only]),
        "inputs": ragged_data(Ragged.of(op.inputs for op in ops)),
        "outputs": ragged_data(Ragged.of(op.outputs for op in ops)),
        "budgets": ragged_data(Ragged.of([budget for budget, _ in one.spends] for one in only)),
        "amounts": np.array([amount for one in only for _, amount in one.spends], dtype=np.float64),
    }


def _is_plain(op: Op) -> bool:
    """Whether an op has one implementation, and it and the op say nothing but times, tensors and what is spent."""
    if len(op.implementations) != 1:
        return False
    one = op.implementations[0]
    return op == Op(op.name, op.inputs, op.outputs, op.implementations, op.kind) and one == Implementation(
        one.duration_s, spends=one.spends
    )


def _read_op_columns(record: Record) -> tuple[Op, ...]:
    names, kinds = record.texts("names"), record.texts("kinds")
    kind, duration_s, amounts = (
        int_column(record, "kind"), float_column(record, "duration_s"), float_column(record, "amounts")
    )  # fmt: skip
    inputs, outputs, budgets = (read_ragged(record.record(name)) for name in ("inputs", "outputs", "budgets"))
    record.close()
    columns = (kind, duration_s, inputs, outputs, budgets)
    if {len(column) for column in columns} != {len(names)} or len(amounts) != len(budgets.values):
        raise InputError(f"{record.where}: all columns must have {len(names)} entries, as names has")
    if len(names) and not 0 <= kind.min() <= kind.max() < len(kinds):
        raise record.fail("kind", f"numbers of the {len(kinds)} kinds, from 0", kind.tolist())
    spent = list(zip(budgets.values.tolist(), amounts.tolist(), strict=True))
    lists = ([part.values[a:b].tolist() for a, b in pairwise(part.start.tolist())] for part in (inputs, outputs))
    return tuple(
        Op(name, tuple(read), tuple(written), (Implementation(took_s, spends=tuple(spent[first:end])),), kinds[number])
        for name, read, written, took_s, number, (first, end) in zip(
            names, *lists, duration_s.tolist(), kind.tolist(), pairwise(budgets.start.tolist()), strict=True
        )
    )


def _op_data(op: Op) -> dict[str, object]:
    return {
        "name": op.name,
        "kind": op.kind,
        "inputs": list(op.inputs),
        "outputs": list(op.outputs),
        "adds": op.adds,
        "reduces": op.reduces,
        "needs": {str(tensor): hex(bits) for tensor, bits in sorted(op.needs.items())},
        **({"updates": list(op.updates)} if op.updates else {}),
        "implementations": [
            {
                "name": implementation.name,
                "duration_s": implementation.duration_s,
                "workspace_bytes": implementation.workspace_bytes,
                "inputs": None if implementation.inputs is None else list(implementation.inputs),
                "overwrites": list(implementation.overwrites),
                **({} if implementation.power_w is None else {"power_w": implementation.power_w}),
                **({"spends": [list(pair) for pair in implementation.spends]} if implementation.spends else {}),
            }
            for implementation in op.implementations
        ],
    }


def _placement_data(placement: Placement) -> dict[str, object]:
    return {
        "tensors": placement.tensors,
        "devices": placement.devices,
        "contributions": None if placement.contributions is None else _sets_data(placement.contributions),
    }


def _sets_data(sets: Sequence[int]) -> dict[str, object]:
    """Each set once, in the order in which they come, and which one each copy has."""
    numbers = {bits: number for number, bits in enumerate(dict.fromkeys(sets))}
    of = np.fromiter(map(numbers.__getitem__, sets), dtype=np.int64, count=len(sets))
    return {"sets": [hex(bits) for bits in numbers], "of": of}


def read_graph(record: Record) -> Graph:
    """The graph of a plan. Raises `InputError` that names the field."""
    graph = Graph(
        size_bytes=int_column(record, "size_bytes"),
        ops=_read_op_columns(record.record("ops"))
        if isinstance(record.raw("ops"), dict)
        else tuple(_read_op(entry) for entry in record.records("ops")),
        initial=_read_placement(record.record("initial")),
        required=_read_placement(record.record("required")),
        tensor_names=record.texts("tensor_names"),
        budgets=tuple(_read_budget(entry) for entry in record.records("budgets", default=[])),
    )
    record.close()
    return graph


def _read_budget(entry: Record) -> Budget:
    budget = Budget(entry.text("name"), entry.number("limit", 0))
    entry.close()
    return budget


def _read_op(entry: Record) -> Op:
    needs = entry.record("needs")
    op = Op(
        name=entry.text("name"),
        kind=entry.text("kind"),
        inputs=entry.integers("inputs", 0),
        outputs=entry.integers("outputs", 0),
        adds=None if entry.raw("adds") is None else entry.integer("adds", 0, _MOST_CONTRIBUTION),
        reduces=entry.boolean("reduces"),
        needs={_digits(needs, key): _bits(needs, key, needs.raw(key)) for key in needs.names()},
        updates=entry.integers("updates", 0, default=()),
        implementations=tuple(_read_implementation(record) for record in entry.records("implementations")),
    )
    entry.close()
    return op


def _read_implementation(entry: Record) -> Implementation:
    implementation = Implementation(
        duration_s=entry.number("duration_s"),
        workspace_bytes=entry.integer("workspace_bytes", 0),
        inputs=None if entry.raw("inputs") is None else entry.integers("inputs", 0),
        overwrites=entry.integers("overwrites", 0),
        name=entry.text("name"),
        power_w=entry.number("power_w", default=None),
        spends=tuple(_read_spending(entry, pair) for pair in entry.array("spends", default=[])),
    )
    entry.close()
    return implementation


def _read_spending(entry: Record, pair: object) -> tuple[int, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise entry.fail("spends", "pairs of a budget's number and an amount", pair)
    return entry.whole("spends", pair[0], 0), entry.real("spends", pair[1], 0)


def _read_placement(record: Record) -> Placement:
    sets = record.raw("contributions")
    placement = Placement(
        tensors=int_column(record, "tensors"),
        devices=int_column(record, "devices"),
        contributions=None if sets is None else _read_sets(record, sets),
    )
    record.close()
    return placement


def _read_sets(placement: Record, sets: object) -> tuple[int, ...]:
    """The set of each copy; a list has them one by one, as files did before sets stood there once each."""
    if not isinstance(sets, dict):
        return tuple(_bits(placement, "contributions", entry) for entry in placement.array("contributions"))
    record = placement.record("contributions")
    distinct = [_bits(record, "sets", entry) for entry in record.array("sets")]
    of = int_column(record, "of")
    record.close()
    if len(of) and not 0 <= of.min() <= of.max() < len(distinct):
        raise record.fail("of", f"a list of numbers of the {len(distinct)} sets, from 0", of.tolist())
    return tuple(distinct[number] for number in of.tolist())


def _bits(record: Record, key: str, value: object) -> int:
    try:
        bits = int(value, 16) if isinstance(value, str) else -1
    except ValueError:
        bits = -1
    if bits < 0:
        raise record.fail(key, "a set of contributions as a hexadecimal number such as 0x5", value)
    return bits


def _digits(record: Record, key: str) -> int:
    if not is_number(key):
        raise InputError(f"{record.where}: fields must be tensor numbers, got {key!r}")
    return int(key)


# -- the topology ------------------------------------------------------------------------------------------------------


def topology_data(topology: Topology) -> dict[str, object]:
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
        **({"switch_groups": [_switch_data(one) for one in topology.switch_groups]} if topology.switch_groups else {}),
    }


def _congestion_data(one: Congestion) -> dict[str, object]:
    ports, table = [list(port) for port in one.ports], one.table
    return {"ports": ports, "connections": list(table.connections), "slowdown": list(table.slowdown)}


def _switch_data(one: SwitchGroup) -> dict[str, object]:
    return {"ranks": list(one.ranks), "ports": [list(port) for port in one.ports], **asdict(one.reduction)}


def _read_switch(entry: Record) -> SwitchGroup:
    ranks, ports = entry.integers("ranks", 0), entry.lists("ports", "a list of [out, in]", None)
    if any(len(port) != 2 for port in ports):
        raise entry.fail("ports", "a list of [out, in]", ports)
    numbers = tuple((entry.whole("ports", out, 0), entry.whole("ports", into, 0)) for out, into in ports)
    slots, groups = (None if entry.raw(name) is None else entry.integer(name, 1) for name in ("slots", "groups"))
    reduction = Reduction(
        reduces=entry.boolean("reduces"), multicasts=entry.boolean("multicasts"),
        reduces_to_all=entry.boolean("reduces_to_all"), alpha_s=entry.number("alpha_s", minimum=0),
        beta_s_per_byte=entry.number("beta_s_per_byte", minimum=0), slots=slots, loopback=entry.boolean("loopback"),
        subsets=entry.boolean("subsets"), groups=groups,
    )  # fmt: skip
    entry.close()
    return SwitchGroup(ranks, reduction, numbers)


def read_topology(record: Record) -> Topology:
    """The topology of a plan. Raises `InputError` that names the field."""
    memory = record.array("memory_bytes")
    topology = Topology(
        name=record.text("name"),
        node_of_device=record.integers("node_of_device", 0),
        memory_bytes=tuple(
            math.inf if capacity is None else record.whole("memory_bytes", capacity, 0) for capacity in memory
        ),
        engines=tuple(_read_engine(record, entry) for entry in record.array("engines")),
        resources=record.texts("resources"),
        nics=tuple(Nic(*_read_group(entry)) for entry in record.records("nics")),
        switches=tuple(Switch(*_read_group(entry)) for entry in record.records("switches")),
        links=_read_links(record.record("links")),
        congestion=tuple(_read_congestion(entry) for entry in record.records("congestion", default=[])),
        switch_groups=tuple(_read_switch(entry) for entry in record.records("switch_groups", default=[])),
    )
    record.close()
    return topology


def _read_engine(record: Record, entry: object) -> tuple[int, str]:
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)):
        raise record.fail("engines", "a list of [device, name]", entry)
    return record.whole("engines", entry[0], 0), entry[1]


def _read_congestion(entry: Record) -> Congestion:
    ports = entry.lists("ports", "a list of lists of resources")
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
