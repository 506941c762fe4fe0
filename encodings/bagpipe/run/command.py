"""What `gapless run bagpipe` asks."""

from __future__ import annotations

from gapless.encodings.bagpipe.question import MODELS, OBJECTIVES, Question
from gapless.profiles.traces.trace_question import OPTIMIZERS, TraceQuestion
from gapless.question import fields_of, picked
from gapless.question.command_fields import WAIT_FOR_EACH
from gapless.question.fields import Choice, Field, Flag, Number, Text, Whole

__all__ = ["HELP", "RUN"]

RUN = (
    *fields_of(TraceQuestion),
    Field("trainers", Whole(1, 64), "processes", is_required=True, metavar="P"),
    Field("batch_size", Whole(1), "examples of a batch", is_required=True, metavar="N"),
    *picked(Question, "lookahead", "cache_rows"),
    Field("objective", Choice(OBJECTIVES), "what partitions minimise", "paper", metavar="NAME"),
    *picked(Question, "ownership", "shares"),
    Field("batches", Whole(1), "batches to train", 20, metavar="N"),
    Field("dimension", Whole(1, 4096), "fp32 values of a row", 16, metavar="D"),
    Field("model", Choice(MODELS), f"dense part: {', '.join(MODELS)}", MODELS[0], metavar="NAME"),
    Field("optimizer", Choice(OPTIMIZERS), f"of rows: {', '.join(OPTIMIZERS)}", "sgd", metavar="NAME"),
    Field("step_size", Number(0, strict=True), "step size of the optimiser", 0.05, metavar="S"),
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
    WAIT_FOR_EACH,
)  # fmt: skip

HELP = """\
Trains a small model by the plans of the trace's first batches, in one gloo process a trainer, each with its cache and
its part of the embedding servers. Then trains it without a cache in one process, by PyTorch's own tables and
optimisers. Says how far the two are apart, and what the processes moved beside what the plans say. Numbers and labels
are drawn at random.

With --kill-trainer a trainer's process is killed in a batch. The others notice, another process takes its place, and
training goes on. It must end with the bits of an undisturbed run, which is trained too.

example:
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --pooling-factors 1,4,2 --trainers 2 --batch-size 64 \\
    --optimizer rowwise-adagrad
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --trainers 3 --batch-size 64 --kill-trainer 1 --at-batch 12
"""
