"""Plan files: a schedule with all that is needed to replay it, what its solver claimed, and what it was made for.

JSON, format `gapless.plan`, version 1. Columns of numbers stand as lists; a list of lists is `start` and `values`
(list i is `values[start[i]:start[i + 1]]`); a set of contributions is a hexadecimal number, bit i for contribution i.
The sets of many copies stand once each, in `sets`, and copy k has the one with the number `of[k]`. An implementation
has `power_w` only where its power is known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.graph import Graph, Implementation, Op, Placement
from gapless.io.atomic import write_lines
from gapless.io.record import Record, is_number, load_record
from gapless.schedule import Ragged, Schedule
from gapless.solution import Solution, Status, StopReason
from gapless.topologies.congestion import Congestion, read_slowdown
from gapless.topologies.topology import Links, Nic, Switch, Topology
from gapless.units import Unit

__all__ = ["SavedPlan", "claim_data", "plan_text", "read_plan", "solution_of", "write_plan"]

FORMAT, VERSION = "gapless.plan", 1

_LARGE_COLUMN = 1000
_MOST_CONTRIBUTION = 2**20
"""A set of contributions has a bit for each number up to the highest."""


@dataclass(frozen=True)
class SavedPlan:
    """The content of a plan file.

    `system` names the encoding; `problem` says, in its words, what was asked; `claim` is what the solver said of the
    schedule (status, objective_s, bound_s, solver, ...; objective_j and bound_j for joules); `details` is the
    encoding's own account. `run`: how the plan was made, which differs from run to run (command, versions, solve_s,
    timings, convergence), as far as is known. `product`: what the schedule was made from, where the system's files
    hold that.
    """

    system: str
    problem: Mapping[str, Any]
    claim: Mapping[str, Any]
    details: Mapping[str, Any]
    schedule: Schedule
    run: Mapping[str, Any] = field(default_factory=dict)
    product: Any = None

    @property
    def solve_s(self) -> float | None:
        """How long the solve took, None where the plan doesn't say."""
        found = self.run.get("solve_s")
        return float(found) if isinstance(found, int | float) else None


def claim_data(solution: Solution) -> dict[str, Any]:
    """What the solver claims, for the JSON object and the plan file."""
    return {
        "status": solution.status.value,
        "stop_reason": solution.stop_reason.value,
        f"objective_{solution.unit}": solution.objective,
        f"bound_{solution.unit}": solution.bound,
        "gap": solution.gap,
        "solver": solution.solver,
        "solver_version": solution.version,
        "seed": solution.seed,
    }


def solution_of(claim: Mapping[str, Any], wall_s: float = 0.0) -> Solution:
    """The solution that a saved claim describes, without its values. Raises `InputError` for what can't be one."""
    unit: Unit = "j" if "objective_j" in claim else "s"
    try:
        return Solution(
            status=Status(claim["status"]),
            stop_reason=StopReason(claim["stop_reason"]),
            solver=str(claim["solver"]),
            version=str(claim["solver_version"]),
            seed=int(claim["seed"]),
            wall_s=wall_s,
            objective=claim[f"objective_{unit}"],
            bound=claim[f"bound_{unit}"],
            unit=unit,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"claim: must say status, stop_reason, solver and the like, got {error}") from None


def write_plan(path: str | Path, plan: SavedPlan) -> None:
    """Write a plan file, whole or not at all. Raises `InputError` where the place can't be written to."""
    write_lines(path, _pieces(plan))


def plan_text(plan: SavedPlan) -> str:
    """The plan as JSON, one line for each section; equal plans give equal text."""
    return "".join(_pieces(plan))


def _pieces(plan: SavedPlan) -> Iterator[str]:
    """The text of a plan, so that of a large one no more than a column is in memory."""
    sections: dict[str, Callable[[], Any]] = {
        "format": lambda: FORMAT,
        "version": lambda: VERSION,
        "system": lambda: plan.system,
        "problem": lambda: dict(plan.problem),
        "claim": lambda: dict(plan.claim),
        "details": lambda: dict(plan.details),
        "run": lambda: dict(plan.run),
        "graph": lambda: _graph_data(plan.schedule.graph),
        "topology": lambda: _topology_data(plan.schedule.topology),
        "schedule": lambda: _schedule_data(plan.schedule),
    }
    for number, (key, data) in enumerate(sections.items()):
        yield (",\n " if number else "{") + json.dumps(key) + ": "
        yield from _json(data())
    yield "}\n"


