"""`gapless emulate`: a command in every rank of a cluster that is emulated on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.options import add_fields, add_quiet, naming_options, values_of
from gapless.cli.parser import Commands
from gapless.question.fields import Bandwidth, Field, Text, Whole

if TYPE_CHECKING:
    import threading

    from gapless.emulation import Cluster
    from gapless.topologies.topology import Topology

__all__ = ["add_commands"]

_FIELDS = (
    Field(
        "nodes", Whole(1), "how many of them", otherwise="1, or as many as the file lists", metavar="N",
        group="machine",
    ),
    Field(
        "total", Bandwidth(), "what all ranks together may send at once: what this machine's processors carry",
        default=100e6, metavar="RATE", group="machine",
    ),
    Field(
        "logs", Text(), "keep what each rank prints in this folder", otherwise="only rank 0 is shown, and what fails",
        metavar="FOLDER", group="output",
    ),
    Field(
        "output", Text(), "write the emulated machine as a topology file, to plan for", otherwise="none is written",
        metavar="FILE", group="output", short="-o",
    ),
)  # fmt: skip

_EXAMPLE = """\
needs root on Linux: it makes a network namespace for each rank, and removes it again

example:
  gapless emulate dgx-a100 --nodes 2 -o emulated.json
  gapless emulate ring:2 --total 20MB/s -- python -c "import os; print(os.environ['RANK'])"
"""
_LAST_LINES = 20
"""Of what a failed rank has printed."""
_POLL_S = 0.05
_GRACE_S = 10.0
"""How long the other ranks have to end by themselves once one has failed."""


def add_commands(commands: Commands) -> None:
    """Add `emulate`."""
    parser = commands.add_parser(
        "emulate", help="a command in every rank of a cluster that is emulated on this machine", epilog=_EXAMPLE
    )
    parser.usage = "gapless emulate MACHINE [options] [-- COMMAND ...]"
    parser.takes_command = True
    parser.add_argument("machine", metavar="MACHINE", help="a topology file, or a name of `gapless list topologies`")
    add_fields(parser, _FIELDS)
    add_quiet(parser)
    parser.set_defaults(run=_emulate, words=[])


def _emulate(arguments: argparse.Namespace) -> int:
    from gapless.emulation import why_no_cluster
    from gapless.emulation.queues import sent_at_once
    from gapless.errors import InputError
    from gapless.topologies.files import load_topology

    if not arguments.words and not arguments.output:
        raise InputError("give a command behind `--`, or `-o FILE` for the topology file of the emulated machine")
    with naming_options(_FIELDS):
        values = values_of(arguments, _FIELDS)
        is_file = Path(arguments.machine).is_file() or arguments.machine.endswith(".json")
        name, file = (None, arguments.machine) if is_file else (arguments.machine, None)
        machine = load_topology(name, values["nodes"], file)
    scale = values["total"] / sent_at_once(machine)
    scale = 1.0 if scale > 1 - 1e-9 else scale  # nothing gets faster, and what is emulated already stays as it is
    _say(arguments, f"{machine.name}: {machine.device_count} ranks, {_scale_text(scale)}")
    if arguments.output:
        _write(arguments, machine.name, scale, is_file)
    if not arguments.words:
        return 0
    if reason := why_no_cluster():
        raise InputError(reason)
    return _run(arguments, machine, scale, values["logs"])


def _scale_text(scale: float) -> str:
    return "bandwidths as they are" if scale == 1 else f"bandwidths times {scale:.4g}"


def _write(arguments: argparse.Namespace, name: str, scale: float, is_file: bool) -> None:
    """The topology file of the emulated machine; a file that it names is beside it."""
    import os

    from gapless.errors import InputError
    from gapless.io.atomic import check_writable, write_text
    from gapless.io.record import load_record
    from gapless.topologies.emulated import ALPHA_S, emulated_text

    check_writable(arguments.output)
    named: dict[str, object] = {"topology": arguments.machine}
    if is_file:
        if "emulates" in load_record(arguments.machine):
            raise InputError(f"output: {arguments.machine} is the file of an emulated machine already; leave it out")
        named = {"file": os.path.relpath(arguments.machine, Path(arguments.output).parent)}
    named |= {} if arguments.nodes is None else {"nodes": arguments.nodes}
    write_text(arguments.output, emulated_text(f"{name}, emulated", named, scale, ALPHA_S))
    _say(arguments, f"{arguments.output}: the machine as it is emulated")


def _run(arguments: argparse.Namespace, machine: Topology, scale: float, logs: str | None) -> int:
    """The command in every rank; the exit code of the first that fails."""
    import threading

    from gapless.cli.signals import EXIT_SIGNAL, Listening
    from gapless.emulation import emulated_cluster, lone_transfer

    stop = threading.Event()
    with Listening(stop, "ending the ranks"), emulated_cluster(machine, scale=scale, takes_signals=False) as cluster:
        before = lone_transfer(cluster)
        code = _in_all_ranks(arguments, cluster, stop, logs)
        if stop.is_set():
            return EXIT_SIGNAL + 2
        after = lone_transfer(cluster)
    _say(arguments, f"a lone transfer had {before:.0%} of its bandwidth before, {after:.0%} after")
    return code


def _in_all_ranks(arguments: argparse.Namespace, cluster: Cluster, stop: threading.Event, logs: str | None) -> int:
    """Rank 0 prints; of the others, what has failed."""
    import shutil
    import time

    from gapless.cli.signals import EXIT_SIGNAL

    running = cluster.start(arguments.words, shown=() if logs else (0,))
    try:
        until_s: float | None = None
        while not running.is_over() and not stop.is_set():
            if until_s is None and running.failed() is not None:
                until_s = time.monotonic() + _GRACE_S
            if until_s is not None and time.monotonic() > until_s:
                break
            stop.wait(_POLL_S)
        failed = running.failed()
    finally:
        running.kill()
    if logs:
        Path(logs).mkdir(parents=True, exist_ok=True)
        for rank, path in enumerate(running.printed):
            shutil.copyfile(path, Path(logs) / f"rank{rank}.txt")
    if failed is None:
        return 0
    code = running.processes[failed].returncode
    if failed or logs:
        for line in running.printed[failed].read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]:
            print(f"rank {failed}: {line}", file=sys.stderr)
    print(f"gapless: rank {failed} ended with {code}", file=sys.stderr)
    return EXIT_SIGNAL - code if code < 0 else code


def _say(arguments: argparse.Namespace, line: str) -> None:
    """On stderr: stdout is the command's."""
    if not arguments.quiet:
        print(f"gapless: {line}", file=sys.stderr, flush=True)
