"""Pipelines as the rest of gapless sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.fields import (
    Bandwidth,
    Choice,
    Field,
    Flag,
    Listed,
    Number,
    Object,
    Scaled,
    Seconds,
    Size,
    Text,
    Whole,
)
from gapless.options import MOST_SECONDS
from gapless.system import Command, Export, System, answering_in_time, lazy, named
from gapless.units import format_bytes, parse_plain_seconds

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["BACKWARDS", "CUTS", "EMBEDDINGS", "METHODS", "RECOMPUTATIONS", "SYSTEM"]

METHODS = (
    "auto", "search", "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "zero-bubble",
)  # fmt: skip
"""`auto` tries all and searches on; `search`: without the exact method; `zero-bubble`: the heuristic with memory."""
BACKWARDS = ("split", "whole")
CUTS = ("auto", "even", "bottleneck")
RECOMPUTATIONS = ("none", "auto", "all")
EMBEDDINGS = ("fused", "separate")

_PROFILES = lazy("gapless.profiles.pipelines.named:pipeline_profile_names")
_TOPOLOGIES = lazy("gapless.topologies.files:topology_names")


def _cut(value: object) -> str | tuple[int, ...]:
    """The name of a rule, or first layers."""
    if isinstance(value, str) and value in CUTS:
        return value
    firsts: tuple[int, ...] = Listed(Whole(1))(value)
    return firsts


def _rank_names(plan: SavedPlan) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in range(plan.schedule.topology.device_count))


QUESTION = (
    Field(
        "profile", Object(("gapless.profiles.pipelines.profile.PipelineProfile",)),
        "`gapless list profiles`, uniform:f=10,b=12,w=8 (seconds of a rank's part), or a file", is_required=True,
        metavar="NAME|FILE", names=_PROFILES,
    ),
    Field("ranks", Whole(1, 1024), "ranks of the pipeline", is_required=True, metavar="P"),
    Field("micro_batches", Whole(1, 65536), "micro-batches of a step", is_required=True, metavar="M"),
    Field(
        "placement", Choice(("linear", "looped", "v")),
        "which rank runs which stage: linear, looped, v", "linear"
    ),
    Field("chunks", Whole(1, 64), "stages a rank has", otherwise="2 for looped and v", metavar="N"),
    Field(
        "cut", _cut,
        f"where the model is cut: {', '.join(CUTS)}, or the first layers of all stages but the first",
        "auto", metavar="NAME|L,L,...",
    ),
    Field(
        "backward", Choice(BACKWARDS),
        "gradients of inputs and weights as two ops: split, or as one: whole", "split"
    ),
    Field(
        "recomputation", Choice(RECOMPUTATIONS),
        "stages that run their forward again to save memory: none, auto, all", "none",
    ),
    Field("method", Choice(METHODS), f"what decides: {', '.join(METHODS)}", "auto", metavar="NAME"),
    Field("memory", Size(), "memory of a rank, such as 40GiB", metavar="SIZE", group="memory"),
    Field(
        "in_flight", Whole(1, 65536),
        "instead of bytes: how many micro-batches a rank may hold at once", metavar="N", group="memory"
    ),
    Field(
        "hop", Scaled(parse_plain_seconds, Number(0, maximum=MOST_SECONDS)),
        "seconds of a plain message between neighbours: 2, 1.5ms", metavar="T", group="network",
    ),
    Field(
        "bandwidth", Bandwidth(),
        "instead of --hop: bandwidth between neighbours, such as 200Gbps", metavar="B", group="network"
    ),
    Field("latency", Seconds(), "latency of a message", otherwise=0, metavar="T", group="network"),
    Field(
        "topology", Object(("gapless.topologies.topology.Topology",)),
        "instead of --hop: take the links of ndv2, ring:8, ...",
        metavar="NAME", names=_TOPOLOGIES, group="network",
    ),
    Field("nodes", Whole(1, 10**6), "number of the topology's nodes", otherwise=1, metavar="N", group="network"),
    Field("blocking_sends", Flag(), "a rank computes nothing while it sends", False, group="network"),
    Field("replicas", Whole(1, 10**6), "data-parallel degree", 1, metavar="D", group="replicas"),
    Field(
        "replica_bandwidth", Bandwidth(), "bandwidth of the sum among replicas", otherwise="--bandwidth", metavar="B",
        group="replicas",
    ),
    Field(
        "embedding", Choice(EMBEDDINGS), "how a shared embedding's gradients are summed: fused, separate",
        "fused", group="replicas",
    ),

    Field(
        "compression", Object(("gapless.profiles.pipelines.compression.CompressionTable",)),
        "a table of measured errors; without one nothing is compressed", metavar="FILE", group="compression",
    ),
    Field(
        "error_budget", Number(0), "the most that compression may spoil: relative squared errors, added up", 0.0, metavar="E", group="compression",
    ),
)  # fmt: skip

_LEFT_OUT = ("micro_batches", "method", "memory", "in_flight", "error_budget")
ADVICE = (
    *(field for field in QUESTION if field.name not in _LEFT_OUT),
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
        lazy("gapless.encodings.pipeline.exporting:export_torch"),
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
        "megatron", "arguments of Megatron-LM", lazy("gapless.encodings.pipeline.exporting:export_megatron"),
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

RUN = (
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

LAYERS = (
    *_MEASURED,
    Field("optimizer_ratio", Number(0), "bytes of the optimiser for one of parameters; Adam: 2", 2.0),
    Field("output", Text(), "the profile to write", is_required=True, metavar="FILE", short="-o"),
)

ERRORS = (
    *_MEASURED,
    Field(
        "modes", Listed(Text()), "rank N, top X%, float16, bfloat16, with commas between them",
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


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The least memory, where what was given is too little for any plan."""
    least = details.get("least_memory_bytes", details.get("least_memory_bound_bytes"))
    if "method" in details or least is None:
        return ()
    return (f"every plan needs at least {format_bytes(least)} of memory a rank",)


