"""Cupcake as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapless.encodings.cupcake.fields import COMPRESSION, QUESTION, WHAT_IF
from gapless.options import SolveOptions
from gapless.system import Answer, Command, Export, Plan, Session, System

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _problem(**values: Any) -> Any:
    from gapless.encodings.cupcake.question import problem

    return problem(**values)


def _plan(problem: Any, options: SolveOptions, parameters: Any) -> Plan:
    from gapless.encodings.cupcake.solve import solve

    return solve(problem, options, parameters)


def _parameters() -> type:
    from gapless.encodings.cupcake.parameters import Parameters

    return Parameters


def _view(plan: SavedPlan, report: Report) -> str:
    """The groups with their times, and the baselines beside them."""
    from gapless.encodings.cupcake.summary import render_baselines, render_groups

    baselines_s = plan.details.get("baselines_s")
    lines = [render_groups(plan.schedule)]
    if isinstance(baselines_s, dict) and all(isinstance(step_s, float) for step_s in baselines_s.values()):
        lines.append(render_baselines(baselines_s, report.makespan_s))
    return "\n".join(lines)


def _write_buckets(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    from gapless.encodings.cupcake.ddp_buckets import export_ddp_buckets
    from gapless.units import format_bytes

    buckets = export_ddp_buckets(path, plan.problem, plan.details, where="details")
    held = f"{len(buckets.parameter_names)} gradients of {buckets.profile}, {format_bytes(sum(buckets.bucket_bytes))}"
    return f"{len(buckets.groups)} buckets for {held}"


def _compression(values: Mapping[str, Any], session: Session) -> Answer:
    from gapless.encodings.cupcake.advice import compression

    advice = compression(**values)
    return Answer(advice.data, advice.text)


def _what_if(values: Mapping[str, Any], session: Session) -> Answer:
    from gapless.encodings.cupcake.what_if import what_if

    found = what_if(**values)
    return Answer(found.data, found.text)


_COMPRESSION_HELP = """\
Each compressor gets its best fusion of the profile's gradients, at published costs, and is compared with no compression
in the best size of buckets from 2 to 64 MB. `pays below`: the bandwidth at which it stops paying.

example:
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
"""
_WHAT_IF_HELP = """\
An analytic model of the backward pass and the synchronisation, with buckets of 25 MB: no search, no forward pass.

example:
  gapless advise what-if --figure bandwidth --profile resnet101 --ranks 64 --bandwidth 10Gbps --compressor powersgd
"""

SYSTEM = System(
    name="cupcake",
    what="the optimal fusion of gradients for compression",
    fields=QUESTION,
    problem=_problem,
    plan=_plan,
    parameters=_parameters,
    example="""\
  gapless solve cupcake --profile resnet101 -o plan.json
  gapless solve cupcake --profile bert-base --compressor powersgd --ranks 64 --bandwidth 10Gbps -o plan.json
""",
    summary=("method", "scaling", "exposed_s"),
    view=_view,
    exports=(Export("ddp-buckets", "buckets for PyTorch's DistributedDataParallel", _write_buckets),),
    advice=(
        Command(
            "compression", "every compressor's best plan against none", COMPRESSION, _compression, _COMPRESSION_HELP
        ),
        Command("what-if", "tables of the analytic performance model", WHAT_IF, _what_if, _WHAT_IF_HELP),
    ),
    citation=lambda: (files("gapless.encodings.cupcake") / "references.bib").read_text(encoding="utf-8"),
)
