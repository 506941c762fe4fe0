"""`gapless list`: what is shipped, and what is found on this machine; alone, which tables there are."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

from gapless.cli.options import add_quiet
from gapless.cli.parser import Commands
from gapless.system import find_system, system_names

__all__ = ["add_commands"]

_EXAMPLE = """\
Alone it says which tables there are.

example:
  gapless list
  gapless list topologies
  gapless list solvers --json
  gapless list --cite
"""

Rows = Sequence[Mapping[str, object]]


def add_commands(commands: Commands) -> None:
    """Add `list`."""
    parser = commands.add_parser(
        "list",
        help=f"list {', '.join(sorted(_tables()))}, or what to cite",
        epilog=_EXAMPLE,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("what", nargs="?", choices=sorted(_tables()), help="the table (default: which there are)")
    what.add_argument("--cite", action="store_true", help="gapless and the papers behind it, as BibTeX")
    parser.add_argument("--json", action="store_true", help="a JSON list of objects on stdout")
    add_quiet(parser, "names only, a line each")
    parser.set_defaults(run=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.cite:
        print("\n".join(_citations()), end="")
        return 0
    rows = _overview() if arguments.what is None else _tables()[arguments.what]()
    if arguments.json:
        json.dump(rows, sys.stdout)
        sys.stdout.write("\n")
        return 0
    if arguments.quiet:
        print("\n".join(str(row["name"]) for row in rows))
        return 0
    titles = list(rows[0])
    table = [titles, *([str(row[title]) for title in titles] for row in rows)]
    widths = [max(len(cells[k]) for cells in table) for k in range(len(titles))]
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    if arguments.what in _NOTES:
        print(f"\n{_NOTES[arguments.what]}")
    return 0


def _overview() -> Rows:
    return [{"name": name, "what": (table.__doc__ or "").strip()} for name, table in sorted(_tables().items())]


def _topologies() -> Rows:
    """Machines and families of networks, for --topology."""
    from gapless.topologies.families import FAMILIES, family_topology
    from gapless.topologies.files import named_node
    from gapless.topologies.names import topology_names

    nodes = [named_node(name) for name in topology_names()]
    machines = [
        {"name": node.name, "example": f"{node.name} --nodes 2", "ranks": node.ranks_per_node,
         "links": len(node.cluster(1).links), "switches": len(node.switches), "nics": len(node.nics),
         "source": node.source}
        for node in nodes
    ]  # fmt: skip
    families = []
    for name, family in FAMILIES.items():
        topology = family_topology(family.example)
        families.append({
            "name": name, "example": family.example, "ranks": topology.device_count, "links": len(topology.links),
            "switches": 0, "nics": len(topology.nics), "source": f"generated: {family.what}",
        })  # fmt: skip
    return machines + families


def _collectives() -> Rows:
    """What ranks exchange, for --collective."""
    from gapless.ir.amounts import VECTORS
    from gapless.ir.collective import COLLECTIVES

    what = {name: (build.__doc__ or "").split(";")[0].strip() for name, build in COLLECTIVES.items()} | VECTORS
    return [{"name": name, "what": what[name]} for name in sorted(what)]


def _profiles() -> Rows:
    """What workloads cost: networks, gradients, layers, heads, devices."""
    from gapless.profiles.devices import device_names, named_device
    from gapless.profiles.gradients.named import fusion_profile_names
    from gapless.profiles.heads.named import head_profile_names
    from gapless.profiles.pipelines.named import NAMED
    from gapless.profiles.training.networks import network_names
    from gapless.units import format_bytes

    fusion = [{"name": name, "kind": "fusion", "what": _fusion_text(name)} for name in fusion_profile_names()]
    networks = [{"name": name, "kind": "network", "what": "for --graph"} for name in network_names()]
    layers = [{"name": name, "kind": "layers", "what": _layers_text(name)} for name in NAMED]
    heads = [{"name": name, "kind": "heads", "what": _heads_text(name)} for name in head_profile_names()]
    devices = [named_device(name) for name in device_names()]
    return networks + fusion + layers + heads + [
        {"name": device.name, "kind": "device", "what": f"{device.flops_per_s / 1e12:.4g} TFLOP/s, "
         f"{format_bytes(device.bytes_per_s)}/s, {format_bytes(device.memory_bytes)}, {device.busy_w:g} W"}
        for device in devices
    ]  # fmt: skip


def _fusion_text(name: str) -> str:
    from gapless.profiles.gradients.named import load_fusion_profile
    from gapless.units import format_bytes, format_seconds

    profile = load_fusion_profile(name)
    gradients = f"{profile.tensor_count} gradients of {format_bytes(profile.total_bytes)}"
    return f"for --profile: {gradients}, step {format_seconds(profile.compute_s)}"


def _heads_text(name: str) -> str:
    from gapless.profiles.heads.named import find_head_profile

    profile = find_head_profile(name)
    return f"for --profile: {profile.layers} layers of {profile.heads} heads, {profile.source}"


def _layers_text(name: str) -> str:
    from gapless.profiles.pipelines.named import NAMED
    from gapless.units import format_bytes, format_seconds

    profile = NAMED[name]()
    step_s = float((profile.forward_s + profile.backward_s + profile.weight_s).sum())
    states = format_bytes(int(profile.state_bytes.sum()))
    return f"for --profile: {profile.layer_count} layers, {states} of states, micro-batch {format_seconds(step_s)}"


def _compressors() -> Rows:
    """How gradients are compressed, for --compressor."""
    from gapless.profiles.compressors.grammar import compressor_names, named_compressor

    compressors = [named_compressor(name) for name in compressor_names()]
    return [
        {"name": compressor.name, "ratio": compressor.ratio,
         "collective": "all-reduce" if compressor.all_reducible else "all-gather",
         "error": compressor.error, "what": compressor.what, "source": compressor.source}
        for compressor in compressors
    ]  # fmt: skip


def _schemas() -> Rows:
    """The JSON Schemas of the files that gapless reads and writes."""
    from gapless.schemas import load_schema, schema_files

    return [
        {"name": name, "what": load_schema(name)["title"], "file": str(file)} for name, file in schema_files().items()
    ]


def _solvers() -> Rows:
    """The solvers on this machine, for --solver."""
    from gapless.solvers.registry import backends

    return [
        {"name": backend.name, "version": backend.version or "not installed", "takes": ", ".join(backend.takes)}
        for backend in backends(look_inside=True)
    ]


_NOTES = {
    "topologies": """\
