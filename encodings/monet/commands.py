"""The commands of MONeT: the curve of overhead against memory, and a step run with PyTorch; options and help."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gapless.encodings.monet import problem
from gapless.encodings.monet.curve import sweep
from gapless.encodings.monet.question import METHOD_HELP, METHODS, Question
from gapless.lazy import lazy
from gapless.options import SolveOptions
from gapless.question import picked
from gapless.question.command_fields import plot
from gapless.question.fields import Choice, Field, Listed, Number, SizeOrShare, Text, Whole
from gapless.system import Answer, Command, Session
from gapless.torch.joint_graph import CLOSE, TOLERANCE

__all__ = ["CURVE", "RUN"]

_CURVE = (
    *picked(Question, "graph", "batch", "device"),
    Field("budgets", Listed(SizeOrShare()), "such as 5GiB,6GB,0.5x", is_required=True, metavar="B,B,..."),
    *picked(Question, "optimizer", "gradients", "objective"),
    Field("methods", Listed(Choice(tuple(METHODS))), "curves to overlay: " + METHOD_HELP, ("auto",), metavar="M,M,..."),
    Field("output", Text(), "folder for the plans and the table", is_required=True, metavar="DIR", short="-o"),
    plot("the curve"),
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

_RUN = (
    Field("model", Text(), "or FILE.py:FACTORY; see below", is_required=True, metavar="MODULE:FACTORY"),
    Field(
        "budget", SizeOrShare(), "8GiB, 8GB (10^9), or 0.5x: of eager's peak; above parameters and inputs",
        is_required=True, metavar="SIZE",
    ),
    *picked(Question, "offload", "host_memory"),
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
    Field("output", Text(), "the plan to write", metavar="FILE", short="-o"),
)  # fmt: skip

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
A plan whose step is further from eager's than the tolerance ends with exit code 5. With --offload a GPU copies over its
own link, which should have the rate that is given; on a CPU threads copy, as if at that rate.

example:
  gapless run monet --model train:small_gpt --budget 0.5x --cache ops.json
  gapless run monet --model train:small_gpt --budget 0.3x --offload 25GB/s
  gapless run monet --model train:small_gpt --budget 0.2x --close attention,loss
"""


def _execute(values: Mapping[str, Any], session: Session) -> Answer:
    """The measured methods, the plan last. Needs the extra `torch`."""
    from gapless.solution import Status
    from gapless.topologies.host import host_link
    from gapless.torch.run import load_workload, reason_without_plan, run_and_compare

    question = partial(problem.Problem, link=host_link(values["offload"], values["host_memory"]))
    found = run_and_compare(
        load_workload(values["model"]), question, values["budget"], session.options,
        name=values["model"], close=CLOSE if "all" in values["close"] else values["close"], cache=values["cache"],
        steps=values["steps"], tolerance=values["tolerance"], parameters=session.parameters, command=session.command,
        output=values["output"], report=session.say,
    )  # fmt: skip
    result = found.result
    return Answer(
        found.data,
        found.text,
        tuple(filter(None, ("" if result.valid else reason_without_plan(result), found.refusal))),
        is_complete=result.valid,
        is_valid=result.schedule is None or (result.valid and not found.refusal),
        is_infeasible=result.status is Status.INFEASIBLE,
    )


CURVE = Command(
    "monet", "overhead against memory", _CURVE, lazy(lambda: sweep.answer), _CURVE_HELP,
    SolveOptions(gap=0.02, time_limit_s=120.0),
    "stopping with the best plans so far; the same command goes on from them",
)  # fmt: skip
RUN = Command(
    "monet", "a training step of a PyTorch model", _RUN, _execute, _RUN_HELP,
    SolveOptions(gap=0.02, time_limit_s=120.0),
    "stopping with the best plan so far, which is run if there is one",
)  # fmt: skip
