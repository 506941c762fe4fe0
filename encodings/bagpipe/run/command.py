"""What `gapless run bagpipe` asks."""

from __future__ import annotations

from dataclasses import replace

from gapless.encodings.bagpipe.question import BASELINES, DESIGNS, SHARDED, Question
from gapless.question import fields_of
from gapless.question.command_fields import WAIT_FOR_EACH
from gapless.question.fields import Choice, Field, Flag, Listed, Number, Text, Whole

__all__ = ["ASKED", "BESIDE", "EMULATED", "HELP", "KEPT", "ON_DEMAND", "RUN", "WITH_PLAN"]

ON_DEMAND = "on-demand"
"""No plan: batches as they come, each of whose rows are fetched when it begins, into a cache of one batch."""
BESIDE = (ON_DEMAND, *DESIGNS, *BASELINES, *SHARDED)
EMULATED = ("time", "instants")

_SMALL = {"dimension": 16, "batches": 20}
"""What a training on one machine takes by default, instead of a plan's."""
ASKED = tuple(
    replace(field, is_required=False, default=_SMALL.get(field.name, field.default))
    for field in fields_of(Question)
    if field.name != "resume"
)
"""What is planned, where no plan is given."""
KEPT = (
    Field("kill_trainer", Whole(0, 63), "trainer whose process is killed", metavar="K", group="losses"),
    Field(
        "at_batch", Whole(0), "batch in which it is killed", metavar="N", otherwise="half of the batches",
        group="losses",
    ),
    Field("checkpoint", Text(), "folder for checkpoints of servers and trainers", metavar="FOLDER", group="losses"),
    Field("checkpoint_every", Whole(1), "batches between checkpoints", 10, metavar="N", group="losses"),
    Field("restore", Flag(), "go on from the checkpoint in that folder", False, group="losses"),
)  # fmt: skip
RUN = (
    Field("plan", Text(), "carry out this run of `solve bagpipe`", metavar="FILE", otherwise="plan first"),
    Field(
        "beside", Listed(Choice(BESIDE)), f"other designs to carry out beside it: {', '.join(BESIDE)}",
        metavar="NAME,...", otherwise="with --plan on-demand, lfu, partitioned and table-wise",
    ),
    Field(
        "emulate", Choice(EMULATED), "time: all wait for the instants of emulated links and passes, and the clock is "
        "read; instants: nobody waits", metavar="NAME", otherwise="time with --plan, else instants",
    ),
    Field("dilation", Number(1, maximum=10**6), "emulated time runs so many times slower", 10.0, metavar="F"),
    Field("step_size", Number(0, strict=True), "step size of the optimiser", 0.05, metavar="S"),
    WAIT_FOR_EACH,
    *KEPT,
    *ASKED,
)  # fmt: skip
WITH_PLAN = ("beside", "emulate")
"""What doesn't go with a loss or a checkpoint."""

HELP = """\
Carries out a run of `gapless solve bagpipe` of any design, one gloo process a trainer and a server, and others of the
same batches beside it. Without --plan it plans first, as `gapless solve bagpipe` does. Exchanges are planned, and go on
in threads beside the passes of a small model. Messages are real; links and passes are those of the plan's cluster,
emulated. Numbers and labels are drawn at random. Says what was predicted, what the messages come to on these links,
and what the clock says. Says how many values of tables and dense layers have other bits than without a cache, and how
far losses are from PyTorch's own tables in one process.

With --kill-trainer a trainer's process is killed in a batch. The others notice, another process takes its place, and
training goes on. With --checkpoint it can go on later.

example:
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --pooling-factors 1,4,2 --trainers 2 --batch-size 64 \\
    --optimizer rowwise-adagrad
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --trainers 3 --batch-size 64 --kill-trainer 1 --at-batch 12
  gapless run bagpipe --plan run.npz --beside lfu --emulate instants
"""