def _json(value: Any) -> Iterator[str]:
    """A value as JSON in pieces; arrays are columns."""
    if isinstance(value, dict):
        for number, (key, inner) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{json.dumps(key)}: "
            yield from _json(inner)
        yield "}" if value else "{}"
    elif isinstance(value, np.ndarray):
        yield f"[{', '.join(_texts_of(value))}]" if len(value) else "[]"
    else:
        yield json.dumps(value, allow_nan=False)


def _texts_of(column: NDArray[Any]) -> list[str]:
    """Each number as JSON has it; of a large column, one that stands there often is put into words once.

    Raises `ValueError` for nan and inf.
    """
    if len(column) < _LARGE_COLUMN:
        return _words(column)
    if column.dtype == np.float64:
        bits, place = np.unique(column.view(np.int64), return_inverse=True)  # 0.0 is not -0.0
        values = bits.view(np.float64)
    else:
        least, most = int(column.min()), int(column.max())
        if most - least > len(column):
            return _words(column)
        values, place = np.arange(least, most + 1).astype(column.dtype), column.astype(np.int64) - least
    found: list[str] = np.array(_words(values), dtype=object)[place].tolist()
    return found


def _words(values: NDArray[Any]) -> list[str]:
    return json.dumps(values.tolist(), allow_nan=False)[1:-1].split(", ")


def read_plan(path: str | Path) -> SavedPlan:
    """Read a plan file. Raises `InputError` naming file and field; whether the schedule is true is `check`'s to say."""
    record = load_record(path)
    record.of_format(FORMAT)
    record.integer("version", VERSION, VERSION)
    try:
        schedule = _read_schedule(record)
    except InputError as error:  # the graph, topology and schedule name the field, not the file
        message = str(error)
        raise InputError(message if message.startswith(str(path)) else f"{path}: {message}") from None
    plan = SavedPlan(
        system=record.text("system"),
        problem=_mapping(record, "problem"),
        claim=_mapping(record, "claim"),
        details=_mapping(record, "details"),
        schedule=schedule,
        run=_mapping(record, "run"),
    )
    record.close()
    return plan


def _mapping(record: Record, key: str) -> dict[str, Any]:
    nested = record.record(key)
    return {name: nested.raw(name) for name in nested.names()}


# -- graph -------------------------------------------------------------------------------------------------------------


def _graph_data(graph: Graph) -> dict[str, Any]:
    return {
        "size_bytes": graph.size_bytes,
        "tensor_names": list(graph.tensor_names),
        "ops": [_op_data(op) for op in graph.ops],
        "initial": _placement_data(graph.initial),
        "required": _placement_data(graph.required),
    }


def _op_data(op: Op) -> dict[str, Any]:
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
            }
            for implementation in op.implementations
        ],
    }


def _placement_data(placement: Placement) -> dict[str, Any]:
    return {
        "tensors": placement.tensors,
        "devices": placement.devices,
        "contributions": None if placement.contributions is None else _sets_data(placement.contributions),
    }


def _sets_data(sets: Sequence[int]) -> dict[str, Any]:
    """Each set once, in the order in which they come, and which one each copy has."""
    numbers = {bits: number for number, bits in enumerate(dict.fromkeys(sets))}
    of = np.fromiter(map(numbers.__getitem__, sets), dtype=np.int64, count=len(sets))
    return {"sets": [hex(bits) for bits in numbers], "of": of}


def _read_graph(record: Record) -> Graph:
    graph = Graph(
        size_bytes=_int_column(record, "size_bytes"),
        ops=tuple(_read_op(entry) for entry in record.records("ops")),
        initial=_read_placement(record.record("initial")),
        required=_read_placement(record.record("required")),
        tensor_names=tuple(_texts(record, "tensor_names")),
    )
    record.close()
    return graph


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
    )
    entry.close()
    return implementation


