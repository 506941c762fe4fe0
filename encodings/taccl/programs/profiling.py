"""A machine's links and structure, measured between processes: `gapless profile links`. Needs the extra `torch`."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.io.atomic import check_writable, write_text
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.topologies.measured.machine import class_rows
from gapless.topologies.writing import cluster_text

if TYPE_CHECKING:
    from gapless.topologies.measured.machine import MeasuredMachine

__all__ = ["drowned_costs", "profile_links"]


def profile_links(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure between processes, and write the topology file. Raises `RunError` where a process fails."""
    check_writable(values["output"])
    from gapless.torch.links.rank import LinksTask, measured_links

    ranks = _ranks(values["ranks"], session)
    task = LinksTask(
        ranks=ranks,
        backend=values["backend"],
        by=values["by"],
        sizes=tuple(sorted(set(values["sizes"] or ()))),
        precision=values["precision"],
        seconds=values["time_limit"],
        wait_s=values["wait"],
    )
    session.say(f"measuring the links between {ranks} ranks, for at most {task.seconds:g} s ...")
    begun = _now()
    found = measured_links(task, session.options.stop, session.ranks)
    if found.machine is None:
        what = f"{found.experiments} experiments"
        note = f"the time was over after {what}, before the structure was known; give a longer --time-limit"
        data = {"machine": None, "experiments": found.experiments, "output": None}
        return Answer(data, f"no machine after {what}", (note,), is_complete=False)
    return _written(found.machine, values, begun, session)


def _ranks(asked: int | None, session: Session) -> int:
    """As many as a launcher has started, or as are asked for."""
    if session.ranks is None:
        return 2 if asked is None else asked
    there = session.ranks.launch.ranks
    if asked not in (None, there):
        raise InputError(f"ranks: the launcher has started {there}, got {asked}; leave it out")
    return there


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _written(machine: MeasuredMachine, values: Mapping[str, Any], begun: str, session: Session) -> Answer:
    """The file, and what is printed of it."""
    output, backend, ended = values["output"], values["backend"], _now()
    name = Path(output).stem or "measured"
    order = machine.order if values["relabel"] else machine.kept_order
    source = f"measured by gapless profile links from {begun} to {ended}: {len(order)} ranks over {backend}"
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
        "classes": class_rows(machine),
        "asymmetries": [
            {"from": each.source, "to": each.target, "ratio": round(each.ratio, 3)} for each in machine.asymmetries
        ],
        "is_precise": machine.is_precise,
    }
    if session.is_first:
        write_text(output, cluster_text(machine.cluster(name, order), source, measured))
    structure = _structure(machine)
    data = {"machine": name, "source": source, "structure": structure, **measured, "output": output}
    notes = [] if machine.is_precise else ["not every interval is as small as was asked for: the time was over"]
    notes += drowned_costs(measured["classes"])
    if list(order) != sorted(order):
        notes.append(f"ranks of the file are to be started in this order: {_listed(order)}")
    return Answer(data, _text(data), tuple(notes))


def drowned_costs(classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each cost that noise hides: where it is 0, plans would take it for free."""
    costs = (("alpha", "_us", "with a longer --time-limit"), ("beta", "_us_per_mb", "with larger --sizes"))
    return [
        f"{name} of links {row['name']} may as well be 0: measure on a quieter machine, or {remedy}"
        for row in classes
        for name, unit, remedy in costs
        if (row[f"{name}_error{unit}"] or 0) >= row[f"{name}{unit}"]
    ]


def _structure(machine: MeasuredMachine) -> list[dict[str, Any]]:
    """Each node and what its ranks share, in ranks as they were measured. `near_first`: their places in the node."""
    structure = machine.structure
    rows = []
    for number in sorted(range(len(structure.nodes)), key=lambda number: structure.nodes[number]):
        inside, ranks = structure.inside[number], sorted(structure.nodes[number])
        rows.append({
            "ranks": ranks,
            "near_first": [ranks.index(rank) for rank in machine.order if rank in ranks],
            "nics": [list(group) for group in structure.nics[number]],
            "out_ports": list(inside.out_ports),
            "in_ports": list(inside.in_ports),
            "buses": [list(bus) for bus in inside.buses],
        })  # fmt: skip
    return rows


def _text(data: Mapping[str, Any]) -> str:
    lines = []
    for number, row in enumerate(data["structure"]):
        lines.append(f"node {number:<5} ranks {_listed(row['ranks'])}; {_shared(row)}")
    if len(lines) > 1:
        lines.append(f"{'nodes':<10} differ in {data['nodes_differ_in']}")
    for number, row in enumerate(data["structure"]):
        if row["near_first"] != sorted(row["near_first"]):
            order = _listed(row["near_first"])
            lines.append(f"{'order':<10} CUDA_VISIBLE_DEVICES={order} puts what is near the NIC of node {number} first")
    for each in data["asymmetries"]:
        lines.append(f"{'asymmetry':<10} {each['from']} to {each['to']} is {each['ratio']:.2f} times as fast as back")
    heads = ["links", "number", "alpha us", "+-", "beta us/MB", "+-", "spread", "samples", "outliers"]
    cells = [
        [row["name"], str(row["links"]), *(_number(row[name]) for name in _COSTS), f"{row['spread']:.1%}",
         str(row["samples"]), str(row["outliers"])]
        for row in data["classes"]
    ]  # fmt: skip
    return "\n".join([*lines, *table([heads, *cells]).splitlines(), data["source"]])


_COSTS = ("alpha_us", "alpha_error_us", "beta_us_per_mb", "beta_error_us_per_mb")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _listed(ranks: Any) -> str:
    return ",".join(map(str, ranks))


def _shared(row: Mapping[str, Any]) -> str:
    """What the ranks of a node share, in words."""
    parts = []
    if row["nics"]:
        count = len(row["nics"])
        parts.append(f"{count} NIC{'s' if count > 1 else ''} ({' | '.join(map(_listed, row['nics']))})")
    buses = [bus for bus in row["buses"] if len(bus) > 1]
    if buses:
        parts.append("inside, a bus of " + " and one of ".join(map(_listed, buses)))
    if len(row["buses"]) > len(buses):
        parts.append("inside, one port a rank for both directions")
    if row["out_ports"] or row["in_ports"]:
        parts.append("inside, a port out and one in for each rank")
    return "; ".join(parts) or "nothing is shared"
