"""The commands of pipelines and the formats that plans are exported in: options, help, and what answers."""

from __future__ import annotations

from gapless.answering import answering_in_time, asking
from gapless.encodings.pipeline import advice, sweep
from gapless.encodings.pipeline.execution import profiling, run
from gapless.encodings.pipeline.exports import megatron, torch_csv, torchtitan
from gapless.encodings.pipeline.programs import curves
from gapless.encodings.pipeline.question import FORMS, LIMITS, ErrorsQuestion, LayersQuestion, Question, RunQuestion
from gapless.lazy import lazy
from gapless.options import SolveOptions
from gapless.question import fields_of, picked
from gapless.question.command_fields import drawn, plot
from gapless.question.fields import Choice, Field, Flag, Listed, Number, Size, Text, Whole
from gapless.system import Command, Export

__all__ = ["ADVICE", "CURVE", "EXPORTS", "PROFILES", "RUN"]

_LEFT_OUT = ("micro_batches", "method", *LIMITS, "from_plan", "error_budget")
_ADVICE = (
    *(field for field in fields_of(Question) if field.name not in _LEFT_OUT),
    Field("micro_batches", Whole(1, 65536), "micro-batches of a step", otherwise="four a rank", metavar="M"),
    Field(
        "error_budget", Number(0), "the most that is of interest", otherwise="that of compressing all", metavar="E",
        group="compression",
    ),
)  # fmt: skip

_CURVE = (
    *(field for field in fields_of(Question) if field.name not in (*LIMITS, "from_plan")),
    Field("memory", Listed(Size()), "limits of a rank's memory: 24GiB,32GiB", metavar="SIZE,SIZE,...", group="memory"),
    Field(
        "in_flight", Listed(Whole(1, 65536)), "instead of bytes: how many micro-batches a rank may hold at once: 3,4,5",
        metavar="N,N,...", group="memory",
    ),
    Field("output", Text(), "folder for the plans and the table", is_required=True, metavar="DIR", short="-o"),
)  # fmt: skip

_SIZES = (
    Field("micro_batch_size", Whole(1), "sequences of a micro-batch", 1, metavar="N", group="megatron, torchtitan"),
    Field(
        "tensor_parallel", Whole(1), "devices that share a layer, those of the profile", 1, metavar="N",
        group="megatron, torchtitan",
    ),
)  # fmt: skip
EXPORTS = (
    Export(
        "torch-pipeline", "a schedule for torch.distributed.pipelining",
        lambda path, plan, values: torch_csv.export_torch(path, plan, **values),
        (
            Field(
                "form", Choice(FORMS), "compute, or communication: messages too; torch adds them else",
                "compute", group="torch-pipeline",
            ),
            Field(
                "compressed", Flag(), "the stages compress what the plan compresses", False, group="torch-pipeline",
            ),
            Field(
                "recomputing", Flag(), "the stages recompute what the plan recomputes", False, group="torch-pipeline",
            ),
        ),
    ),
    Export(
        "megatron", "arguments of Megatron-LM",
        lambda path, plan, values: megatron.export_megatron(path, plan, **values),
        _SIZES,
    ),
    Export(
        "torchtitan", "a configuration of torchtitan, and the order beside it",
        lambda path, plan, values: torchtitan.export_torchtitan(path, plan, **values),
        (
            *_SIZES,
            Field(
                "head_modules", Listed(Text()), "what a model calls the modules of its head, such as norm,lm_head",
                ("norm", "output"), metavar="NAME,NAME", group="torchtitan",
            ),
        ),
    ),
)  # fmt: skip

_ADVICE_HELP = """\
Prints the plans that no other beats in time, memory and error, whether compression is needed at all, and what one more
micro-batch of memory buys. Plans are made for as many micro-batches in flight as shorten the step, and with
--compression for several error budgets. Fewer cuts and orders are tried than by `solve`.

example:
  gapless advise pipeline --profile gpt-8.3b --ranks 4 --bandwidth 200Gbps --replicas 4
"""

_CURVE_HELP = """\
Limits are solved from the tightest on, each begins with the plan of the one before: more memory never gives a slower
plan. Each gets the time limit for itself and a plan file in the folder, with the table as summary.csv and summary.json.
The same command again goes on with the limits that have no answer yet. Ctrl-C ends it with the best plans so far.

exit codes: 0 every limit is answered, 2 bad input, 4 some have no answer yet, 5 a replay found violations

example:
  gapless sweep pipeline --profile uniform:f=10,b=12,w=8 --ranks 4 --micro-batches 8 --hop 2 --in-flight 4,5,6 -o curve
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

Times of --repeats steps are printed beside the predicted ones, and decide nothing. With --emulate ranks wait as long as
the plan says instead of computing; no model is needed then.

example:
  gapless run pipeline --model train:gpt --ranks 4 --plan plan.json
  gapless run pipeline --emulate links --ranks 4 --plan plan.json
"""

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
CURVE = Command(
    "pipeline", "step time against memory", _CURVE, lazy(lambda: sweep.answer), _CURVE_HELP,
    SolveOptions(time_limit_s=60.0), "stopping with the best plans so far; the same command goes on from them",
)  # fmt: skip
RUN = Command(
    "pipeline", "a plan by torch.distributed.pipelining, on processes of this machine",
    (*fields_of(RunQuestion), plot("the losses of a training")),
    drawn(asking(RunQuestion, lazy(lambda: run.execute)), lambda: curves.draw_training), _RUN_HELP,
    when_stopped="ending the processes",
)  # fmt: skip
_MEASURED = ("model", "micro_batches", "repeats")
PROFILES = (
    Command(
        "pipeline", "what the layers of a PyTorch model take on this machine",
        picked(LayersQuestion, *_MEASURED, "processes", "policies", "optimizer_ratio", "output", "wait"),
        asking(LayersQuestion, lazy(lambda: profiling.profile_layers)), _LAYERS_HELP,
    ),
    Command(
        "compression-error", "what compressors of gradients spoil on a calibration batch",
        picked(ErrorsQuestion, *_MEASURED, "modes", "depths", "output"),
        asking(ErrorsQuestion, lazy(lambda: profiling.profile_errors)), _ERRORS_HELP,
    ),
)  # fmt: skip
