"""The commands of Cupcake: advice, profiles, runs under DDP and their validation, with their options and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gapless.answering import answering, answering_in_time, asking
from gapless.encodings.cupcake.commands import (
    advice,
    compressors,
    execution,
    performance_model,
    pictures,
    profiling,
    what_if,
)
from gapless.encodings.cupcake.question import (
    COMPRESSOR,
    COMPRESSOR_NAMES,
    ERRORS,
    CompressorsQuestion,
    GradientsQuestion,
    ModelValidationQuestion,
    Question,
    RunQuestion,
    ValidationQuestion,
)
from gapless.errors import InputError
from gapless.lazy import lazy
from gapless.profiles.devices import device_names
from gapless.profiles.gradients.network_question import DECODED, TOGETHER, NetworkQuestion
from gapless.question import fields_of, picked
from gapless.question.command_fields import drawn, plot
from gapless.question.fields import (
    Bandwidth,
    Choice,
    Field,
    Kind,
    Listed,
    Number,
    Object,
    Seconds,
    Size,
    Text,
    Whole,
    WholeOrShare,
)
from gapless.system import Answer, Command, Session

__all__ = ["ADVICE", "PROFILES", "RUN", "VALIDATIONS"]

_FIGURES = (
    "bandwidth", "latency", "ranks", "aggregation", "batch", "gamma", "bucket", "compute", "tradeoff", "contention",
    "ratio", "overlap",
)  # fmt: skip

_NETWORK = tuple(replace(field, group="problem") for field in fields_of(NetworkQuestion))

_BUFFERS = (
    Field("memory", Size(), "of a rank for the buffers of a compressor: 16GB", otherwise="no limit", metavar="SIZE"),
    Field(
        "decoded", Choice(DECODED),
        "how gathered messages are decoded: all before they are added up, or each by itself, as our hook does",
        TOGETHER,
    ),
)  # fmt: skip

_COMPRESSION = (
    *picked(Question, "profile"),
    *_NETWORK,
    Field(
        "compressor", Listed(COMPRESSOR), "of `gapless list compressors`, with commas between them, or all",
        ("all",), metavar="NAME,NAME,...", names=COMPRESSOR_NAMES,
    ),
    Field(
        "device", Object(("gapless.profiles.devices.Device",)), "where gradients are encoded and decoded", "v100",
        metavar="NAME", names=device_names,
    ),
    Field("error", Choice(ERRORS), "the worst class of error that a compressor may have", "unknown",
          metavar="CLASS"),
    *_BUFFERS,
    plot(),
)  # fmt: skip

_AXES = "axes: values with commas between them"


def _axis(name: str, kind: Kind, what: str, otherwise: str | None = None) -> Field:
    return Field(name, Listed(kind), what, metavar="X,X,...", group=_AXES, otherwise=otherwise)


_AXES_OF_NETWORK = ("ranks", "bandwidth", "latency", "aggregation")

_WHAT_IF = (
    *picked(Question, "profile"),
    Field(
        "figure", Choice(_FIGURES),
        "the table's axis. compute: a device --speed times as fast. tradeoff: encode and decode k times as fast at l k "
        "times the bytes (--encode-speed k, --penalty l). contention: compression beside the backward pass. ratio: "
        "the compression that is enough for close to linear scaling, over batches. overlap: no compression, with and "
        "without sending beside the backward pass", is_required=True,
    ),
    Field(
        "compressor", COMPRESSOR,
        "one of `gapless list compressors`", "powersgd", metavar="NAME", names=COMPRESSOR_NAMES
    ),
    plot(),
    _axis("ranks", Whole(2, 10**6), "number of workers"),
    _axis("bandwidth", Bandwidth(), "bandwidth out of a rank, or of a node: 10Gbps, 1.25GB/s"),
    _axis("latency", Seconds(), "latency of one step of a collective", "10us"),
    _axis("aggregation", Text(), "how gradients are added up: ring, tree, server, ring-or-tree", "ring"),
    _axis("batch", WholeOrShare(), "examples a rank, or 0.5x: of the profile's; the backward pass is in proportion"),
    _axis("gamma", Number(1, maximum=100), "slow-down of a backward pass beside communication", "1.07"),
    _axis("bucket", Size(), "bytes of a bucket", "25MB"),
    _axis("speed", Number(0, strict=True, maximum=1000), "how many times as fast the device is"),
    _axis("backward_speed", Number(0, strict=True, maximum=1000), "how many times as fast the backward pass alone is"),
    _axis("encode_speed", Number(1, maximum=1000), "k: encode and decode are k times as fast"),
    _axis("penalty", Number(1, maximum=1000), "l: at l k times the bytes"),
    _axis("contention", Number(1, maximum=100), "what compression beside the backward pass costs the device"),
    *(field for field in _NETWORK if field.name not in _AXES_OF_NETWORK),
    *_BUFFERS,
)  # fmt: skip

_COMPRESSION_HELP = """\
Each compressor gets its best plan of the profile's gradients, in which groups may be plain, at published costs. It is
compared with no compression in the best size of buckets from 2 to 64 MB. Classes of error stand apart, since they
differ in what is known of convergence. `pays below` is the bandwidth at which compressing all gradients stops paying,
with its range over a tenth to ten times the latency.