Ranks and links are those of one node, or of the example. A generated one says its size, and perhaps its costs, for all
links or for each dimension: torus:4x4x4,alpha_us=0.7,beta_us_per_mb=20/20/40. A machine may have other wiring between
its nodes: dgx-h100:nodes_per_leaf=16,uplinks_per_leaf=4 or dgx-h100:rails=false. Anything else: --topology-file.""",
}
"""What a table leaves unsaid."""


def _parameters() -> Rows:
    """What a searcher may tune, for --parameters."""
    from gapless.challenges.parameters import ChallengeParameters
    from gapless.question.parameters import parameter_rows

    kinds = {name: find_system(name).parameters for name in system_names()}
    own = {name: kind() for name, kind in kinds.items() if kind is not None}
    of_all = {"(challenge)": ChallengeParameters}
    return [{"system": name, **row} for name, kind in {**own, **of_all}.items() for row in parameter_rows(kind)]


def _systems() -> Rows:
    """The problems that `gapless solve` takes."""
    systems = [find_system(name) for name in system_names()]
    return [{"name": system.name, "what": system.what, "plans": system.ending} for system in systems]


def _citations() -> list[str]:
    packages = ["gapless", *filter(None, (find_system(name).package for name in system_names()))]
    found = [files(package) / "references.bib" for package in packages]
    return [file.read_text(encoding="utf-8") for file in found if file.is_file()]


def _tables() -> dict[str, Callable[[], Rows]]:
    """The tables by name: those of gapless, and those of the systems."""
    own = {
        "collectives": _collectives, "compressors": _compressors, "parameters": _parameters, "profiles": _profiles,
        "schemas": _schemas, "solvers": _solvers, "systems": _systems, "topologies": _topologies,
    }  # fmt: skip
    return own | {title: rows for name in system_names() for title, rows in find_system(name).listings.items()}
