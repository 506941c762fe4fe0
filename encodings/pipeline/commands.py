"""The commands of pipelines and the formats that plans are exported in: options, help, and what answers."""

from __future__ import annotations

from gapless.encodings.pipeline import advice
from gapless.encodings.pipeline.programs import execution, frameworks
from gapless.encodings.pipeline.question import Question
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.question.fields import Choice, Field, Flag, Listed, Number, Seconds, Text, Whole
from gapless.system import Command, Export, answering_in_time

__all__ = ["ADVICE", "EXPORTS", "PROFILES", "RUN"]

_LEFT_OUT = ("micro_batches", "method", "memory", "in_flight", "error_budget")
_ADVICE = (
    *(field for field in fields_of(Question) if field.name not in _LEFT_OUT),
    Field("micro_batches", Whole(1, 65536), "micro-batches of a step", otherwise="four a rank", metavar="M"),
    Field(
        "error_budget", Number(0), "the most that is of interest", otherwise="that of compressing all", metavar="E",
        group="compression",
    ),
)  # fmt: skip

_FORMS = ("compute", "communication")

EXPORTS = (
    Export(
        "torch-pipeline", "a schedule for torch.distributed.pipelining",
        lazy(lambda: frameworks.export_torch),
        (
            Field(
                "form", Choice(_FORMS), "compute, or communication: messages too; torch adds them else",
                "compute", group="torch-pipeline",
            ),
            Field(
                "compressed", Flag(), "the stages compress what the plan compresses", False, group="torch-pipeline",
            ),
        ),
    ),
    Export(
        "megatron", "arguments of Megatron-LM", lazy(lambda: frameworks.export_megatron),
        (
            Field(
                "micro_batch_size", Whole(1), "sequences of a micro-batch", 1, metavar="N",
                group="megatron",
            ),
        ),
    ),
)  # fmt: skip

_FACTORY = Field(
    "model", Text(), "or FILE.py:FACTORY, with options of its own; see below", is_required=True,
    metavar="MODULE:FACTORY[,OPTION=N]",
)  # fmt: skip

_RUN = (
    _FACTORY,
    Field("plan", Text(), "the plan", is_required=True, metavar="FILE"),
    Field("ranks", Whole(1, 1024), "processes, as many as the plan has ranks", is_required=True, metavar="P"),
    Field("form", Choice(_FORMS), "of the schedule that torch gets", "compute"),
    Field("error_propagation", Flag(), "add what compression loses to the hop's next gradient", False),
    Field(
        "wait",
        Seconds(),
        "the longest that a process waits for another; all may take ten times that",
        120.0,
        metavar="T",
    ),
)

_ADVICE_HELP = """\
Prints the plans that no other beats in time, memory and error, whether compression is needed at all, and what one more
micro-batch of memory buys. Plans are made for as many micro-batches in flight as shorten the step, and with
--compression for several error budgets. Fewer cuts and orders are tried than by `solve`.

example:
  gapless advise pipeline --profile gpt-8.3b --ranks 4 --bandwidth 200Gbps --replicas 4
"""

_MODEL_HELP = """\
FACTORY makes (model, inputs, loss, targets): a torch.nn.Sequential of layers, a batch, the mean loss of
loss(outputs, targets). train:gpt, with layers, hidden, heads, vocabulary, sequence and micro_batch, is a small GPT of
gapless, unless there is a train.py.
"""
_RUN_HELP = f"""\
{_MODEL_HELP}
Compared with one process without a pipeline: gradients and losses bit by bit. Compared with the replay: micro-batches
in flight, bytes sent. exit codes: 0 all are equal (under compression gradients needn't be), 2 bad input, or a process
failed, 5 something differs

example:
  gapless run pipeline --model train:gpt --ranks 4 --plan plan.json
"""

_MEASURED = (
    _FACTORY,
    Field("micro_batches", Whole(1, 65536), "micro-batches into which the batch is cut", 1, metavar="M"),
    Field("repeats", Whole(1), "runs of which the median is taken", 9, metavar="N"),
)  # fmt: skip

_LAYERS = (
    *_MEASURED,
    Field("optimizer_ratio", Number(0), "bytes of the optimiser for one of parameters; Adam: 2", 2.0),
    Field("output", Text(), "the profile to write", is_required=True, metavar="FILE", short="-o"),
)

_ERRORS = (
    *_MEASURED,
    Field(
        "modes", Listed(Text()), "compressors, with commas between them: rank N, top X%, float16, onebit, ...",
        ("rank 4", "rank 16", "top 1%", "float16", "bfloat16"), metavar="MODE,MODE,...",
    ),
    Field("depths", Whole(1), "boundaries between layers at which hops are measured", 8, metavar="N"),
    Field("output", Text(), "the table to write", is_required=True, metavar="FILE", short="-o"),
)  # fmt: skip

_LAYERS_HELP = f"""\
{_MODEL_HELP}
Times are of one micro-batch on this machine: forward (F), gradient of the input (I), of the weights (W).

example:
  gapless profile pipeline --model train:gpt,layers=6 -o profile.json
"""
_ERRORS_HELP = f"""\
{_MODEL_HELP}
The batch is for calibration: errors are of its gradient. Without such a table no plan compresses anything.

example:
  gapless profile compression-error --model train:gpt,layers=6 --micro-batches 8 -o errors.json
"""

ADVICE = Command(
    "pipeline", "the front of time, memory and compression error", _ADVICE,
    answering_in_time(lambda: advice.advise), _ADVICE_HELP, is_limited=True,
)  # fmt: skip
RUN = Command(
    "pipeline", "a plan by torch.distributed.pipelining, on processes of this machine", _RUN,
    lazy(lambda: execution.execute), _RUN_HELP, when_stopped="ending the processes",
)  # fmt: skip
PROFILES = (
    Command(
        "pipeline", "what the layers of a PyTorch model take on this machine", _LAYERS,
        lazy(lambda: execution.profile_layers), _LAYERS_HELP,
    ),
    Command(
        "compression-error", "what compressors of gradients spoil on a calibration batch", _ERRORS,
        lazy(lambda: execution.profile_errors), _ERRORS_HELP,
    ),
)  # fmt: skip
