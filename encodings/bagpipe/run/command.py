"""What `gapless run bagpipe` asks."""

from __future__ import annotations

from dataclasses import replace

from gapless.encodings.bagpipe.question import BASELINES, DESIGNS, MODELS, OBJECTIVES, SHARDED, Question
from gapless.profiles.traces.trace_question import OPTIMIZERS, TraceQuestion
from gapless.question import fields_of, picked
from gapless.question.command_fields import WAIT_FOR_EACH
from gapless.question.fields import Choice, Field, Flag, Listed, Number, Text, Whole

__all__ = ["BESIDE", "EMULATED", "HELP", "ON_DEMAND", "PLANNED", "RUN", "TRAINING"]

ON_DEMAND = "on-demand"
"""No plan: batches as they come, each of whose rows are fetched when it begins, into a cache of one batch."""
BESIDE = (ON_DEMAND, *DESIGNS, *BASELINES, *SHARDED)
EMULATED = ("time", "instants")

PLANNED = (
    Field("plan", Text(), "carry out this run of `solve bagpipe` on emulated links", metavar="FILE", group="plan"),
    Field(
        "beside", Listed(Choice(BESIDE)), f"other designs to carry out beside it: {', '.join(BESIDE)}",
        (ON_DEMAND, "lfu", "partitioned", "table-wise"), metavar="NAME,...", group="plan",
    ),
    Field(
        "emulate", Choice(EMULATED), "time: all wait for the instants of emulated links and passes, and the clock is "
        "read; instants: nobody waits", EMULATED[0], metavar="NAME", group="plan",
    ),
    Field(
        "dilation", Number(1, maximum=10**6), "emulated time runs so many times slower", 10.0, metavar="F", group="plan"
    ),
)  # fmt: skip
"""With a plan."""
TRAINING = (
    Field("step_size", Number(0, strict=True), "step size of the optimiser", 0.05, metavar="S"),
    WAIT_FOR_EACH,
)
"""With a plan and without one."""

RUN = (
    *(replace(field, is_required=False) for field in fields_of(TraceQuestion)),
    Field("trainers", Whole(1, 64), "processes", metavar="P", otherwise="those of --plan"),
    Field("batch_size", Whole(1), "examples of a batch", metavar="N", otherwise="those of --plan"),
    *picked(Question, "lookahead", "cache_rows"),
    Field("objective", Choice(OBJECTIVES), "what partitions minimise", "paper", metavar="NAME"),
    *picked(Question, "ownership", "shares"),
    Field("batches", Whole(1), "batches to train", 20, metavar="N"),
    Field("dimension", Whole(1, 4096), "fp32 values of a row", 16, metavar="D"),
    Field("model", Choice(MODELS), f"dense part: {', '.join(MODELS)}", MODELS[0], metavar="NAME"),
    Field("optimizer", Choice(OPTIMIZERS), f"of rows: {', '.join(OPTIMIZERS)}", "sgd", metavar="NAME"),
    Field(
        "servers", Whole(1, 64), "processes that serve rows, apart from the trainers", metavar="S", group="servers",
        otherwise="one in each trainer; one apart with --kill-trainer",
    ),
    Field("kill_trainer", Whole(0, 63), "trainer whose process is killed", metavar="K", group="servers"),
    Field(
        "at_batch", Whole(0), "batch in which it is killed", metavar="N", otherwise="half of the batches",
        group="servers",
    ),
    Field("checkpoint", Text(), "folder for checkpoints of servers and trainers", metavar="FOLDER", group="servers"),
    Field("checkpoint_every", Whole(1), "batches between checkpoints", 10, metavar="N", group="servers"),
    Field("restore", Flag(), "go on from the checkpoint in that folder", False, group="servers"),
    *TRAINING,
    *PLANNED,
)  # fmt: skip

HELP = """\
Trains a small model by the plans of the trace's first batches, in one gloo process a trainer, each with its cache and
its part of the embedding servers. Then trains it without a cache in one process, by PyTorch's own tables and
optimisers. Says how far the two are apart, and what the processes moved beside what the plans say. Numbers and labels
are drawn at random.

With --plan it carries out a run of `gapless solve bagpipe` of any design, and others of the same batches beside it.
Exchanges are planned, and go on in threads beside the passes. Messages are real; links and passes are those of the
plan's cluster, emulated. Says what was predicted, what the messages come to on these links, and what the clock says.
Says how many values of the tables have other bits than without a cache.

With --kill-trainer a trainer's process is killed in a batch. The others notice, another process takes its place, and
training goes on. It must end with the bits of an undisturbed run, which is trained too.

example:
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --pooling-factors 1,4,2 --trainers 2 --batch-size 64 \\
    --optimizer rowwise-adagrad
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --trainers 3 --batch-size 64 --kill-trainer 1 --at-batch 12
  gapless run bagpipe --plan run.npz --beside lfu --emulate instants
"""