def _read_placement(record: Record) -> Placement:
    sets = record.raw("contributions")
    placement = Placement(
        tensors=_int_column(record, "tensors"),
        devices=_int_column(record, "devices"),
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
    of = _int_column(record, "of")
    record.close()
    if len(of) and not 0 <= of.min() <= of.max() < len(distinct):
        raise record.fail("of", f"a list of numbers of the {len(distinct)} sets, from 0", of.tolist())
    return tuple(distinct[number] for number in of.tolist())


# -- topology ----------------------------------------------------------------------------------------------------------


def _topology_data(topology: Topology) -> dict[str, Any]:
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
            "resources": _ragged_data(shared),
        },
        **({"congestion": [_congestion_data(one) for one in topology.congestion]} if topology.congestion else {}),
    }


def _congestion_data(one: Congestion) -> dict[str, Any]:
    ports, table = [list(port) for port in one.ports], one.table
    return {"ports": ports, "connections": list(table.connections), "slowdown": list(table.slowdown)}


def _read_topology(record: Record) -> Topology:
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
        resources=tuple(_texts(record, "resources")),
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
    source, target = _int_column(record, "source"), _int_column(record, "target")
    alpha_s, beta_s = _float_column(record, "alpha_s"), _float_column(record, "beta_s_per_byte")
    shared = _read_ragged(record.record("resources"))
    record.close()
    if not len(source) == len(target) == len(alpha_s) == len(beta_s) == len(shared):
        raise InputError(f"{record.where}: all columns must have {len(source)} entries, as source has")
    return Links(source, target, alpha_s, beta_s, shared.start, shared.values)


# -- schedule ----------------------------------------------------------------------------------------------------------


def _schedule_data(schedule: Schedule) -> dict[str, Any]:
    data: dict[str, Any] = {"name": schedule.name}
    for column in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces"):
        data[column] = getattr(schedule, column)
    for column in ("moves", "freed_tensor", "freed_device"):
        data[column] = _ragged_data(getattr(schedule, column))
    return data


def _read_schedule(plan: Record) -> Schedule:
    graph, topology = _read_graph(plan.record("graph")), _read_topology(plan.record("topology"))
    record = plan.record("schedule")
    reduces = record.array("reduces")
    if not set(map(type, reduces)) <= {bool}:
        raise record.fail("reduces", "a list of true and false", reduces)
    schedule = Schedule(
        graph=graph,
        topology=topology,
        kind=_int_column(record, "kind"),
        start_s=_float_column(record, "start_s"),
        end_s=_float_column(record, "end_s"),
        place=_int_column(record, "place"),
        op=_int_column(record, "op"),
        implementation=_int_column(record, "implementation"),
        reduces=np.array(reduces, dtype=np.bool_),
        moves=_read_ragged(record.record("moves")),
        freed_tensor=_read_ragged(record.record("freed_tensor")),
        freed_device=_read_ragged(record.record("freed_device")),
        name=record.text("name"),
    )
    record.close()
    return schedule


# -- columns -----------------------------------------------------------------------------------------------------------


def _ragged_data(lists: Ragged) -> dict[str, NDArray[np.int64]]:
    return {"start": lists.start, "values": lists.values}


def _read_ragged(record: Record) -> Ragged:
    start, values = _int_column(record, "start"), _int_column(record, "values")
    record.close()
    if not len(start) or start[0] != 0 or start[-1] != len(values) or (np.diff(start) < 0).any():
        raise InputError(f"{record.where}: start must rise from 0 to the number of values, {len(values)}")
    return Ragged(start, values)


def _int_column(record: Record, key: str) -> NDArray[np.int64]:
    column = record.array(key)
    if set(map(type, column)) <= {int}:
        with suppress(OverflowError):
            found = np.array(column, dtype=np.int64)
            if ((found > -(2**62)) & (found < 2**62)).all():
                return found
    raise record.fail(key, "a list of whole numbers below 2^62", column)


def _float_column(record: Record, key: str) -> NDArray[np.float64]:
    column = record.array(key)
    if not set(map(type, column)) <= {int, float}:
        raise record.fail(key, "a list of numbers", column)
    try:
        return np.array(column, dtype=np.float64)
    except OverflowError:
        raise record.fail(key, "a list of numbers that fit into 64 bits", column) from None


def _texts(record: Record, key: str) -> list[str]:
    texts: list[str] = record.array(key)
    if any(not isinstance(text, str) for text in texts):
        raise record.fail(key, "a list of strings", texts)
    return texts


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