example:
  gapless advise compression --profile resnet101 --ranks 64 --bandwidth 10Gbps --latency 10us
  gapless advise compression --profile bert-base --topology ndv2 --nodes 4 --error feedback --plot compressors.svg
"""
_WHAT_IF_HELP = """\
An analytic model of the backward pass and the synchronisation: no search, no forward pass. Every axis may have several
values; a figure has those of the study along its own where none are given. `pays below` is the bandwidth at which the
compressor stops paying, with its range over what is known least.

example:
  gapless advise what-if --figure bandwidth --profile resnet101 --ranks 64 --batch 16,32,64 --plot bandwidth.svg
  gapless advise what-if --figure latency --profile resnet101 --ranks 64 --bandwidth 10Gbps --gamma 1.04,1.1
"""

_FACTORY_HELP = """\
FACTORY makes (model, inputs, loss, targets), or (model, inputs) where the model returns its loss. Unless there is a
train.py, train:net is a small convolutional network of gapless, and train:gpt a small GPT. Options of train:net are
layers, width, classes, size and batch; of train:gpt layers, hidden, heads, vocabulary, sequence and micro_batch.
"""
_MODES_HELP = """\
modes: compressors of `gapless list compressors`, such as fp16, topk:0.001, powersgd:8, onebit, and plain. The share
that is kept is 0.01 and the rank 4 where they aren't given. Those of class feedback or rounded add what they lost to
the next gradient. dgc:0.001:momentum=0.9:clip=1:warmup=400 has options of its own.
"""
_GRADIENTS_HELP = f"""\
{_FACTORY_HELP}
{_MODES_HELP}
Gradients are in the order in which rank 0's become ready. Each hook sends groups of the model's own gradients, from the
smallest to all of them. Its costs are flat up to a size and a line above, through the medians. Costs that are further
off than --within are refused.

example:
  gapless profile gradients --model train:net,width=32 --hooks topk,powersgd:4,fp16 --bandwidth 1Gbps -o net.json
"""
_COMPRESSORS_HELP = """\
Random gradients of the profile's shapes, all in one group, as Table 4.1 of the performance study has it. One process
encodes, and decodes as many messages as there are ranks. V100 is what is published, see `gapless list compressors`.

example:
  gapless profile compressors --profile resnet50 --compressor signsgd,qsgd,powersgd:4 --ranks 8
"""
_RUN_HELP = f"""\
{_FACTORY_HELP}
Beside the plan run DDP's default buckets, one bucket, one for each gradient, and DDP's buckets all compressed, in
turns. Compared with DDP by itself in the same buckets: gradients, to the bit where nothing is lost. What is emulated is
done, and then waited for; the wire is one for all ranks, and takes one bucket at a time, in order. exit codes: 0
buckets and gradients are as they must be, 2 bad input, or a process failed, 5 something differs

