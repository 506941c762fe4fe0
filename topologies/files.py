"""Topology files: gapless's own format, and profiled topologies, whose costs were measured with chunks of one size.

Our format, version 1, describes one node or a cluster; `//` comments are allowed::

    {"format": "gapless.topology", "version": 1, "name": "pair", "ranks_per_node": 2,
     "links":    [{"from": 0, "to": 1, "alpha_us": 0.7, "beta_us_per_mb": 46, "both_ways": true, "resources": []}],
     "switches": [{"ranks": [0, 1], "alpha_us": 0.7, "beta_us_per_mb": 8}],
     "nics":     [{"ranks": [0, 1], "alpha_us": 1.7, "beta_us_per_mb": 106}],
     "fabric":   {"rails": true, "nodes_per_leaf": 16, "uplinks_per_leaf": 8, "alpha_us": 0.3, "beta_us_per_mb": 40},
     "source": "where the numbers are from"}

A file that lists `nodes` describes a cluster of nodes that differ::

    {"format": "gapless.topology", "version": 1, "name": "three and a half",
     "nodes":  [{"machine": "dgx-a100", "count": 3}, {"machine": "dgx-a100", "without_ranks": [3]},
                {"file": "other.json", "nics": [{"number": 0, "alpha_us": 1.7, "beta_us_per_mb": 212}]}],
     "fabric": {"rails": true}}

A switch or the fabric may have `"reduction": {"reduces": true, "multicasts": true}`: it adds up and multicasts (see
`Reduction`). A switch or a NIC may have `"congestion": {"connections": [1, 8], "slowdown": [1.0, 1.3]}`: its ports are
slower the more links a plan uses through them. A link may name `resources` that it shares with others: only one
transfer at a time holds a resource. `fabric` joins the NICs of different nodes (see `Fabric`); without it, every NIC
reaches every other at full bandwidth. docs/topologies.md explains each field.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from gapless.errors import InputError
from gapless.io.record import Record, load_record, parse_record, suggestion
from gapless.topologies.emulated import scaled
from gapless.topologies.fabric import Fabric
from gapless.topologies.families import FAMILIES, family_topology, is_generated, read_options
from gapless.topologies.links import MOST_LINKS
from gapless.topologies.names import topology_names
from gapless.topologies.node import Cluster, LocalLink, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.congestion import Slowdown, read_slowdown
from gapless.topologies.ports.switch_groups import read_reduction
from gapless.topologies.topology import Topology
from gapless.units import BYTES_PER_MB, S_PER_US, parse_bytes

__all__ = ["load_topology", "named_node", "read_machine", "read_node"]

_ALIASES = {"ndv4": "dgx-a100", "ndv5": "dgx-h100"}
"""Azure's names of machines that are the same inside."""

_UNIT_US = {1_000_000: 1.0, 32_000: 0.1, 1_000: 0.01}
"""The numbers of published profiles are scaled to be friendly to integers; the files don't say by how much."""

_REDUNDANT = (
    "nics_per_node", "remote_alpha", "remote_beta", "remote_invbw", "remote_invbws", "invbws", "node_invbws_list",
)  # fmt: skip
"""Fields that may stand in a profiled topology and say nothing new: alpha + beta, or fixed by the machine."""


def named_node(name: str) -> NodeTemplate:
    """A machine that gapless ships. Raises `InputError` for an unknown name."""
    names = topology_names()
    name = _ALIASES.get(name, name)
    if name not in names:
        hint = suggestion(name, names) or "topology_file takes a file"
        raise InputError(f"topology: must be one of {', '.join(names)}, got {name!r}; {hint}")
    text = (files("gapless.topologies") / f"{name}.json").read_text(encoding="utf-8")
    return _read_own(parse_record(text, f"{name}.json"))


def read_machine(
    path: str | Path, machine: str | None = None, nodes: int | None = None, otherwise: int = 1
) -> Topology:
    """The topology that a file describes: the nodes that it lists, or `nodes` copies of its one, `otherwise` if None.

    `machine`: as for `read_node`. Raises `InputError` for a number of nodes beside a list of them.
    """
    record = load_record(path)
    if "emulates" in record:
        if nodes is not None:
            raise InputError(f"nodes: must be left out, {path} says what it emulates, got {nodes}")
        return _read_emulated(record, Path(path).parent)
    if "format" in record and "nodes" in record:
        if nodes is not None:
            raise InputError(f"nodes: must be left out, {path} lists its own, got {nodes}")
        return _read_cluster(record, Path(path).parent).topology()
    return read_node(path, machine).cluster(otherwise if nodes is None else nodes)


