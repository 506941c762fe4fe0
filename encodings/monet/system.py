"""MONeT as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapless.encodings.monet.fields import CURVE, QUESTION, RUN
from gapless.options import SolveOptions
from gapless.system import Answer, Command, Plan, Session, System

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _problem(**values: Any) -> Any:
    from gapless.encodings.monet.question import problem

    return problem(**values)


def _plan(problem: Any, options: SolveOptions, parameters: Any) -> Plan:
    from gapless.encodings.monet.solve import solve

    return solve(problem, options, parameters)


def _parameters() -> type:
    from gapless.encodings.monet.parameters import Parameters

    return Parameters


def _view(plan: SavedPlan, report: Report) -> str:
    """The memory over the step, what is recomputed, which algorithms run."""
    from gapless.encodings.monet.timeline import memory_timeline, render

    return render(memory_timeline(plan.schedule))


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The least budget, where the one that was given is impossible."""
    from gapless.units import format_bytes

    bound, found = (details.get(f"least_budget_{title}_bytes") for title in ("bound", "found"))
    if bound is None:
        return ()
    tail = "" if found is None else f"; a plan was found for {found} ({format_bytes(found)})"
    return (f"every plan needs at least {bound} bytes ({format_bytes(bound)}), proven{tail}",)


def _curve(values: Mapping[str, Any], session: Session) -> Answer:
    from gapless.encodings.monet.commands import curve

    return curve(values, session)


def _execute(values: Mapping[str, Any], session: Session) -> Answer:
    from gapless.encodings.monet.execution import execute

    return execute(values, session)


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
(model, inputs, loss, targets) for loss(model(*inputs), *targets); inputs are a tuple, or a mapping by name.

example:
  gapless run monet --model train:small_gpt --budget 0.5x --cache ops.json
  gapless run monet --model train:small_gpt --budget 0.2x --close attention,loss
"""

SYSTEM = System(
    name="monet",
    what="checkpointing and operator selection under a memory budget",
    fields=QUESTION,
    problem=_problem,
    plan=_plan,
    parameters=_parameters,
    example="""\
  gapless solve monet --graph resnet50 --batch 184 --device p100 --budget 8GiB --gap 0.02 -o plan.json
  gapless solve monet --graph vgg16 --batch 176 --budget 8GiB --method checkmate
""",
    summary=("overhead", "overhead_bound", "least_budget_bound_bytes", "least_budget_found_bytes", "nodes"),
    remarks=_remarks,
    view=_view,
    pictures=("memory",),
    sweeps=(
        Command(
            "monet", "overhead against memory", CURVE, _curve, _CURVE_HELP,
            SolveOptions(gap=0.02, time_limit_s=120.0),
            "stopping with the best plans so far; the same command goes on from them",
        ),
    ),
    runs=(
        Command(
            "monet", "a training step of a PyTorch model", RUN, _execute, _RUN_HELP,
            SolveOptions(gap=0.02, time_limit_s=120.0),
            "stopping with the best plan so far, which is run if there is one",
        ),
    ),
    citation=lambda: (files("gapless.encodings.monet") / "references.bib").read_text(encoding="utf-8"),
)  # fmt: skip
