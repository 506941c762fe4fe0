"""Bagpipe as the rest of gapless sees it."""

from __future__ import annotations

from gapless.encodings.bagpipe import parameters, problem, solve
from gapless.encodings.bagpipe.advice import advise
from gapless.encodings.bagpipe.lowering import machine
from gapless.encodings.bagpipe.question import MODELS, OBJECTIVES, AdviceQuestion, Question
from gapless.encodings.bagpipe.run import execution, file
from gapless.lazy import lazy
from gapless.profiles.traces.trace_question import OPTIMIZERS, TraceQuestion
from gapless.question import fields_of, picked
from gapless.question.command_fields import WAIT_FOR_EACH
from gapless.question.fields import Choice, Field, Number, Whole
from gapless.system import Command, System, answering_in_time

__all__ = ["SYSTEM"]

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
    WAIT_FOR_EACH,
)

_RUN_HELP = """\
Trains a small model by the plans of the trace's first batches, in one gloo process a trainer, each with its cache and
its part of the embedding servers. Then trains it without a cache in one process, by PyTorch's own tables and
optimisers. Says how far the two are apart, and what the processes moved beside what the plans say. Numbers and labels
are drawn at random.

example:
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --pooling-factors 1,4,2 --trainers 2 --batch-size 64 \\
    --optimizer rowwise-adagrad
"""

_ADVICE_HELP = """\
Batches are planned for a window of the lookahead and as many again (50 at least), and their times follow from the
cluster. `critical`: rows synchronised while training waits; of a partitioned cache, what its busiest trainer sends and
receives, once each way. With a cache size, lookaheads that fit are tried first, and the smallest within 1 % of the
fastest is taken.

example:
  gapless advise bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 50
  gapless advise bagpipe --trace clicks.csv --columns user,item --trainers 4 --cache-size 200MB --fetch-latency 50ms
"""

_SUMMARY = (
    "batches_planned", "fetched_rows", "sync_now_rows", "sync_later_rows", "evicted_rows", "cache_rows_peak",
    "partition_cost", "iteration_s",
)  # fmt: skip

SYSTEM = System(
    name="bagpipe",
    what="caching and partitioning for recommendation training",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve bagpipe --trace criteo-like --trainers 4 --batch-size 4096 --lookahead 20 --batches 10 -o plan.npz
""",
    summary=_SUMMARY,
    lighter="fewer --batches",
    ending=".npz",
    write=lazy(lambda: file.write_run),
    read=lazy(lambda: file.read_run),
    device_names=lambda plan: machine.device_names(plan.schedule.topology),
    headline=(
        "{trace} on {trainers} trainers, batches of {batch_size}",
        "lookahead {lookahead}",
        "cache of {cache_rows} rows",
    ),
    budgets=lambda plan: machine.budgets(plan.schedule.topology, plan.problem),
    pictures=("gantt", "memory"),
    advice=(
        Command(
            "bagpipe",
            "cache designs side by side, and the lookahead for a cache",
            fields_of(AdviceQuestion),
            answering_in_time(lambda: advise.advise),
            _ADVICE_HELP,
            is_limited=True,
        ),
    ),
    runs=(
        Command(
            "bagpipe",
            "a small model trained by the plans of a trace, on processes of this machine",
            RUN,
            lazy(lambda: execution.execute),
            _RUN_HELP,
            when_stopped="ending the processes",
        ),
    ),
    challenges=lazy(lambda: problem.challenges),
    cost=lazy(lambda: problem.cost),
    decision=lambda: problem.RunDecision,
    package="gapless.encodings.bagpipe",
)