def read_node(path: str | Path, machine: str | None = None) -> NodeTemplate:
    """A node from a file in our format, or from a profiled topology.

    Profiles of known machines hold costs but no links: `machine` names the machine, else the `name` in the file does
    (`NDv2_1MB`). They hold beta times the chunk size, so the name must end in that size. Raises `InputError`
    naming file and field.
    """
    record = load_record(path)
    if "format" in record:
        return _read_own(record)
    if "gpus_per_node" in record:
        return _read_profiled(record, machine)
    raise InputError(
        f"{path}: must be a gapless.topology (field 'format') or a profiled topology (field 'gpus_per_node')"
    )


def _read_emulated(record: Record, folder: Path) -> Topology:
    """What an emulated cluster is like (`topologies/emulated.py`)."""
    _check_header(record)
    name, of = record.text("name"), record.record("emulates")
    file = of.text("file", default=None)
    machine = of.text("topology", default=None)
    nodes = of.integer("nodes", 1, MOST_LINKS, default=None)
    of.close()
    if file is not None and "emulates" in load_record(folder / file):
        raise of.fail("file", "the file of a machine, not of an emulated one", file)
    scale = record.number("scale", minimum=0)
    if not scale:
        raise record.fail("scale", "a number > 0", scale)
    alpha_s = record.number("alpha_us", minimum=0) * S_PER_US
    record.close()
    return replace(scaled(load_topology(machine, nodes, file and folder / file), scale, alpha_s), name=name)


def load_topology(
    name: str | None, nodes: int | None = None, path: str | Path | None = None, otherwise: int = 1
) -> Topology:
    """A topology by name or from a file.

    `name` is a shipped machine, with `nodes` of them (`otherwise` if None) and perhaps options of its fabric
    (`dgx-h100:nodes_per_leaf=16,uplinks_per_leaf=4`), or a generated family with its size (`torus:4x4x4`; no `nodes`).
    With `path`, `name` is only needed for profiles of known machines (see `read_node`). Raises `InputError` for a name
    that is not known, a number of nodes that is said twice, and what `read_machine` refuses.
    """
    if path is not None:
        return read_machine(path, name, nodes, otherwise)
    if name is None:
        raise InputError("topology: name one of the shipped machines, or give a file")
    head = name.partition(":")[0]
    if is_generated(name):
        if nodes not in (None, 1):
            raise InputError(f"topology {name!r}: its name says its size, got {nodes} nodes besides; leave nodes out")
        return family_topology(name)
    if _ALIASES.get(head, head) not in topology_names():
        known = [*topology_names(), *FAMILIES]
        is_file = Path(name).suffix == ".json" or os.path.isfile(name)
        hint = suggestion(head, known) or "`gapless list topologies` explains them"
        hint = "a file goes with `topology_file`" if is_file else hint
        raise InputError(f"topology: must be one of {', '.join(known)}, got {name!r}; {hint}")
    return _machine(name).cluster(otherwise if nodes is None else nodes)


def _machine(name: str) -> NodeTemplate:
    """A shipped machine by name, with other options of its fabric behind a colon."""
    head, colon, options = name.partition(":")
    node = named_node(head)
    if not colon:
        return node
    record = read_options(options, f"topology {name!r}")
    return replace(node, name=name, fabric=_read_fabric(record, node.fabric.rails))


def _read_own(record: Record) -> NodeTemplate:
    _check_header(record)
    return _read_template(record)


def _read_template(record: Record) -> NodeTemplate:
    """A node; the last fields of a record."""
    node = NodeTemplate(
        name=record.text("name"),
        ranks_per_node=(count := record.integer("ranks_per_node", 1)),
        links=tuple(link for entry in record.records("links", default=[]) for link in _read_link(entry, count)),
        switches=tuple(_read_switch(entry, count) for entry in record.records("switches", default=[])),
        nics=tuple(
            NicTemplate(entry.integers("ranks", 0, count - 1), *_read_port(entry))
            for entry in record.records("nics", default=[])
        ),
        source=record.text("source", default=""),
        fabric=_read_fabric(record.record("fabric", default=Record({}, record.where))),
    )
    record.close()
    return node


def _read_switch(entry: Record, count: int) -> SwitchTemplate:
    reduction = entry.record("reduction", default=None)
    switch = SwitchTemplate(entry.integers("ranks", 0, count - 1), *_read_port(entry))
    return replace(switch, reduction=read_reduction(reduction, (switch.alpha_s, switch.beta_s_per_byte)))


