"""Ranks as the rest of gapless sees them."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.answering import answering, asking
from gapless.encodings.ranks import decision, parameters, problem, report, solve
from gapless.encodings.ranks.question import ProfileQuestion, Question, RegimesQuestion, RunQuestion, TrainingQuestion
from gapless.encodings.ranks.training import regimes, runs, tracing
from gapless.lazy import lazy
from gapless.question import fields_of, picked
from gapless.question.command_fields import drawn, plot
from gapless.question.fields import Field, Whole
from gapless.system import Command, System
from gapless.units import format_floats, format_seconds

__all__ = ["SYSTEM"]


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """What any choice of modes needs, where there is none within the limits."""
    floats, step_s = details.get("least_floats"), details.get("cheapest_step_s")
    if not (isinstance(floats, float) and isinstance(step_s, float)):
        return ()
    least, step = format_floats(floats), format_seconds(step_s)
    return (
        f"the modes that send least send {least} in all, {step} a step: allow more, or record modes that send less",
    )


_ADVICE = (
    *picked(Question, "trace", "modes"),
    Field("points", Whole(2, 10_000), "points of the front that are shown", 12, metavar="N"),
    plot("the front with the rules"),
)  # fmt: skip

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
same start on the same data. `accordion` decides while it trains, by the norms of the gradients that it sees. `reversed`
has its two modes swapped. `accordion-batches` takes batches of another size, with the learning rate in proportion.
`corrected` measures the errors of modes, and plans what is left anew where the trace's aren't met.

exit codes: 0 each run sent what its modes say, 2 bad input, or a process failed, 5 another
number of floats was sent

example:
  gapless run ranks --plan plan.json --model train:net,batch=640
  gapless run ranks --plan plan.json --model train:net,batch=640 --beside constant,accordion --eta 0.5 --interval 2
"""
_REGIMES_HELP = f"""\
{_MODEL_HELP}
Trains once in one process. After each epoch the largest eigenvalue of the Hessian of a part of the data is found by
power iteration. Accordion's rule then says by looks alone, without warm-up and decays, which epochs are critical: by
the norm of the whole model's gradient, and by the eigenvalue. Overlap is the share of the largest entries of a gradient
that are among the largest of the next one.

example:
  gapless validate regimes --model train:net,batch=640 --epochs 12 --decay 8 --plot regimes.svg
"""
_ADVICE_HELP = """\
The least error at every budget of data, with modes by layer alone and by layer and epoch, beside what the rules make of
the same training. The regret of a rule is what it spoils beyond the best choice at the same data.

example:
  gapless advise ranks --trace trace.npz --plot front.svg
"""

_ADVISE = Command(
    "ranks", "the front of data and error, beside the rules", _ADVICE,
    drawn(answering(lambda: report.advise), lambda: report.draw_front), _ADVICE_HELP,
)  # fmt: skip
_RUN = Command(
    "ranks", "a training with a plan's modes, beside others",
    (*fields_of(TrainingQuestion), *picked(
        RunQuestion, "plan", "beside", "trace", "eta", "interval", "warm_up", "large_batch", "first_epochs",
        "decay_epochs", "tolerance", "looks", "bandwidth", "latency", "plot",
    )),
    asking(RunQuestion, lazy(lambda: runs.execute)), _RUN_HELP, when_stopped="ending the processes",
)  # fmt: skip
_PROFILE = Command(
    "compression", "what compressors of weight gradients spoil, by layer and epoch of a training",
    (
        *fields_of(TrainingQuestion),
        *picked(ProfileQuestion, "ranks", "compressors", "epochs", "learning_rate", "decay", "rate_warm_up"),
        *picked(ProfileQuestion, "samples", "output"),
    ),
    asking(ProfileQuestion, lazy(lambda: tracing.profile_compression)), _PROFILE_HELP,
    when_stopped="ending the processes",
)  # fmt: skip
_REGIMES = Command(
    "regimes", "critical phases by norms of gradients beside those by the Hessian, and overlaps of gradients",
    (
        *picked(RegimesQuestion, "model", "batch", "momentum", "held_out", "epochs", "learning_rate", "decay"),
        *picked(RegimesQuestion, "rate_warm_up", "eta", "interval", "share", "iterations", "examples"),
        plot("norms, eigenvalues and overlaps by epoch"),
    ),
    drawn(asking(RegimesQuestion, lazy(lambda: regimes.validate_regimes)), lambda: regimes.draw_comparison),
    _REGIMES_HELP, when_stopped="ending the training",
)  # fmt: skip

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
    advice=(_ADVISE,),
    runs=(_RUN,),
    profiles=(_PROFILE,),
    validations=(_REGIMES,),
    cost=lazy(lambda: solve.cost),
    decision=lambda: decision.ModeDecision,
    package="gapless.encodings.ranks",
)  # fmt: skip
