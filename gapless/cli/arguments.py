"""Arguments that several subcommands share, and the types that check them."""

from __future__ import annotations

import argparse
import inspect
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gapless.errors import InputError
from gapless.options import Progress, SolveOptions
from gapless.units import parse_bandwidth, parse_bytes, parse_seconds

__all__ = [
    "Number",
    "Whole",
    "add_ef_options",
    "add_output_options",
    "add_solve_options",
    "add_topology_options",
    "bandwidth",
    "budget",
    "duration",
    "ef_options",
    "given",
    "print_answer",
    "size",
    "solve_options",
]


def size(text: str) -> int:
    """A size such as 1MB, in bytes."""
    try:
        return parse_bytes(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("size: ")) from None


def bandwidth(text: str) -> float:
    """A bandwidth such as 10Gbps, in bytes per second."""
    try:
        return parse_bandwidth(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("bandwidth: ")) from None


def duration(text: str) -> float:
    """A time such as 10us, in seconds."""
    try:
        return parse_seconds(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("time: ")) from None


def budget(text: str) -> tuple[int, float | None]:
    """A size in bytes, or a share such as 0.5x of the memory that a run without any saving takes."""
    if not text.endswith("x"):
        return size(text), None
    return 0, Number(0, strict=True)(text[:-1])


@dataclass(frozen=True)
class Number:
    """The type of an option that takes a finite number of at least (or, if strict, above) `minimum`."""

    minimum: float
    strict: bool = False

    def __call__(self, text: str) -> float:
        """The number in a text."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < self.minimum or (self.strict and value == self.minimum):
            rule = f"must be a number {'>' if self.strict else '>='} {self.minimum:g}"
            raise argparse.ArgumentTypeError(f"{rule}, got {text!r}")
        return value


@dataclass(frozen=True)
class Whole:
    """The type of an option that takes a whole number between `minimum` and `maximum`."""

    minimum: int
    maximum: int = 2**31 - 1

    def __call__(self, text: str) -> int:
        """The number in a text."""
        try:
            value = int(text)
        except ValueError:
            value = self.minimum - 1
        if not self.minimum <= value <= self.maximum:
            rule = f"must be a whole number in {self.minimum}..{self.maximum}"
            raise argparse.ArgumentTypeError(f"{rule}, got {text!r}")
        return value


def add_solve_options(parser: argparse.ArgumentParser, time_limit_s: float | None = None) -> None:
    """The options of every `solve`; `time_limit_s` is the default of `--time-limit`, None for the system's own."""
    group = parser.add_argument_group("solving")
    default = "by system" if time_limit_s is None else f"{time_limit_s:g}"
    help_text = f"seconds of wall time (default: {default})"
    group.add_argument("--time-limit", type=Number(0, strict=True), default=time_limit_s, metavar="S", help=help_text)
    group.add_argument(
        "--gap", type=Number(0), metavar="G", help="stop at this proven gap, 0.05 = 5 %% (default: by system)"
    )
    group.add_argument("--threads", type=Whole(0), default=0, metavar="N", help="0 takes every core (default)")
    group.add_argument("--seed", type=Whole(0), default=0, metavar="N")
    group.add_argument("--solver", metavar="NAME", help="see `gapless list solvers` (default: by system)")