SYSTEM = System(
    name="pipeline",
    what="cut, order and compression of pipeline-parallel training",
    fields=QUESTION,
    problem=lazy("gapless.encodings.pipeline.problem:problem"),
    plan=lazy("gapless.encodings.pipeline.solve:solve"),
    parameters=lambda: named("gapless.encodings.pipeline.parameters:Parameters"),
    example="""\
  gapless solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 4 --micro-batches 8 --hop 2 --in-flight 5
  gapless solve pipeline --profile gpt-8.3b --ranks 4 --micro-batches 16 --bandwidth 200Gbps --replicas 4 -o plan.json
""",
    summary=(
        "method", "peak_in_flight", "spread_s", "bubble", "error", "least_memory_bytes", "least_memory_bound_bytes",
    ),
    remarks=_remarks,
    lighter="fewer micro-batches",
    exports=EXPORTS,
    advice=(
        Command(
            "pipeline", "the front of time, memory and compression error", ADVICE,
            answering_in_time("gapless.encodings.pipeline.advice:advise"), _ADVICE_HELP, is_limited=True,
        ),
    ),
    runs=(
        Command(
            "pipeline", "a plan by torch.distributed.pipelining, on processes of this machine", RUN,
            lazy("gapless.encodings.pipeline.execution:execute"), _RUN_HELP,
            when_stopped="ending the processes",
        ),
    ),
    view=lazy("gapless.encodings.pipeline.view:render"),
    device_names=_rank_names,
    question=(
        "{profile} on {ranks} ranks, {micro_batches} micro-batches", "within {memory_bytes} a rank",
        "at most {in_flight} in flight",
    ),
    budgets=lambda plan: plan.schedule.topology.memory_bytes if "memory_bytes" in plan.problem else (),
    pictures=("pipeline", "memory", "gantt"),
    drawers={"pipeline": lazy("gapless.encodings.pipeline.diagram:draw_pipeline")},
    profiles=(
        Command(
            "pipeline", "what the layers of a PyTorch model take on this machine", LAYERS,
            lazy("gapless.encodings.pipeline.profiling:profile_layers"), _LAYERS_HELP,
        ),
        Command(
            "compression-error", "what compressors of gradients spoil on a calibration batch", ERRORS,
            lazy("gapless.encodings.pipeline.profiling:profile_errors"), _ERRORS_HELP,
        ),
    ),
    package="gapless.encodings.pipeline",
)  # fmt: skip
