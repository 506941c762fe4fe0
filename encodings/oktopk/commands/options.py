"""Ok-Topk's commands: advice, and those on processes: recording, running, training."""

from __future__ import annotations

from gapless.answering import answering_in_time, asking
from gapless.encodings.oktopk import report
from gapless.encodings.oktopk.commands import advice, processes, scaling, training
from gapless.encodings.oktopk.question import (
    ProfileQuestion,
    Question,
    RunQuestion,
    ScalingQuestion,
    SelectionQuestion,
    ValidationQuestion,
)
from gapless.lazy import lazy
from gapless.question import fields_of, picked
from gapless.question.command_fields import drawn, plot
from gapless.question.fields import Field, Listed, Number
from gapless.system import Command

__all__ = ["ADVICE", "PROFILE", "RUN", "SCALING", "SELECTION", "VALIDATION"]

_ADVICE = (
    *picked(Question, "indices", "ranks"),
    Field(
        "densities", Listed(Number(0, strict=True, maximum=1)), "at which plans are made",
        otherwise="the recorded one and shares of it", metavar="D,D,...",
    ),
    *picked(Question, "selection", "topology", "nodes", "bandwidth", "latency", "add", "add_start"),
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
_SCALING_HELP = """\
Weak scaling: gradient and density stay, ranks are added. Each allreduce of the first step is replayed on a flat
network. Computing takes --compute, whatever the ranks; selecting entries takes no time here. A larger model is asked
for at a scale: a hundredth of the elements and of the bandwidth gives the same times, but for latencies.

example:
  gapless advise scaling --indices clustered:elements=100000,steps=1 --ranks 8,16,32 --compute 1ms
"""
_FACTORY_HELP = """\
FACTORY makes (model, inputs, loss, targets), or (model, inputs) where the model returns its loss; each step's batch is
what it makes under another seed. train:net, train:gpt, train:vgg, train:lstm and train:bert are small models of
gapless, whose batches can be learnt.
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
ranks' entries in the order of ranks. The words that each rank receives are compared with those of the plan. Beside it
run the plan with the other choice about balancing, TopkA, which gathers all entries on all ranks, TopkDSA, gTopk, and
the library's dense allreduce. Sums and words of TopkDSA and gTopk are compared with those of their schedules. Of
sets that `profile sparsity` recorded, Gaussiank runs too: TopkA of those entries that its fitted threshold chooses. It
also says how many entries ranks chose against k, and what adding an entry took.

exit codes: 0 all are equal, 2 bad input, or a process failed, 5
something differs

example:
  gapless run oktopk --plan plan.json --indices grads.npz
"""
_VALIDATION_HELP = f"""\
{_FACTORY_HELP}
All start from the same parameters and see the same batches, in as many processes as the plan has ranks. Gaussiank
is TopkA with a threshold by a normal distribution, fitted in each step and adjusted. A step is split into selection,
communication (the exchange, which waits for the slowest rank) and the rest; the dense one isn't, since it communicates
during the backward pass. With --bandwidth, messages are waited for until an emulated wire is through with them, and the
dense ring takes what it would; so seconds are those of that network.

example:
  gapless validate sparse --model train:gpt,micro_batch=8 --plan plan.json --steps 200 --plot losses.svg
  gapless validate sparse --model train:net --plan plan.json --beside Gaussiank,gTopk --optimizer adam --balance-above 4
"""
_SELECTION_HELP = f"""\
{_FACTORY_HELP}
Trains as Ok-Topk's paper says: thresholds of a rank's entries and of the sums are found every --period steps and reused
in between, whatever they select. In each step, the entries that they select are counted, and those that a threshold by
a fitted normal distribution (Gaussiank) would select of the same gradient. xi is Assumption 1's: the distance of the
update from the largest k entries of the mean over ranks, over the norm of the mean gradient.

example:
  gapless validate selection --model train:gpt,micro_batch=8 --density 0.01 --steps 200 --plot selection.svg
"""

ADVICE = Command(
    "sparse", "below which density a sparse allreduce pays, fill-in, how stale boundaries may be", _ADVICE,
    drawn(answering_in_time(lambda: advice.advise), lambda: report.draw_advice), _ADVICE_HELP, is_limited=True,
)  # fmt: skip
SCALING = Command(
    "scaling", "what sparse and dense allreduces take as ranks are added, their words and latencies",
    (*fields_of(ScalingQuestion), plot()),
    drawn(asking(ScalingQuestion, lazy(lambda: scaling.scale)), lambda: scaling.draw_scaling), _SCALING_HELP,
    is_limited=True,
)  # fmt: skip
PROFILE = Command(
    "sparsity", "which entries of its gradient each rank selects, in training with error feedback",
    fields_of(ProfileQuestion), asking(ProfileQuestion, lazy(lambda: processes.profile_sparsity)), _PROFILE_HELP,
    when_stopped="ending the processes", is_launched=True,
)  # fmt: skip
RUN = Command(
    "oktopk", "a plan between processes of this machine, beside other sparse allreduces and the dense one",
    fields_of(RunQuestion), asking(RunQuestion, lazy(lambda: processes.execute)), _RUN_HELP,
    when_stopped="ending the processes", is_launched=True,
)  # fmt: skip
VALIDATION = Command(
    "sparse", "training by a plan beside training with dense gradients, and by other sparse allreduces",
    (*fields_of(ValidationQuestion), plot("the losses")),
    drawn(asking(ValidationQuestion, lazy(lambda: training.validate_training)), lambda: training.draw_losses),
    _VALIDATION_HELP, when_stopped="ending the processes",
)  # fmt: skip
SELECTION = Command(
    "selection", "what thresholds select in training, reused or of a fitted normal, and the xi of Ok-Topk's assumption",
    (*fields_of(SelectionQuestion), plot("both by step, and a histogram of values with thresholds")),
    drawn(asking(SelectionQuestion, lazy(lambda: training.validate_selection)), lambda: training.draw_selection),
    _SELECTION_HELP, when_stopped="ending the processes",
)  # fmt: skip
