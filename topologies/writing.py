"""Topology files, written: nodes and clusters in the format that `gapless.topologies.files` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby

from gapless.topologies.fabric import Fabric
from gapless.topologies.node import Cluster, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.switch_groups import Reduction
from gapless.units import BYTES_PER_MB, S_PER_US

__all__ = ["cluster_text", "node_text"]

Row = dict[str, object]
"""A JSON object."""


def node_text(node: NodeTemplate) -> str:
    """A topology file, one link, switch or NIC a line; links of a pair that are alike both ways are one entry."""
    return _object([*_pairs({"format": "gapless.topology", "version": 1}), *_node(node, "  "), *_fabric(node.fabric)])


def cluster_text(cluster: Cluster, source: str, measured: Mapping[str, object]) -> str:
    """A topology file that lists the nodes of a cluster, equal ones that follow each other once.

    `measured`: how its numbers were found, for people and programs.
    """
    entries = []
    for node, alike in groupby(cluster.nodes):
        inner = ",\n".join(f"    {line}" for line in _node(node, "      "))
        entries.append(f'    {{"count": {len(list(alike))}, "node": {{\n{inner}\n    }}}}')
    header = {"format": "gapless.topology", "version": 1, "name": cluster.name, "source": source}
    found = ",\n".join(f"    {line}" for line in _pairs(measured))
    return _object([
        *_pairs(header), '"nodes": [\n' + ",\n".join(entries) + "\n  ]", *_fabric(cluster.fabric),
        f'"measured": {{\n{found}\n  }}',
    ])  # fmt: skip


def _object(lines: list[str]) -> str:
    return "{\n" + ",\n".join(f"  {line}" for line in lines) + "\n}\n"


def _pairs(data: Mapping[str, object]) -> list[str]:
    return [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]


def _node(node: NodeTemplate, margin: str) -> list[str]:
    """The fields of a node; entries of lists stand two columns right of `margin`."""
    lines = _pairs({"name": node.name, "ranks_per_node": node.ranks_per_node})
    lines += _pairs({"source": node.source}) if node.source else []
    entries = {
        "links": _links(node),
        "switches": list(map(_port, node.switches)),
        "nics": list(map(_port, node.nics)),
    }
    for title, rows in entries.items():
        if rows:
            listed = f",\n{margin}  ".join(map(json.dumps, rows))
            lines.append(f"{json.dumps(title)}: [\n{margin}  {listed}\n{margin}]")
    return lines


def _fabric(fabric: Fabric) -> list[str]:
    wiring: Row = {"rails": True} if fabric.rails else {}
    if fabric.nodes_per_leaf is not None:
        wiring |= {"nodes_per_leaf": fabric.nodes_per_leaf, "uplinks_per_leaf": fabric.uplinks_per_leaf}
        wiring |= _costs(fabric.alpha_s, fabric.beta_s_per_byte)
    if fabric.reduction is not None:
        wiring["reduction"] = _reduction(fabric.reduction)
    return _pairs({"fabric": wiring} if wiring else {})


def _links(node: NodeTemplate) -> list[Row]:
    rows = list[Row]()
    turned: dict[tuple[float, ...], list[Row]] = {}  # rows without a partner, by the link that would be it
    for link in node.links:
        costs, shared = _costs(link.alpha_s, link.beta_s_per_byte), list(link.resources)
        key = (link.source, link.target, *costs.values())
        if not shared and turned.get(key):
            turned[key].pop()["both_ways"] = True
            continue
        row = {"from": link.source, "to": link.target, **costs, **({"resources": shared} if shared else {})}
        if not shared:
            turned.setdefault((link.target, link.source, *costs.values()), []).append(row)
        rows.append(row)
    return rows


def _port(port: SwitchTemplate | NicTemplate) -> Row:
    row: Row = {"ranks": list(port.ranks), **_costs(port.alpha_s, port.beta_s_per_byte)}
    if (table := port.congestion) is not None:
        row["congestion"] = {"connections": list(table.connections), "slowdown": list(table.slowdown)}
    if isinstance(port, SwitchTemplate) and port.reduction is not None:
        row["reduction"] = _reduction(port.reduction)
    return row


def _reduction(reduction: Reduction) -> Row:
    row: Row = {name: getattr(reduction, name) for name in ("reduces", "multicasts", "reduces_to_all")}
    row |= {name: True for name in ("loopback", "subsets") if getattr(reduction, name)}
    row |= {name: getattr(reduction, name) for name in ("slots", "groups") if getattr(reduction, name) is not None}
    return row | _costs(reduction.alpha_s, reduction.beta_s_per_byte)


def _costs(alpha_s: float, beta_s_per_byte: float) -> dict[str, float]:
    """To twelve digits: what is read back differs by less than any measurement."""
    return {
        "alpha_us": float(f"{alpha_s / S_PER_US:.12g}"),
        "beta_us_per_mb": float(f"{beta_s_per_byte * BYTES_PER_MB / S_PER_US:.12g}"),
    }
