"""Ok-Topk's commands on processes: recording, running, training."""

from __future__ import annotations

from gapless.encodings.oktopk import processes
from gapless.lazy import lazy
from gapless.question.command_fields import MODEL, PLAN, REPEATS, WAIT, output, plot
from gapless.question.fields import Field, Number, Text, Whole
from gapless.system import Command, drawn

__all__ = ["PROFILE", "RUN", "VALIDATION"]

_FACTORY_HELP = """\
FACTORY makes (model, inputs, loss, targets), or (model, inputs) where the model returns its loss; each step's batch is
what it makes under another seed. train:net and train:gpt are small models of gapless, as for `profile gradients`, whose
batches can be learnt.
"""
_RANKS = Field("ranks", Whole(1, 1024), "processes: must be those of the plan", otherwise="as many", metavar="P")
_RATE = Field(
    "learning_rate", Number(0, strict=True), "learning rate of SGD", 0.1, metavar="R"
)  # fmt: skip

PROFILE = Command(
    "sparsity",
    "which entries of its gradient each rank selects, in training with error feedback",
    (
        MODEL,
        Field("ranks", Whole(1, 1024), "processes", 4, metavar="P"),
        Field(
            "density", Number(0, strict=True, maximum=1), "share of the entries that a rank selects",
            0.01, metavar="D",
        ),
        Field("steps", Whole(1, 10**6), "steps of training, all of which are recorded", 50, metavar="N"),
        _RATE,
        WAIT,
        output("the index sets to write, .npz"),
    ),
    lazy(lambda: processes.profile_sparsity),
    f"""\
{_FACTORY_HELP}
The gradient is one flat vector, parameters in the model's order. Each rank selects the top-k of its gradient and of
what was left of earlier ones; the top-k of the sum updates the model, as in Ok-Topk's SGD.

example:
  gapless profile sparsity --model train:gpt,micro_batch=8 --ranks 4 --density 0.01 --steps 50 -o grads.npz
""",
    when_stopped="ending the processes", is_launched=True,
)  # fmt: skip

RUN = Command(
    "oktopk",
    "a plan between processes of this machine, beside TopkA and the dense allreduce",
    (
        PLAN,
        Field(
            "indices", Text(), "the index sets that the plan was made for; needed where they were recorded",
            metavar="FILE",
        ),
        _RANKS,
        REPEATS,
        WAIT,
    ),
    lazy(lambda: processes.execute),
    """\
Runs the steps that the plan's schedule has, over gloo. Each sum is compared, to the bit, with the dense sum of the
ranks' entries in the order of ranks. The words that each rank receives are compared with those of the plan. TopkA
gathers all entries on all ranks; dense is the library's allreduce.

exit codes: 0 all are equal, 2 bad input, or a process failed, 5
something differs

example:
  gapless run oktopk --plan plan.json --indices grads.npz
""",
    when_stopped="ending the processes", is_launched=True,
)  # fmt: skip

VALIDATION = Command(
    "sparse",
    "training by a plan beside training with dense gradients and by TopkA",
    (
        MODEL,
        PLAN,
        _RANKS,
        Field("steps", Whole(1, 10**6), "steps of each training", 200, metavar="N"),
        _RATE,
        WAIT,
        plot("the losses"),
    ),
    drawn(
        lazy(lambda: processes.validate_training),
        lambda: processes.draw_losses,
    ),
    f"""\
{_FACTORY_HELP}
All three start from the same parameters and see the same batches, in as many processes as the plan has ranks. By the
plan, regions are renewed every 64 steps, thresholds at least every 32.

example:
  gapless validate sparse --model train:gpt,micro_batch=8 --plan plan.json --steps 200 --plot losses.svg
""",
    when_stopped="ending the processes",
)  # fmt: skip
