"""A machine's links and structure, measured between processes: `gapless profile links`. Needs the extra `torch`."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.encodings.taccl.question import LinksQuestion
from gapless.errors import InputError
from gapless.io.atomic import check_writable, write_text
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.topologies.files import named_node
from gapless.topologies.measured.machine import ClassRow, class_rows
from gapless.topologies.measured.order import order_as
from gapless.topologies.writing import cluster_text

if TYPE_CHECKING:
    from gapless.topologies.measured.machine import MeasuredMachine

__all__ = ["drowned_costs", "profile_links"]


def profile_links(question: LinksQuestion, session: Session) -> Answer:
    """Measure between processes, and write the topology file. Raises `RunError` where a process fails."""
    check_writable(question.output)
    if question.machine is not None:
        named_node(question.machine)  # an unknown name is refused before anything is measured
    from gapless.torch.links.rank import LinksTask, measured_links

    ranks = _ranks(question.ranks, session)
    task = LinksTask(
        ranks=ranks,
        backend=question.backend,
        by=question.by,
        sizes=tuple(sorted(set(question.sizes or ()))),
        precision=question.precision,
        seconds=question.time_limit,
        wait_s=question.wait,
    )
    session.say(f"measuring the links between {ranks} ranks, for at most {task.seconds:g} s ...")
    begun = _now()
    found = measured_links(task, session.options.stop, session.ranks)
    if found.machine is None:
        what = f"{found.experiments} experiments"
        needed_s = _rounded_up(found.needed_s) if found.experiments else None
        longer = "give a longer --time-limit" + (f": {needed_s} s or so" if needed_s else "")
        note = f"the time was over after {what}, before the structure was known; {longer}"
        data = {"machine": None, "experiments": found.experiments, "needed_s": needed_s, "output": None}
        return Answer(data, f"no machine after {what}", (note,), is_complete=False)
    return _written(found.machine, question, begun, session)


def _ranks(asked: int | None, session: Session) -> int:
    """As many as a launcher has started, or as are asked for."""
    if session.ranks is None:
        return 2 if asked is None else asked
    there = session.ranks.launch.ranks
    if asked not in (None, there):
        raise InputError(f"ranks: the launcher has started {there}, got {asked}; leave it out")
    return there


def _rounded_up(seconds: float) -> int:
    """To tens."""
    return 10 * math.ceil(seconds / 10)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _written(machine: MeasuredMachine, question: LinksQuestion, begun: str, session: Session) -> Answer:
    """The file, and what is printed of it."""
    output, backend, ended = question.output, question.backend, _now()
    name = Path(output).stem or "measured"
    order = machine.order if question.relabel else machine.kept_order
    source = f"measured by gapless profile links from {begun} to {ended}: {len(order)} ranks over {backend}"
    classes = class_rows(machine)
    measured = {
        "begun": begun,
        "ended": ended,
        "backend": backend,
        "host": platform.node(),
        "ranks": len(order),
        "experiments": machine.experiments,
        "order": list(order),
        "near_first": list(machine.order),
        "nodes_differ_in": machine.structure.why_nodes,
        "classes": [asdict(each) for each in classes],
        "asymmetries": [
            {"from": each.source, "to": each.target, "ratio": round(each.ratio, 3)} for each in machine.asymmetries
        ],
        "is_precise": machine.is_precise,
        "congestion": {
            where: [asdict(one) for one in tables]
            for where, tables in (("switches", machine.switch_tables), ("nics", machine.nic_tables))
        },
    }
    if session.is_first:
        write_text(output, cluster_text(machine.cluster(name, order), source, measured))
    nodes = _nodes(machine)
    wired = [] if question.machine is None else _wired(machine, nodes, question.machine)
    data = {
        "machine": name, "source": source, "structure": [asdict(node) for node in nodes], **measured, "output": output,
        "orders_as_machine": wired,
    }  # fmt: skip
    notes = [] if machine.is_precise else ["not every interval is as small as was asked for: the time was over"]
    notes += drowned_costs(classes)
    notes += [
        f"node {number} is not wired as {question.machine}" for number, found in enumerate(wired) if found is None
    ]
    if list(order) != sorted(order):
        notes.append(f"ranks of the file are to be started in this order: {_listed(order)}")
    as_known = [
        f"{'order':<10} CUDA_VISIBLE_DEVICES={_listed(found)} makes node {number} a {question.machine}"
        for number, found in enumerate(wired)
        if found is not None
    ]
    return Answer(data, "\n".join([*as_known, _text(machine, nodes, classes, source)]), tuple(notes))


def _wired(machine: MeasuredMachine, nodes: Sequence[_Node], name: str) -> list[list[int] | None]:
    """For each node its ranks, by their places in it, in the order of the machine of that name; None if it is none."""
    known = named_node(name)
    beta = {pair: each.line.beta_s_per_byte for each in machine.classes for pair in each.pairs}
    found = []
    for node in nodes:
        order = order_as(known, beta, [node.ranks[place] for place in node.near_first])
        found.append(None if order is None else [node.ranks.index(rank) for rank in order])
    return found


def drowned_costs(classes: Sequence[ClassRow]) -> list[str]:
    """A line for each cost that noise hides: where it is 0, plans would take it for free."""
    lines = []
    for row in classes:
        costs = (
            ("alpha", row.alpha_us, row.alpha_error_us, "with a longer --time-limit"),
            ("beta", row.beta_us_per_mb, row.beta_error_us_per_mb, "with larger --sizes"),
        )
        lines += [
            f"{name} of links {row.name} may as well be 0: measure on a quieter machine, or {remedy}"
            for name, cost, error, remedy in costs
            if (error or 0) >= cost
        ]
    return lines


@dataclass(frozen=True)
class _Node:
    """A node and what its ranks share, in ranks as they were measured. `near_first`: their places in the node."""

    ranks: list[int]
    near_first: list[int]
    nics: list[list[int]]
    out_ports: list[int]
    in_ports: list[int]
    buses: list[list[int]]


def _nodes(machine: MeasuredMachine) -> list[_Node]:
    structure, found = machine.structure, []
    for number in sorted(range(len(structure.nodes)), key=lambda number: structure.nodes[number]):
        inside, ranks = structure.inside[number], sorted(structure.nodes[number])
        near_first = [ranks.index(rank) for rank in machine.order if rank in ranks]
        nics, buses = (list(map(list, groups)) for groups in (structure.nics[number], inside.buses))
        found.append(_Node(ranks, near_first, nics, list(inside.out_ports), list(inside.in_ports), buses))
    return found


def _text(machine: MeasuredMachine, nodes: Sequence[_Node], classes: Sequence[ClassRow], source: str) -> str:
    lines = [f"node {number:<5} ranks {_listed(node.ranks)}; {_shared(node)}" for number, node in enumerate(nodes)]
    if len(lines) > 1:
        lines.append(f"{'nodes':<10} differ in {machine.structure.why_nodes}")
    for number, node in enumerate(nodes):
        if node.near_first != sorted(node.near_first):
            order = _listed(node.near_first)
            lines.append(f"{'order':<10} CUDA_VISIBLE_DEVICES={order} puts what is near the NIC of node {number} first")
    for where, tables in (("switches", machine.switch_tables), ("NICs", machine.nic_tables)):
        for one in tables:
            steps = ", ".join(f"{slow:g} at {count}" for count, slow in zip(one.connections, one.slowdown, strict=True))
            lines.append(f"{'congestion':<10} connections slow {where}: {steps}")
    for each in machine.asymmetries:
        ratio = round(each.ratio, 3)
        lines.append(f"{'asymmetry':<10} {each.source} to {each.target} is {ratio:.2f} times as fast as back")
    heads = ["links", "number", "alpha us", "+-", "beta us/MB", "+-", "spread", "samples", "outliers"]
    costs = ([row.alpha_us, row.alpha_error_us, row.beta_us_per_mb, row.beta_error_us_per_mb] for row in classes)
    cells = [
        [row.name, str(row.links), *map(_number, cost), f"{row.spread:.1%}", str(row.samples), str(row.outliers)]
        for row, cost in zip(classes, costs, strict=True)
    ]
    return "\n".join([*lines, *table([heads, *cells]).splitlines(), source])


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _listed(ranks: Iterable[int]) -> str:
    return ",".join(map(str, ranks))


def _shared(node: _Node) -> str:
    """What the ranks of a node share, in words."""
    parts = []
    if node.nics:
        count = len(node.nics)
        parts.append(f"{count} NIC{'s' if count > 1 else ''} ({' | '.join(map(_listed, node.nics))})")
    buses = [bus for bus in node.buses if len(bus) > 1]
    if buses:
        parts.append("inside, a bus of " + " and one of ".join(map(_listed, buses)))
    if len(node.buses) > len(buses):
        parts.append("inside, one port a rank for both directions")
    if node.out_ports or node.in_ports:
        parts.append("inside, a port out and one in for each rank")
    return "; ".join(parts) or "nothing is shared"
