"""A machine's links and structure, measured between real processes: `gapless profile links`. Needs the extra `torch`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.io.atomic import check_writable, write_text
from gapless.system import Answer, Session
from gapless.text import table
from gapless.topologies.measured.record import class_rows
from gapless.topologies.writing import cluster_text

if TYPE_CHECKING:
    from gapless.topologies.measured.machine import MeasuredMachine
    from gapless.torch.links.rank import Profiled

__all__ = ["profile_links"]


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
        note = f"no machine: the time was over after {what}, before its structure was known; give a longer --time-limit"
        data = {"machine": None, "experiments": found.experiments, "output": None}
        return Answer(data, f"no machine after {what}", (note,), is_complete=False)
    return _written(found, found.machine, task.backend, begun, values["output"], session)


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


def _written(
    found: Profiled, machine: MeasuredMachine, backend: str, begun: str, output: str, session: Session
) -> Answer:  # fmt: skip
    """The file, and what is printed of it."""
    ended, ranks = _now(), len(machine.order)
    name = Path(output).stem or "measured"
    source = f"measured by gapless profile links from {begun} to {ended}: {ranks} ranks over {backend}"
    rows = class_rows(machine)
    measured = {
        "begun": begun,
        "ended": ended,
        "backend": backend,
        "host": platform.node(),
        "ranks": ranks,
        "experiments": machine.experiments,
        "order": list(machine.order),
        "nodes_told_apart_by": machine.structure.why_nodes,
        "classes": rows,
        "asymmetries": [
            {"from": each.source, "to": each.target, "ratio": round(each.ratio, 3)} for each in machine.asymmetries
        ],
        "is_precise": machine.is_precise,
    }
    if session.is_first:
        write_text(output, cluster_text(machine.cluster(name), source, measured))
    data = {**measured, "machine": name, "source": source, "structure": _structure(machine), "output": output}
    notes = () if machine.is_precise else ("not every interval is as small as was asked for: the time was over",)
    return Answer(data, _text(machine, rows, source), notes)


def _structure(machine: MeasuredMachine) -> list[dict[str, Any]]:
    """Each node in the file's order, in ranks as they were measured; which of its ranks comes first."""
    structure = machine.structure
    rows = []
    for number in dict.fromkeys(structure.node_of(rank) for rank in machine.order):
        inside, node = structure.inside[number], structure.nodes[number]
        ranks = [rank for rank in machine.order if rank in node]
        rows.append({
            "ranks": ranks,
            "order": [sorted(node).index(rank) for rank in ranks],
            "nics": [list(group) for group in structure.nics[number]],
            "out_ports": list(inside.out_ports),
            "in_ports": list(inside.in_ports),
            "buses": [list(bus) for bus in inside.buses],
        })  # fmt: skip
    return rows


def _text(machine: MeasuredMachine, rows: list[dict[str, Any]], source: str) -> str:
    lines = []
    why = machine.structure.why_nodes
    for number, row in enumerate(_structure(machine)):
        lines.append(f"node {number:<5} ranks {_listed(row['ranks'])}; {_shared(row)}")
    if len(lines) > 1:
        lines.append(f"{'nodes':<10} told apart by {why}")
    for number, row in enumerate(_structure(machine)):
        if row["order"] != sorted(row["order"]):
            lines.append(f"order      of node {number}: CUDA_VISIBLE_DEVICES={_listed(row['order'])} is nearest first")
    if list(machine.order) != sorted(machine.order):
        lines.append(f"{'ranks':<10} of the file, as they were measured: {_listed(machine.order)}")
    for each in machine.asymmetries:
        lines.append(f"{'asymmetry':<10} {each.source} to {each.target} is {each.ratio:.2f} times as fast as back")
    heads = ["links", "number", "alpha us", "+-", "beta us/MB", "+-", "spread", "samples", "outliers"]
    cells = [
        [row["name"], str(row["links"]), *(_number(row[name]) for name in _COSTS), f"{row['spread']:.1%}",
         str(row["samples"]), str(row["outliers"])]
        for row in rows
    ]  # fmt: skip
    return "\n".join([*lines, *table([heads, *cells]).splitlines(), source])


_COSTS = ("alpha_us", "alpha_error_us", "beta_us_per_mb", "beta_error_us_per_mb")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _listed(ranks: Any) -> str:
    return ",".join(map(str, ranks))


def _shared(row: Mapping[str, Any]) -> str:
    """What the ranks of a node share, in words."""
    parts = [f"{len(row['nics'])} NIC" + ("s" if len(row["nics"]) > 1 else "")] if row["nics"] else []
    parts[0:1] = [f"{part} ({' | '.join(map(_listed, row['nics']))})" for part in parts]
    buses = [bus for bus in row["buses"] if len(bus) > 1]
    if buses:
        parts.append("inside, a bus of " + " and one of ".join(map(_listed, buses)))
    if len(row["buses"]) > len(buses):
        parts.append("inside, one port a rank for both directions")
    if row["out_ports"] or row["in_ports"]:
        parts.append("inside, a port out and one in for each rank")
    return "; ".join(parts) or "nothing is shared"
