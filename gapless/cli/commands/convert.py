"""`gapless convert`: a topology file from what a machine says of itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from gapless.cli.options import add_fields, add_output_options, naming_options, values_of
from gapless.cli.parser import Commands
from gapless.question.fields import Bandwidth, Field, Text

__all__ = ["add_commands"]

_KINDS = {"nvlink": "a single NVLink", "pcie": "the slot of a GPU", "nic": "a NIC"}

_FIELDS = (
    Field("name", Text(), "name of the machine", otherwise="that of FILE", metavar="NAME", group="topology"),
    *(
        Field(kind, Bandwidth(), f"bandwidth of {what}, one direction", metavar="RATE", group="topology")
        for kind, what in _KINDS.items()
    ),
    *(
        Field(
            f"{kind}_measured", Text(), f"table of sendrecv_perf -g 2 between GPUs 0 and 1, over {what}",
            metavar="FILE", group="topology",
        )
        for kind, what in (("nvlink", "all their NVLinks"), ("pcie", "PCIe"), ("nic", "NICs, on two nodes"))
    ),
)  # fmt: skip

_EXAMPLE = """\
FILE is what `nvidia-smi topo -m` prints, what NCCL writes to NCCL_TOPO_DUMP_FILE, or `lstopo --of xml`

example:
  gapless convert matrix.txt --nvlink 25GB/s --nic 200Gb/s -o machine.json
"""


def add_commands(commands: Commands) -> None:
    """Add `convert`."""
    parser = commands.add_parser(
        "convert",
        help="a topology file from what a machine says of itself: nvidia-smi, NCCL, lstopo, nccl-tests",
        epilog=_EXAMPLE,
    )
    parser.add_argument("file", metavar="FILE", help="the machine's description")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the topology file")
    add_fields(parser, _FIELDS)
    add_output_options(parser)
    parser.set_defaults(run=_convert)


def _convert(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.io.atomic import check_writable, write_text
    from gapless.io.text_file import load_text
    from gapless.topologies.descriptions import Rates, describe, read_measured
    from gapless.topologies.writing import node_text

    check_writable(arguments.output)
    values = values_of(arguments, _FIELDS)
    with naming_options(_FIELDS):
        rates = {f"{kind}_bytes_per_s": values[kind] for kind in _KINDS}
        for kind in _KINDS:
            path = values[f"{kind}_measured"]
            rates[f"{kind}_measured"] = None if path is None else read_measured(load_text(path), path)
        name = values["name"] or Path(arguments.file).stem
        node = describe(load_text(arguments.file), name, Rates(**rates), arguments.file)
    write_text(arguments.output, node_text(node))
    said = {
        "name": node.name, "ranks": node.ranks_per_node, "links": len(node.links), "switches": len(node.switches),
        "nics": len(node.nics), "source": node.source, "file": arguments.output,
    }  # fmt: skip
    if arguments.json:
        print_json(said)
    elif not arguments.quiet:
        counted = ", ".join(f"{said[title]} {title}" for title in ("ranks", "links", "switches", "nics"))
        print(f"{arguments.output}: {counted}\n{node.source}")
    return 0