def solve_options(
    arguments: argparse.Namespace,
    default: SolveOptions,
    on_progress: Callable[[Progress], None] | None,
    stop: threading.Event,
) -> SolveOptions:
    """The options that the command line gives, on top of a system's defaults; refuses a solver that isn't known."""
    from gapless.solvers.registry import find_backend

    if arguments.solver is not None:
        find_backend(arguments.solver)
    return SolveOptions(
        time_limit_s=default.time_limit_s if arguments.time_limit is None else arguments.time_limit,
        gap=default.gap if arguments.gap is None else arguments.gap,
        threads=arguments.threads,
        seed=arguments.seed,
        solver=arguments.solver,
        on_progress=on_progress,
        stop=stop,
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """What goes to stdout and stderr."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    group.add_argument("--quiet", action="store_true", help="no progress, no summary")


def given(arguments: argparse.Namespace, *functions: Callable[..., Any]) -> dict[str, Any]:
    """What the command line gives of the functions' arguments; the others keep their defaults."""
    names = {name for function in functions for name in inspect.signature(function).parameters}
    found = {name: getattr(arguments, name, None) for name in sorted(names)}
    return {name: value for name, value in found.items() if value is not None}


def print_answer(arguments: argparse.Namespace, answer: Any) -> int:
    """An answer's `data` as JSON or its `text` for people; returns the exit code."""
    from gapless.cli.output import print_json

    if arguments.json:
        print_json(answer.data)
    elif not arguments.quiet:
        print(answer.text)
    return 0


def add_topology_options(group: argparse._ArgumentGroup) -> None:
    """The machine, by name or from a file, and how many nodes of it."""
    group.add_argument(
        "--topology", metavar="NAME", help="a machine (ndv2) or a family (torus:4x4): `gapless list topologies`"
    )
    group.add_argument("--topology-file", metavar="FILE", help="a topology in gapless's or TACCL's format")
    group.add_argument(
        "--nodes",
        type=Whole(1, 10**6),
        metavar="N",
        help="number of a machine's nodes (default: the sketch's, or 1)",
    )


def add_ef_options(parser: argparse.ArgumentParser) -> None:
    """How to lower to TACCL-EF, and with some of the same options to MSCCL++ plans."""
    group = parser.add_argument_group(
        "TACCL-EF", "mscclpp takes --instances, --placement, --min-bytes, --max-bytes, --sm-count"
    )
    group.add_argument(
        "--instances", type=Whole(1, 64), default=1, metavar="N", help="parts that each chunk is cut into (default 1)"
    )
    group.add_argument(
        "--proto", choices=["Simple", "LL", "LL128"], default="Simple", help="NCCL protocol (default Simple)"
    )
    group.add_argument(
        "--placement",
        choices=["out-of-place", "in-place", "both"],
        default="both",
        help="buffers served (default both)",
    )
    group.add_argument(
        "--runtime",
        choices=["both", "executor", "original"],
        default="both",
        help="whose limits to keep, and whose name of the collective to write (default both)",
    )
    for end, meaning in (("min", "least"), ("max", "most, 0 for no limit")):
        group.add_argument(
            f"--{end}-bytes",
            type=size,
            default=0,
            metavar="SIZE",
            help=f"size of the larger buffer for which the runtime may choose the program: {meaning} (default 0)",
        )
    group.add_argument(
        "--sm-count",
        type=Whole(1),
        metavar="N",
        help="multiprocessors of the GPU: so many thread blocks at most (default: merge above 80, no limit)",
    )
    group.add_argument(
        "--no-fuse", dest="fuse", action="store_false", help="keep receives and sends apart, no rcs, rrs, rrcs steps"
    )


def add_ef_check_options(parser: argparse.ArgumentParser) -> None:
    """How to judge a TACCL-EF file, or an MSCCL++ plan."""
    group = parser.add_argument_group("TACCL-EF", "MSCCL++ plans take --collective")
    group.add_argument(
        "--runtime",
        choices=["both", "executor", "original"],
        default="both",
        help="whose limits to keep (default both: the narrower of each)",
    )
    group.add_argument("--collective", metavar="NAME", help="what the program must do (default: what its coll says)")
    group.add_argument("--root", type=Whole(0), metavar="RANK", help="its root (default: found from who sends)")


def ef_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The lowering options that the command line gives."""
    keys = ("instances", "proto", "placement", "runtime", "min_bytes", "max_bytes", "sm_count", "fuse")
    return {key: getattr(arguments, key) for key in keys}
