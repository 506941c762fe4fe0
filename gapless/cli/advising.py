"""`gapless advise`: whether compressing gradients pays and what would change that; caches of embeddings."""

from __future__ import annotations

import argparse
from typing import Any

from gapless.cli import advising_bagpipe
from gapless.cli import arguments as shared
from gapless.cli.networks import add_network_options

__all__ = ["add_commands"]

_COMPRESSION_EXAMPLE = """\
Each compressor gets its best fusion of the profile's gradients, at published costs, and is compared with no compression
in the best size of buckets from 2 to 64 MB. `pays below`: the bandwidth at which it stops paying.

example:
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
"""

_ADVISE_EXAMPLE = """\
example (`gapless advise QUESTION --help` has more):
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
"""

_WHAT_IF_EXAMPLE = """\
An analytic model of the backward pass and the synchronisation, with buckets of 25 MB: no search, no forward pass.

example:
  gapless advise what-if --figure bandwidth --profile resnet101 --ranks 64 --bandwidth 10Gbps --compressor powersgd
"""

_FIGURES = {
    "bandwidth": "other bandwidths",
    "batch": "other batch sizes, as factors of the profile's",
    "compute": "a device so many times as fast",
    "tradeoff": "encode and decode k times as fast at l k times the bytes",
    "ratio": "the compression ratio that is enough for close to linear scaling",
}


def add_commands(commands: Any) -> None:
    """Add `advise` with its questions."""
    parser = _question(
        commands, "advise", "whether compressing gradients pays, which embedding cache suits", _ADVISE_EXAMPLE
    )
    questions = parser.add_subparsers(metavar="question", required=True)
    _add_compression(questions)
    _add_what_if(questions)
    advising_bagpipe.add_question(questions)


def _add_compression(questions: Any) -> None:
    parser = _question(questions, "compression", "every compressor's best plan against none", _COMPRESSION_EXAMPLE)
    group = parser.add_argument_group("problem")
    _add_case(group)
    group.add_argument(
        "--compressor", nargs="+", default=["all"], metavar="NAME",
        help="`gapless list compressors`, or all (default)",
    )  # fmt: skip
    group.add_argument(
        "--device", default="v100", metavar="NAME", help="where gradients are encoded and decoded (default v100)"
    )
    shared.add_output_options(parser)
    parser.set_defaults(run=_compression)


def _add_what_if(questions: Any) -> None:
    parser = _question(questions, "what-if", "tables of the analytic performance model", _WHAT_IF_EXAMPLE)
    group = parser.add_argument_group("problem")
    figures = "; ".join(f"{name}: {what}" for name, what in _FIGURES.items())
    group.add_argument("--figure", choices=list(_FIGURES), required=True, help=figures)
    _add_case(group)
    group.add_argument("--compressor", default="powersgd", metavar="NAME", help="powersgd (default)")
    shared.add_output_options(parser)
    parser.set_defaults(run=_what_if)


def _question(questions: Any, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = questions.add_parser(
        name, help=help_text, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser


def _add_case(group: Any) -> None:
    group.add_argument(
        "--profile", required=True, metavar="NAME|FILE", help="a fusion profile: `gapless list profiles`"
    )
    add_network_options(group)


def _compression(arguments: argparse.Namespace) -> int:
    from gapless.encodings.cupcake.advice import compression
    from gapless.profiles.gradients.communication import find_network

    return shared.print_answer(arguments, compression(**shared.given(arguments, compression, find_network)))


def _what_if(arguments: argparse.Namespace) -> int:
    from gapless.encodings.cupcake.what_if import what_if
    from gapless.profiles.gradients.communication import find_network

    return shared.print_answer(arguments, what_if(**shared.given(arguments, what_if, find_network)))