def _read_cluster(record: Record, folder: Path) -> Cluster:
    """A file that lists its nodes; files that it names are beside it."""
    _check_header(record)
    entries = record.records("nodes")
    nodes = tuple(node for entry in entries for node in _read_listed(entry, folder))
    if not nodes:
        raise record.fail("nodes", "a list of at least one node", [])
    fabric = _read_fabric(record.record("fabric", default=Record({}, record.where)))
    cluster = Cluster(record.text("name"), nodes, fabric)
    record.text("source", default="")
    record.record("measured", default=None)  # how the numbers were found, for people and other programs
    record.close()
    return cluster


def _read_listed(entry: Record, folder: Path) -> tuple[NodeTemplate, ...]:
    """Equal nodes of a list: a machine, a file or a node, less some ranks, and with other costs of some NICs."""
    if sum(key in entry for key in ("machine", "file", "node")) != 1:
        raise InputError(f"{entry.where}: must have one of the fields machine, file, node, got {entry.names()}")
    if "node" in entry:
        node = _read_template(entry.record("node"))
    else:
        known = [*topology_names(), *_ALIASES]
        node = (
            named_node(entry.text("machine", known)) if "machine" in entry else read_node(folder / entry.text("file"))
        )
    lacking = entry.integers("without_ranks", 0, node.ranks_per_node - 1) if "without_ranks" in entry else ()
    nics = list(node.nics)
    for other in entry.records("nics", default=[]):
        if not nics:
            raise entry.fail("nics", f"absent: {node.name} has no NIC", [other.raw("number", default=None)])
        number = other.integer("number", 0, len(nics) - 1)
        nics[number] = NicTemplate(nics[number].ranks, *_read_port(other))
    node = replace(node, nics=tuple(nics))
    count: int = entry.integer("count", 1, MOST_LINKS, default=1)
    entry.close()
    return (node.without_ranks(lacking) if lacking else node,) * count


def _check_header(record: Record) -> None:
    record.of_format("gapless.topology")
    record.integer("version", 1, 1)


def _read_fabric(entry: Record, rails: bool = False) -> Fabric:
    rails = entry.boolean("rails", default=rails)
    adds_up = entry.record("reduction", default=None)
    if adds_up is not None:
        for field in ("alpha_us", "beta_us_per_mb"):
            adds_up.number(field, minimum=0)
    reduction = read_reduction(adds_up, (0.0, 0.0))
    nodes_per_leaf = entry.integer("nodes_per_leaf", 1, default=None)
    if nodes_per_leaf is None:
        for field in ("uplinks_per_leaf", "alpha_us", "beta_us_per_mb"):
            if field in entry:
                raise entry.fail(field, "absent without nodes_per_leaf: there are no uplinks", entry.raw(field))
        entry.close()
        return Fabric(rails, reduction=reduction)
    uplinks = entry.integer("uplinks_per_leaf", 1)
    return Fabric(rails, nodes_per_leaf, uplinks, *_read_costs(entry, default=0.0), reduction)


def _read_link(entry: Record, count: int) -> list[LocalLink]:
    source, target = entry.integer("from", 0, count - 1), entry.integer("to", 0, count - 1)
    both_ways = entry.boolean("both_ways", default=False)
    names = entry.texts("resources", "a list of names", default=())
    costs = _read_costs(entry)
    ends = [(source, target), (target, source)] if both_ways else [(source, target)]
    return [LocalLink(start, end, *costs, names) for start, end in ends]


def _read_port(entry: Record) -> tuple[float, float, Slowdown | None]:
    """The costs of a switch or a NIC, with its table of congestion; the last fields of an entry."""
    table = entry.record("congestion", default=None)
    congestion = None if table is None else read_slowdown(table)
    return *_read_costs(entry), congestion


def _read_costs(entry: Record, **default: float) -> tuple[float, float]:
    """`alpha_us` and `beta_us_per_mb` in seconds and seconds per byte; the last fields of an entry."""
    alpha_us = entry.number("alpha_us", minimum=0, **default)
    beta_us_per_mb = entry.number("beta_us_per_mb", minimum=0, **default)
    entry.close()
    return alpha_us * S_PER_US, beta_us_per_mb * S_PER_US / BYTES_PER_MB


# -- profiled topologies -----------------------------------------------------------------------------------------------


