"""MONeT as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.encodings.monet import commands, parameters, problem, solve
from gapless.encodings.monet.question import METHOD_HELP, METHODS, Question
from gapless.lazy import lazy
from gapless.options import SolveOptions
from gapless.question import picked
from gapless.question.fields import Choice, Field, Listed, Number, SizeOrShare, Text, Whole
from gapless.system import Command, System
from gapless.torch.joint_graph import CLOSE, TOLERANCE

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]

_OUTPUT = Field("output", Text(), "the plan to write", metavar="FILE", short="-o")

CURVE = (
    *picked(Question, "graph", "batch", "device"),
    Field("budgets", Listed(SizeOrShare()), "such as 5GiB,6GB,0.5x", is_required=True, metavar="B,B,..."),
    *picked(Question, "objective"),
    Field("methods", Listed(Choice(tuple(METHODS))), "curves to overlay: " + METHOD_HELP, ("auto",), metavar="M,M,..."),
    Field("output", Text(), "folder for the plans and the table", is_required=True, metavar="DIR", short="-o"),
    Field("plot", Text(), "draw the curve: .pdf, .png, .svg (needs the extra `plot`)", metavar="FILE", extra="plot"),
    Field(
        "workers",
        Whole(0),
        "budgets at once, N x threads <= cores",
        0,
        otherwise="what cores allow",
        metavar="N",
        group="processes",
    ),
)

RUN = (
    Field("model", Text(), "or FILE.py:FACTORY; see below", is_required=True, metavar="MODULE:FACTORY"),
    Field(
        "budget", SizeOrShare(), "8GiB, 8GB (10^9), or 0.5x: of eager's peak; above parameters and inputs",
        is_required=True, metavar="SIZE",
    ),
    Field("cache", Text(), "times of operators, read and written", metavar="FILE"),
    Field(
        "close", Listed(Choice((*CLOSE, "all"))),
        "implementations that may be off by rounding: attention, loss, norm, or all", (),
        otherwise="none",
        metavar="KINDS",
    ),
    Field("steps", Whole(1), "steps to time", 5, metavar="N"),
    Field(
        "tolerance", Number(0),
        "the most that loss, gradients, buffers may be off eager's, of their norm", TOLERANCE,
        metavar="X",
    ),
    _OUTPUT,
)  # fmt: skip


def _view(plan: SavedPlan, report: Report) -> str:
    """The memory over the step, what is recomputed, which algorithms run."""
    from gapless.encodings.monet.curve.timeline import memory_timeline, render

    return render(memory_timeline(plan.schedule))


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The least budget, where the one that was given is impossible."""
    from gapless.units import format_bytes

    bound, found = (details.get(f"least_budget_{title}_bytes") for title in ("bound", "found"))
    if not bound:  # nothing is known, or the solve was stopped before anything was
        return ()
    tail = "" if found is None else f"; a plan was found for {found} ({format_bytes(found)})"
    return (f"every plan needs at least {bound} bytes ({format_bytes(bound)}), proven{tail}",)


_CURVE_HELP = """\
Every budget gets the time limit for itself and a plan file in the folder, with the table as summary.csv and
summary.json. The same command again goes on with the budgets that have no answer yet. An infeasible budget is a row.
Ctrl-C ends it with the best plans so far; the same command goes on from them.

exit codes: 0 every budget is answered, 2 bad input, 4 some have no answer yet, 5 a replay found violations

example:
  gapless sweep monet --graph resnet50 --batch 184 --budgets 5GiB,6GiB,7GiB,0.6x --gap 0.02 -o curve --plot c.pdf
  gapless sweep monet --graph vgg16 --batch 176 --budgets 7GiB,9GiB --methods auto,checkmate,noop -o curve
"""

_RUN_HELP = """\
FACTORY makes what is to be trained: (model, inputs), where the model returns its loss, or
(model, inputs, loss, targets) for loss(model(*inputs), *targets). Inputs are a tuple, or a mapping by name.
A plan whose step is further from eager's than the tolerance ends with exit code 5.

example:
  gapless run monet --model train:small_gpt --budget 0.5x --cache ops.json
  gapless run monet --model train:small_gpt --budget 0.2x --close attention,loss
"""

SYSTEM = System(
    name="monet",
    what="checkpointing and operator selection under a memory budget",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve monet --graph resnet50 --batch 184 --device p100 --budget 8GiB --gap 0.02 -o plan.json
  gapless solve monet --graph mobilenet_v2 --batch 64 --budget 0.8x --method checkmate
""",
    summary=("overhead", "overhead_bound", "least_budget_bound_bytes", "least_budget_found_bytes", "nodes"),
    lighter="--threads 1, or --method greedy",
    remarks=_remarks,
    view=_view,
    headline=("{graph}, batch {batch}", "within {budget_bytes}", "least {objective}"),
    budgets=lambda plan: plan.schedule.topology.memory_bytes,
    pictures=("memory",),
    sweeps=(
        Command(
            "monet", "overhead against memory", CURVE, lazy(lambda: commands.curve),
            _CURVE_HELP,
            SolveOptions(gap=0.02, time_limit_s=120.0),
            "stopping with the best plans so far; the same command goes on from them",
        ),
    ),
    runs=(
        Command(
            "monet", "a training step of a PyTorch model", RUN, lazy(lambda: commands.execute),
            _RUN_HELP,
            SolveOptions(gap=0.02, time_limit_s=120.0),
            "stopping with the best plan so far, which is run if there is one",
        ),
    ),
    narrowing=lazy(lambda: commands.narrowing),
    challenges=lazy(lambda: commands.challenges),
    package="gapless.encodings.monet",
)  # fmt: skip
