"""`gapless run`: plans that are executed, measured and compared with what there is without them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.torch.close_kinds import CLOSE

if TYPE_CHECKING:  # imported by the command itself: --help stays fast, and works without torch
    from gapless.recipe import Result
    from gapless.system import Problem

__all__ = ["add_commands"]

_EXAMPLE = """\
FACTORY makes what is to be trained: (model, inputs), where the model returns its loss, or
(model, inputs, loss, targets) for loss(model(*inputs), *targets); inputs are a tuple, or a mapping by name.

example:
  gapless run monet --model train:small_gpt --budget 0.5x --cache ops.json
  gapless run monet --model train:small_gpt --budget 0.2x --close attention,loss
"""


def add_commands(commands: Any) -> None:
    """Add `run`."""
    systems = commands.add_parser(
        "run",
        help="execute a plan with PyTorch and measure it",
        epilog=_EXAMPLE.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).add_subparsers(metavar="system", required=True)
    parser = systems.add_parser(
        "monet",
        help="a training step under a memory budget",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    group.add_argument("--model", required=True, metavar="MODULE:FACTORY", help="or FILE.py:FACTORY; see below")
    help_text = "8GiB, 8GB (10^9), or 0.5x: of eager's peak; above parameters and inputs"
    group.add_argument("--budget", type=shared.budget, required=True, metavar="SIZE", help=help_text)
    group.add_argument("--cache", metavar="FILE", help="times of operators, read and written")
    help_text = "implementations that may be off by rounding: attention, loss, norm, or all (default: none)"
    group.add_argument("--close", type=_kinds, default=(), metavar="KINDS", help=help_text)
    group.add_argument("--steps", type=shared.Whole(1), default=5, metavar="N", help="steps to time (default: 5)")
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write")
    shared.add_solve_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_run)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = CLOSE if text == "all" else tuple(dict.fromkeys(text.split(",")))
    for kind in kinds:
        if kind not in CLOSE:
            raise argparse.ArgumentTypeError(f"must be all, or some of {', '.join(CLOSE)}, got {kind!r}")
    return kinds


def _run(arguments: argparse.Namespace) -> int:
    from gapless.cli import output
    from gapless.encodings import monet
    from gapless.io.atomic import check_writable
    from gapless.torch.run import load_workload, run_and_compare
    from gapless.torch.run.step_plan import reason_without_plan

    def report(text: str) -> None:
        if not arguments.quiet:
            print(f"gapless: {text} ...", file=sys.stderr)

    if arguments.output is not None:
        check_writable(arguments.output)
    budget_bytes, eager_share = arguments.budget
    found = run_and_compare(
        load_workload(arguments.model), monet.Problem, budget_bytes=budget_bytes, eager_share=eager_share,
        name=arguments.model, close=arguments.close, cache=arguments.cache, steps=arguments.steps,
        solve=lambda problem: _solved(problem, arguments), report=report,
    )  # fmt: skip
    if found.train is None:
        print(f"gapless: {reason_without_plan(found.result)}", file=sys.stderr)
    elif arguments.json:
        output.print_json({**found.data, "plan": arguments.output})
    elif not arguments.quiet:
        print(found.text)
    return output.exit_code(found.result.status, found.result.report)


def _solved(problem: Problem, arguments: argparse.Namespace) -> Result:
    """Solve as `gapless solve` does, and write the plan before it is run."""
    from gapless.cli.running import run, while_written, write_plan_of

    result = run(problem, arguments)
    if result.valid and arguments.output is not None:
        with while_written(arguments):
            write_plan_of(arguments.output, result)
    return result
