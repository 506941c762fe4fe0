"""Bagpipe as the rest of gapless sees it."""

from __future__ import annotations

from gapless.answering import answering_in_time
from gapless.encodings.bagpipe import parameters, problem, solve
from gapless.encodings.bagpipe.advice import advise
from gapless.encodings.bagpipe.execution import planned
from gapless.encodings.bagpipe.lowering import machine
from gapless.encodings.bagpipe.question import AdviceQuestion, Question
from gapless.encodings.bagpipe.run import command, file
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.system import Command, System

__all__ = ["SYSTEM"]

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
    budgets=lambda plan: machine.budgets(plan.schedule.topology, plan.problem, plan.run),
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
            command.RUN,
            lazy(lambda: planned.execute),
            command.HELP,
            when_stopped="ending the processes",
        ),
    ),
    challenges=lazy(lambda: problem.challenges),
    cost=lazy(lambda: problem.cost),
    decision=lambda: problem.RunDecision,
    package="gapless.encodings.bagpipe",
)