With --train all are trained from one start, by SGD over a few batches a rank in turns, and DDP's buckets and single
gradients all compressed too. A loss is the mean over these batches, and its time the sum of the steps up to it, forward
and backward, on the emulated wire. Loss and accuracy are said too of 16 batches that nobody trains on.

example:
  gapless run cupcake --plan plan.json --model train:net,width=32 --ranks 4
"""
_VALIDATION_HELP = f"""\
{_FACTORY_HELP}
{_MODES_HELP}
Each model is measured, planned and run for each number of ranks and bandwidth, as by `profile gradients`, `solve` and
`run cupcake`; errors of the predicted steps are those of all that ran.

example:
  gapless validate ddp --model train:net --model train:gpt --ranks 2,4 --bandwidth 100Mbps,1Gbps
"""
_MODEL_VALIDATION_HELP = f"""\
{_FACTORY_HELP}
{_MODES_HELP}
First the backward pass alone is measured, and encode and decode of all gradients in each mode. Then every setting runs:
plain gradients in buckets beside the backward pass, compressed ones all at once after it. What counts is the time from
the last loss until the last rank is through. `time line` is the error of Cupcake's own prediction of the whole step.

example:
  gapless validate performance-model --model train:net,width=32 --ranks 2,4 --bandwidth 200Mbps --bucket 200KB
"""

ADVICE = (
    Command(
        "compression", "every compressor's best plan against none", _COMPRESSION,
        drawn(answering_in_time(lambda: advice.compression), lambda: pictures.draw_compression),
        _COMPRESSION_HELP, is_limited=True,
    ),
    Command(
        "what-if", "tables of the analytic performance model", _WHAT_IF,
        drawn(answering(lambda: what_if.what_if), lambda: pictures.draw_what_if),
        _WHAT_IF_HELP,
    ),
)  # fmt: skip


def _run(values: Mapping[str, object], session: Session) -> Answer:
    """What ran, and a picture of the training."""
    if values["plot"] is not None and not values["train"]:
        raise InputError("plot: goes with train, the number of steps to descend")
    return drawn(asking(RunQuestion, lazy(lambda: execution.execute)), lambda: pictures.draw_training)(values, session)


RUN = Command(
    "cupcake", "a plan under DistributedDataParallel beside DDP's own buckets, on processes of this machine",
    (
        *picked(
            RunQuestion, "model", "plan", "ranks", "emulate", "dilation", "repeats", "wait", "ranks_per_node", "train",
            "rate", "batches", "loss",
        ),
        plot("losses and accuracy against seconds"),
    ),
    _run, _RUN_HELP, when_stopped="ending the processes",
)  # fmt: skip
PROFILES = (
    Command(
        "gradients", "when a PyTorch model's gradients are ready, and what hooks take to send them",
        picked(
            GradientsQuestion,
            "model", "ranks", "hooks", "steps", "repeats", "within", "bandwidth", "latency", "wait", "output",
        ),
        asking(GradientsQuestion, lazy(lambda: profiling.profile_gradients)), _GRADIENTS_HELP,
        when_stopped="ending the processes",
    ),
    Command(
        "compressors", "what encoding and decoding a profile's gradients take on this machine",
        fields_of(CompressorsQuestion),
        asking(CompressorsQuestion, lazy(lambda: compressors.profile_compressors)), _COMPRESSORS_HELP,
    ),
)  # fmt: skip
VALIDATIONS = (
    Command(
        "ddp", "predicted steps of data-parallel training against measured ones", fields_of(ValidationQuestion),
        asking(ValidationQuestion, lazy(lambda: execution.validate)), _VALIDATION_HELP,
        when_stopped="ending the processes",
    ),
    Command(
        "performance-model", "the analytic model of data-parallel training against measured steps",
        fields_of(ModelValidationQuestion),
        asking(ModelValidationQuestion, lazy(lambda: performance_model.validate_model)), _MODEL_VALIDATION_HELP,
        when_stopped="ending the processes",
    ),
)  # fmt: skip
