"""`gapless run`: plans that are executed, measured and compared with what there is without them."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.errors import InputError
from gapless.torch.close_kinds import CLOSE

if TYPE_CHECKING:  # imported by the command itself: --help stays fast, and works without torch
    from gapless.torch.run.comparison import Method, Workload
    from gapless.torch.run.planning import TorchPlan
    from gapless.torch.run.step import Step

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
    from gapless.io.atomic import check_writable
    from gapless.torch.capture.graph import capture
    from gapless.torch.capture.timing import profile
    from gapless.torch.run.comparison import compare, eager_peak_bytes

    if arguments.output is not None:
        check_writable(arguments.output)
    work = _workload(arguments.model)
    _say(arguments, "capturing")
    step = capture(
        work.model, work.inputs, work.loss, targets=work.targets, name=arguments.model, close=arguments.close
    )
    _say(arguments, f"timing {len(step.graph.forward)} forward and {len(step.graph.backward)} backward nodes")
    step = profile(step, arguments.cache)
    eager_bytes = eager_peak_bytes(work)
    size_bytes, ratio = arguments.budget
    budget_bytes = size_bytes if ratio is None else max(int(ratio * eager_bytes), 1)
    plan, code = _plan(step, budget_bytes, arguments)
    if plan is None:
        return code
    from gapless.torch.run.step import run

    _say(arguments, "running")
    train = run(plan, work.model)
    methods = list(compare(work, train, arguments.steps))
    _tell(train, budget_bytes, methods, arguments)
    return code


def _plan(step: Any, budget_bytes: int, arguments: argparse.Namespace) -> tuple[TorchPlan | None, int]:
    """Solve as `gapless solve monet` does; the plan that it found, if any, and the exit code."""
    from gapless.cli.output import exit_code
    from gapless.cli.running import run, while_written, write_plan_of
    from gapless.encodings.monet import Problem
    from gapless.torch.run.planning import TorchPlan
    from gapless.units import format_bytes

    result = run(Problem(step.graph, budget_bytes), arguments)
    code = exit_code(result.status, result.report)
    if result.schedule is None or result.report is None or not result.valid:
        print(f"gapless: no plan within {format_bytes(budget_bytes)}: {result.status.value}", file=sys.stderr)
        least = result.details.get("least_budget_bound_bytes")
        if least is not None:
            print(f"gapless: every plan needs at least {format_bytes(int(str(least)))}, proven", file=sys.stderr)
        return None, code
    if arguments.output is not None:
        with while_written(arguments):
            write_plan_of(arguments.output, result)
    return TorchPlan(step, result.schedule, result.report.peak_bytes[0], result), code


def _workload(name: str) -> Workload:
    """What a factory makes, checked."""
    from gapless.torch.run.comparison import Workload

    made = _factory(name)()
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise InputError(f"--model {name}: must return (model, inputs) or (model, inputs, loss, targets)")
    model, inputs = made[:2]
    loss = made[2] if len(made) > 2 else None
    targets = made[3] if len(made) > 3 else ()
    inputs = inputs if isinstance(inputs, Mapping | tuple | list) else (inputs,)
    targets = targets if isinstance(targets, tuple | list) else (targets,)
    return Workload(model, inputs, loss, targets)


def _factory(name: str) -> Callable[[], Any]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise InputError(f"--model must be MODULE:FACTORY or FILE.py:FACTORY, got {name!r}")
    try:
        module = _file(Path(place)) if place.endswith(".py") else _module(place)
    except (ImportError, OSError) as error:
        raise InputError(f"--model {name}: can't be imported: {error}") from None
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InputError(f"--model {name}: {place} has no function {attribute!r}")
    factory: Callable[[], Any] = found
    return factory


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    return importlib.import_module(name)


def _file(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None or not path.exists():
        raise ImportError(f"no such file: {path}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _say(arguments: argparse.Namespace, what: str) -> None:
    if not arguments.quiet:
        print(f"gapless: {what} ...", file=sys.stderr)


def _tell(train: Step, budget_bytes: int, methods: list[Method], arguments: argparse.Namespace) -> None:
    from gapless.cli.output import print_json
    from gapless.text import described, words

    plan = train.plan
    result = plan.result
    assert result is not None
    shown = ("recompute_s", "overhead", "overhead_bound")
    data: dict[str, Any] = {
        "problem": "monet",
        "status": result.status.value,
        "budget_bytes": budget_bytes,
        "peak_bytes": plan.peak_bytes,
        **{key: result.details[key] for key in shown},
        "gap": result.solution.gap,
        "solve_s": result.solution.wall_s,
        "close": train.close,
        "methods": [vars(method) for method in methods],
        "plan": arguments.output,
    }
    if arguments.json:
        print_json(data)
    elif not arguments.quiet:
        for name in ("status", "budget_bytes", "peak_bytes", "overhead", "overhead_bound"):
            print(f"{words(name):<16} {described(name, data[name])}")
        if train.close:
            print(f"{'close':<16} {', '.join(f'{kind} {count}' for kind, count in train.close.items())}")
        print(_table(methods))


def _table(methods: list[Method]) -> str:
    from gapless.units import format_bytes, format_seconds

    rows = [("method", "measured peak", "time a step", "gradients")]
    for method in methods:
        if method.peak_bytes is None or method.step_s is None:
            rows.append((method.name, "-", "-", method.note))
        else:
            equal = "equal to eager's" if method.is_equal else f"off by {method.difference:.1g} of their norm"
            if not method.keeps_buffers:
                equal += ", buffers differ"
            rows.append((method.name, format_bytes(method.peak_bytes), format_seconds(method.step_s), equal))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in rows)
