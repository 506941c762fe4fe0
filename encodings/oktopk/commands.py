"""Ok-Topk's commands: advice, and those on processes: recording, running, training."""

from __future__ import annotations

from gapless.encodings.oktopk import advice, processes, report
from gapless.encodings.oktopk.question import ProfileQuestion, Question, RunQuestion, ValidationQuestion
from gapless.lazy import lazy
from gapless.question import fields_of, picked
from gapless.question.command_fields import plot
from gapless.question.fields import Field, Listed, Number
from gapless.system import Command, answering_in_time, asking, drawn

__all__ = ["ADVICE", "PROFILE", "RUN", "VALIDATION"]

_ADVICE = (
    *picked(Question, "indices", "ranks"),
    Field(
        "densities", Listed(Number(0, strict=True, maximum=1)), "at which plans are made",
        otherwise="the recorded one and shares of it", metavar="D,D,...",
    ),
    *picked(Question, "selection", "topology", "nodes", "bandwidth", "latency"),
    plot(),
)  # fmt: skip

_ADVICE_HELP = """\
The last recorded step is planned at each density by exact boundaries, and replayed beside the averaged rule, TopkA and
a dense ring. Fill-in is the share of the gradient in the union of the ranks' sets. Stale boundaries: how the busiest
rank's load grows with the boundaries' age, over all recorded steps, and how often new ones pay.

example:
  gapless advise sparse --indices grads.npz --topology ndv2 --nodes 2
  gapless advise sparse --indices drifting:elements=100000,steps=12 --ranks 16 --densities 0.001,0.01,0.1
"""
_FACTORY_HELP = """\
FACTORY makes (model, inputs, loss, targets), or (model, inputs) where the model returns its loss; each step's batch is
what it makes under another seed. train:net and train:gpt are small models of gapless, as for `profile gradients`, whose
batches can be learnt.
"""
_PROFILE_HELP = f"""\
{_FACTORY_HELP}
The gradient is one flat vector, parameters in the model's order. Each rank selects the top-k of its gradient and of
what was left of earlier ones; the top-k of the sum updates the model, as in Ok-Topk's SGD.

example:
  gapless profile sparsity --model train:gpt,micro_batch=8 --ranks 4 --density 0.01 --steps 50 -o grads.npz
"""
_RUN_HELP = """\
Runs the steps that the plan's schedule has, over gloo. Each sum is compared, to the bit, with the dense sum of the
ranks' entries in the order of ranks. The words that each rank receives are compared with those of the plan. TopkA
gathers all entries on all ranks; dense is the library's allreduce.

exit codes: 0 all are equal, 2 bad input, or a process failed, 5
something differs

example:
  gapless run oktopk --plan plan.json --indices grads.npz
"""
_VALIDATION_HELP = f"""\
{_FACTORY_HELP}
All three start from the same parameters and see the same batches, in as many processes as the plan has ranks. By the
plan, regions are renewed every 64 steps, thresholds at least every 32.

example:
  gapless validate sparse --model train:gpt,micro_batch=8 --plan plan.json --steps 200 --plot losses.svg
"""

ADVICE = Command(
    "sparse", "below which density a sparse allreduce pays, fill-in, how stale boundaries may be", _ADVICE,
    drawn(answering_in_time(lambda: advice.advise), lambda: report.draw_advice), _ADVICE_HELP, is_limited=True,
)  # fmt: skip
PROFILE = Command(
    "sparsity", "which entries of its gradient each rank selects, in training with error feedback",
    fields_of(ProfileQuestion), asking(ProfileQuestion, lazy(lambda: processes.profile_sparsity)), _PROFILE_HELP,
    when_stopped="ending the processes", is_launched=True,
)  # fmt: skip
RUN = Command(
    "oktopk", "a plan between processes of this machine, beside TopkA and the dense allreduce", fields_of(RunQuestion),
    asking(RunQuestion, lazy(lambda: processes.execute)), _RUN_HELP,
    when_stopped="ending the processes", is_launched=True,
)  # fmt: skip
VALIDATION = Command(
    "sparse", "training by a plan beside training with dense gradients and by TopkA",
    (*fields_of(ValidationQuestion), plot("the losses")),
    drawn(asking(ValidationQuestion, lazy(lambda: processes.validate_training)), lambda: processes.draw_losses),
    _VALIDATION_HELP, when_stopped="ending the processes",
)  # fmt: skip
