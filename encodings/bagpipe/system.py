"""Bagpipe as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapless.encodings.bagpipe.fields import ADVICE, QUESTION
from gapless.options import SolveOptions
from gapless.system import Answer, Command, Plan, Session, System

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _problem(**values: Any) -> Any:
    from gapless.encodings.bagpipe.question import problem

    return problem(**values)


def _plan(problem: Any, options: SolveOptions, parameters: Any) -> Plan:
    from gapless.encodings.bagpipe.solve import solve

    return solve(problem, options, parameters)


def _parameters() -> type:
    from gapless.encodings.bagpipe.parameters import Parameters

    return Parameters


def _read(path: str) -> SavedPlan:
    from gapless.encodings.bagpipe.run_file import read_run

    return read_run(path)


def _write(path: str, plan: SavedPlan) -> None:
    from gapless.encodings.bagpipe.run_file import write_run

    write_run(path, plan)


def _device_names(plan: SavedPlan) -> tuple[str, ...]:
    from gapless.encodings.bagpipe.lowering import device_names

    return device_names(plan.schedule.topology)


def _advise(values: Mapping[str, Any], session: Session) -> Answer:
    from gapless.encodings.bagpipe.advice import advise

    advice = advise(**values)
    return Answer(advice.data, advice.text)


_ADVICE_HELP = """\
Batches are planned for a window of the lookahead and as many again (50 at least), and their times follow from the
cluster. `critical`: rows synchronised while training waits; of a partitioned cache, what its busiest trainer sends and
receives, once each way. With a cache size, lookaheads that fit are tried first, and the smallest within 1 % of the
fastest is taken.

examples:
  gapless advise bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 50
  gapless advise bagpipe --trace clicks.csv --columns user,item --trainers 4 --cache-size 200MB --fetch-latency 50ms
"""

_SUMMARY = (
    "batches_planned", "fetched_rows", "sync_now_rows", "sync_later_rows", "evicted_rows", "cache_rows_peak",
    "partition_cost", "partition_bound", "iteration_s",
)  # fmt: skip

SYSTEM = System(
    name="bagpipe",
    what="caching and partitioning for recommendation training",
    fields=QUESTION,
    problem=_problem,
    plan=_plan,
    parameters=_parameters,
    example="""\
  gapless solve bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 200 --batches 50 -o plan.npz
""",
    summary=_SUMMARY,
    ending=".npz",
    write=_write,
    read=_read,
    device_names=_device_names,
    pictures=("gantt", "memory"),
    advice=(
        Command("bagpipe", "cache designs side by side, and the lookahead for a cache", ADVICE, _advise, _ADVICE_HELP),
    ),
    schemas="gapless.encodings.bagpipe.schemas",
    citation=lambda: (files("gapless.encodings.bagpipe") / "references.bib").read_text(encoding="utf-8"),
)