def _read_profiled(record: Record, machine: str | None) -> NodeTemplate:
    name = record.text("name")
    chunk_bytes = _chunk_of_profile(record, name)
    unit_us = record.number("us_per_unit", minimum=0, default=_UNIT_US.get(chunk_bytes, 1.0))
    count = record.integer("gpus_per_node", 1)
    alpha_s = record.number("alpha", minimum=0) * unit_us * S_PER_US
    scale = unit_us * S_PER_US / chunk_bytes  # of a beta that is already multiplied by the chunk
    if "links" in record:
        links = _custom_links(record, count, alpha_s, scale)
        switches: tuple[SwitchTemplate, ...] = ()
        nic_count = record.integer("nics_per_node", -1, default=-1)
    else:
        links, switches, nic_count = _known_links(record, name, machine, count, alpha_s, scale)
    nics: tuple[NicTemplate, ...] = ()
    if nic_count > 0:
        remote = record.number("remote_alpha", 0) * unit_us * S_PER_US, record.number("remote_beta", 0) * scale
        if count % nic_count:
            raise record.fail("nics_per_node", f"a divisor of gpus_per_node ({count})", nic_count)
        share = count // nic_count
        nics = tuple(NicTemplate(tuple(range(k * share, (k + 1) * share)), *remote) for k in range(nic_count))
    for redundant in _REDUNDANT:
        record.raw(redundant, default=None)
    record.close()
    return NodeTemplate(name, count, links, switches, nics, source="a profiled topology")


def _chunk_of_profile(record: Record, name: str) -> int:
    if "chunk_size" in record:
        return parse_bytes(record.text("chunk_size"), f"{record.where}: chunk_size")
    suffix = re.search(r"([0-9.]+ ?[KMG]i?B)$", name, flags=re.IGNORECASE)
    if suffix is None:
        raise record.fail(
            "name", "a name that ends in the chunk size of the profile, such as NDv2_1MB", name,
            "or add the field 'chunk_size' (and 'us_per_unit')",
        )  # fmt: skip
    return parse_bytes(suffix.group(1), f"{record.where}: name")


def _custom_links(record: Record, count: int, alpha_s: float, scale: float) -> tuple[LocalLink, ...]:
    """Matrices are indexed [target][source]; an entry above 1 means that many links side by side."""
    width, beta = _matrix(record, "links", count), _matrix(record, "betas", count)
    found = []
    for source in range(count):
        for target in range(count):
            if source != target and width[target][source] > 0:
                # `width` links side by side carry that many times as much; the profile's beta is one link's.
                beta_s_per_byte = beta[target][source] * scale / width[target][source]
                found.append(LocalLink(source, target, alpha_s, beta_s_per_byte))
    return tuple(found)


def _matrix(record: Record, key: str, count: int) -> list[list[float]]:
    rule = f"a {count} x {count} matrix (gpus_per_node)"
    rows = record.lists(key, rule, count)
    if any(len(row) != count for row in rows):
        raise record.fail(key, rule, rows)
    return [
        [record.real(f"{key}[{target}][{source}]", value, 0) for source, value in enumerate(row)]
        for target, row in enumerate(rows)
    ]


def _known_links(
    record: Record, name: str, machine: str | None, count: int, alpha_s: float, scale: float
) -> tuple[tuple[LocalLink, ...], tuple[SwitchTemplate, ...], int]:
    """A shipped machine's links under the profile's costs; the k-th fastest kind of link gets the k-th beta."""
    base = named_node(machine or re.split(r"[_-]", name)[0].lower())
    if count != base.ranks_per_node:
        raise record.fail("gpus_per_node", f"{base.ranks_per_node}, as a {base.name} node has", count)
    betas = record.array("node_betas_list")
    kinds = sorted({link.beta_s_per_byte for link in base.links} | {s.beta_s_per_byte for s in base.switches})
    if len(betas) != len(kinds):
        raise record.fail("node_betas_list", f"{len(kinds)} numbers >= 0, fastest first, for {base.name}", betas)
    rising = sorted(record.real(f"node_betas_list[{k}]", beta, 0) for k, beta in enumerate(betas))
    cost = {kind: beta * scale for kind, beta in zip(kinds, rising, strict=True)}
    links = tuple(LocalLink(link.source, link.target, alpha_s, cost[link.beta_s_per_byte]) for link in base.links)
    switches = tuple(_at_cost(switch, alpha_s, cost[switch.beta_s_per_byte]) for switch in base.switches)
    return links, switches, len(base.nics)


def _at_cost(switch: SwitchTemplate, alpha_s: float, beta_s_per_byte: float) -> SwitchTemplate:
    """The switch, and what it does besides, at other costs."""
    reduction = switch.reduction
    if reduction is not None:
        reduction = replace(reduction, alpha_s=alpha_s, beta_s_per_byte=beta_s_per_byte)
    return replace(switch, alpha_s=alpha_s, beta_s_per_byte=beta_s_per_byte, reduction=reduction)
