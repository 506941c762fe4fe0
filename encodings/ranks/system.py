"""Ranks as the rest of gapless sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.encodings.ranks import parameters, problem, processes, report, solve
from gapless.encodings.ranks.question import Question
from gapless.errors import InputError
from gapless.lazy import lazy
from gapless.question import picked
from gapless.question.fields import Field, Listed, Number, Seconds, Text, Whole
from gapless.system import Command, System, answering, drawn
from gapless.units import format_floats, format_seconds

__all__ = ["RANKS", "SYSTEM", "learning_rates"]

ADVICE = (
    *picked(Question, "trace", "modes"),
    Field("points", Whole(2, 10_000), "points of the front that are shown", 12, metavar="N"),
    Field(
        "plot",
        Text(),
        "draw the front with the rules: .pdf, .png, .svg (needs the extra `plot`)",
        metavar="FILE",
        extra="plot",
    ),
)

_TRAINING = (
    Field(
        "model", Text(), "or FILE.py:FACTORY, with options of its own; see below", is_required=True,
        metavar="MODULE:FACTORY[,OPTION=N]",
    ),
    Field("batch", Whole(1), "examples of a worker in a step", 16, metavar="N"),
    Field("workers", Whole(1, 64), "processes", 2, metavar="P"),
    Field("momentum", Number(0, maximum=1), "momentum of SGD", 0.9),
    Field("held_out", Number(0, True, 0.9), "share of the data that is not trained on", 0.2),
    Field("wait", Seconds(), "the longest that a process waits for another", 120.0, metavar="T"),
)  # fmt: skip

RANKS = (1, 2, 4, 8)

PROFILE = (
    *_TRAINING,
    Field(
        "ranks", Listed(Whole(1, 999_999)),
        "of PowerSGD, whose errors are tails of singular values", otherwise="1,2,4,8, unless compressors are given",
        metavar="R,R,...",
    ),
    Field(
        "compressors", Listed(Text()), "modes whose errors are measured by sending: topk:0.01,powersgd:4",
        metavar="MODE,...",
    ),
    Field("epochs", Whole(1, 10_000), "epochs of the training", 10, metavar="N"),
    Field("learning_rate", Number(0, True), "learning rate of SGD", 0.05),
    Field("decay", Listed(Whole(1)), "epochs from which the learning rate is a tenth", metavar="EPOCH,..."),
    Field("samples", Whole(1), "steps of an epoch at which modes are looked at", 4, metavar="N"),
    Field("output", Text(), "the trace to write, .npz", is_required=True, metavar="FILE", short="-o"),
)  # fmt: skip

RUN = (
    *_TRAINING,
    Field("plan", Text(), "the plan", is_required=True, metavar="FILE"),
    Field(
        "beside", Listed(Text()), "constant, plain, none; with --trace the rules of `solve ranks --method`",
        ("constant",), metavar="NAME,...",
    ),
    Field("trace", Text(), "what the plan was made from, for rules that go by it", metavar="FILE"),
)  # fmt: skip


def learning_rates(values: Mapping[str, Any]) -> tuple[float, ...]:
    """Of each epoch. Raises `InputError` for a decay that comes too late."""
    late = next((epoch for epoch in values["decay"] or () if epoch >= values["epochs"]), None)
    if late is not None:
        raise InputError(f"decay: must be epochs in 1..{values['epochs'] - 1}, got {late}")
    decays = [sum(epoch >= at for at in values["decay"] or ()) for epoch in range(values["epochs"])]
    return tuple(values["learning_rate"] * 10.0**-count for count in decays)


_MODEL_HELP = """\
FACTORY makes (model, inputs, loss, targets): the mean loss of loss(outputs, targets), and data with an example in each
row. train:net is a small convolutional network of gapless, unless there is a train.py. Its options are layers, width,
classes, size and batch (how many examples there are).
"""
_PROFILE_HELP = f"""\
{_MODEL_HELP}
Trains once with plain gradients under DDP, and records for `solve ranks` what each mode would spoil of each layer's
gradient, by epoch. (`profile compression-error` measures compressors of activations' gradients between pipeline
stages.)

example:
  gapless profile compression --model train:net,batch=640 --ranks 1,2,4,8 --epochs 12 --decay 8 -o trace.npz
"""
_RUN_HELP = f"""\
{_MODEL_HELP}
Trains with the plan's modes, by layer and epoch with an error feedback of each layer, and with others beside, from the
same start on the same data.

exit codes: 0 each run sent what its modes say, 2 bad input, or a process failed, 5 another
number of floats was sent

example:
  gapless run ranks --plan plan.json --model train:net,batch=640
"""


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """What any choice of modes needs, where there is none within the limits."""
    if "least_floats" not in details:
        return ()
    least, step = format_floats(details["least_floats"]), format_seconds(details["cheapest_step_s"])
    return (
        f"the modes that send least send {least} in all, {step} a step: allow more, or record modes that send less",
    )


_ADVICE_HELP = """\
The least error at every budget of data, with modes by layer alone and by layer and epoch, beside what the rules make of
the same training. The regret of a rule is what it spoils beyond the best choice at the same data.

example:
  gapless advise ranks --trace trace.npz --plot front.svg
"""

SYSTEM = System(
    name="ranks",
    what="how strongly each layer's gradient is compressed, and when",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve ranks --trace trace.npz --data 0.3x -o plan.json
  gapless solve ranks --trace trace.npz --data 1571.8Mfloats --phases epoch --switches 2
  gapless solve ranks --trace trace.npz --step-time 10ms --workers 8 --bandwidth 1Gbps
""",
    summary=("method", "sent_floats", "error", "switch_count", "least_floats", "cheapest_step_s"),
    lighter="fewer epochs or modes",
    view=lazy(lambda: report.render),
    remarks=_remarks,
    headline=("{trace}: ranks of a compressor", "sending {data_floats}", "a step in {step_time_s}"),
    pictures=("modes", "gantt"),
    drawers={"modes": lazy(lambda: report.draw_modes)},
    advice=(
        Command(
            "ranks", "the front of data and error, beside the rules", ADVICE,
            drawn(answering(lambda: report.advise), lambda: report.draw_front),
            _ADVICE_HELP,
        ),
    ),
    runs=(
        Command(
            "ranks", "a training with a plan's modes, beside others", RUN,
            lazy(lambda: processes.execute), _RUN_HELP, when_stopped="ending the processes",
        ),
    ),
    profiles=(
        Command(
            "compression", "what compressors of weight gradients spoil, by layer and epoch of a training", PROFILE,
            lazy(lambda: processes.profile_compression), _PROFILE_HELP,
            when_stopped="ending the processes",
        ),
    ),
    cost=lazy(lambda: solve.cost),
    package="gapless.encodings.ranks",
)  # fmt: skip
