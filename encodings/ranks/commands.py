"""The commands of ranks: advice, a run, a profile, with their options and help."""

from __future__ import annotations

from gapless.encodings.ranks import processes, report
from gapless.encodings.ranks.question import Question
from gapless.lazy import lazy
from gapless.question import picked
from gapless.question.command_fields import MODEL, PLAN, WAIT_FOR_EACH, output, plot
from gapless.question.fields import Field, Listed, Number, Text, Whole
from gapless.system import Command, answering, drawn

__all__ = ["ADVICE", "PROFILE", "RUN"]

_ADVICE = (
    *picked(Question, "trace", "modes"),
    Field("points", Whole(2, 10_000), "points of the front that are shown", 12, metavar="N"),
    plot("the front with the rules"),
)

_TRAINING = (
    MODEL,
    Field("batch", Whole(1), "examples of a worker in a step", 16, metavar="N"),
    Field("workers", Whole(1, 64), "processes", 2, metavar="P"),
    Field("momentum", Number(0, maximum=1), "momentum of SGD", 0.9),
    Field("held_out", Number(0, True, 0.9), "share of the data that is not trained on", 0.2),
    WAIT_FOR_EACH,
)  # fmt: skip

_PROFILE = (
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
    output("the trace to write, .npz"),
)  # fmt: skip

_RUN = (
    *_TRAINING,
    PLAN,
    Field(
        "beside", Listed(Text()), "constant, plain, none; with --trace the rules of `solve ranks --method`",
        ("constant",), metavar="NAME,...",
    ),
    Field("trace", Text(), "what the plan was made from, for rules that go by it", metavar="FILE"),
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
same start on the same data.

exit codes: 0 each run sent what its modes say, 2 bad input, or a process failed, 5 another
number of floats was sent

example:
  gapless run ranks --plan plan.json --model train:net,batch=640
"""
_ADVICE_HELP = """\
The least error at every budget of data, with modes by layer alone and by layer and epoch, beside what the rules make of
the same training. The regret of a rule is what it spoils beyond the best choice at the same data.

example:
  gapless advise ranks --trace trace.npz --plot front.svg
"""

ADVICE = Command(
    "ranks", "the front of data and error, beside the rules", _ADVICE,
    drawn(answering(lambda: report.advise), lambda: report.draw_front),
    _ADVICE_HELP,
)  # fmt: skip
RUN = Command(
    "ranks", "a training with a plan's modes, beside others", _RUN,
    lazy(lambda: processes.execute), _RUN_HELP, when_stopped="ending the processes",
)  # fmt: skip
PROFILE = Command(
    "compression", "what compressors of weight gradients spoil, by layer and epoch of a training", _PROFILE,
    lazy(lambda: processes.profile_compression), _PROFILE_HELP,
    when_stopped="ending the processes",
)  # fmt: skip
