"""Baselines: what a run of `--design auto` is held against, under the same law of costs, and never behind.

Batches cut contiguously, a partitioned cache in the paper's optimum, the paper's LRPP, and caches without lookahead
that are as large (`lfu`, and `static-hot` as FAE's). Of a search with more rounds than by default, the run with as many
as by default too: what is better for one batch may be worse for those after it. Each is planned and laid out in time as
a run is, but not replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import Pipeline, pipeline
from gapless.encodings.bagpipe.parameters import Bound, Parameters, Search
from gapless.encodings.bagpipe.problem import Planning, Problem
from gapless.encodings.bagpipe.question import BASELINES, PAPERS

__all__ = ["Compared", "compare", "plannings"]


@dataclass(frozen=True)
class Compared:
    """Seconds until the first `batches` batches are trained, or until the run is over if it has no more."""

    batches: int
    own_s: float
    others_s: Mapping[str, float]
    asked: Mapping[str, tuple[Planning, Parameters]]

    @property
    def faster(self) -> tuple[Planning, Parameters] | None:
        """By what a faster run is planned, None if there is none."""
        best = min(self.others_s, key=lambda name: self.others_s[name])
        return self.asked[best] if self.others_s[best] < self.own_s else None


def compare(problem: Problem, times: Pipeline, cache_rows: int, parameters: Parameters) -> Compared:
    """The baselines of a run with these times; `cache_rows`: what caches without lookahead hold."""
    batches = min(parameters.baselines.batches, len(times.lookahead))
    is_whole = batches == len(times.lookahead)
    asked = _asked(problem.planning, parameters, problem.planning.cache_rows or cache_rows)
    others_s = {}
    for name, (planning, own) in asked.items():
        plans = islice(batch_plans(problem.trace, planning, replace(own, bound=Bound(rounds=0))), batches)
        found = pipeline(counted(plans, planning.design), problem.cluster, planning.design)
        others_s[name] = _reached_s(found, batches, is_whole)
    return Compared(batches, _reached_s(times, batches, is_whole), others_s, asked)


def plannings(own: Planning, cache_rows: int) -> dict[str, Planning]:
    """The baselines of a run, by name."""
    asked = {"contiguous": replace(own, method="contiguous")}
    for name in ("partitioned", PAPERS):
        asked[name] = replace(own, design=name, objective="auto")
    for name in BASELINES:
        asked[name] = replace(own, design=name, objective="auto", lookahead=None, cache_rows=cache_rows)
    return asked


def _asked(own: Planning, parameters: Parameters, cache_rows: int) -> dict[str, tuple[Planning, Parameters]]:
    asked = {name: (planning, parameters) for name, planning in plannings(own, cache_rows).items()}
    if parameters.search.rounds > Search.rounds:
        less = replace(parameters, search=replace(parameters.search, rounds=Search.rounds))
        asked[f"{Search.rounds} rounds"] = own, less
    return asked


def _reached_s(times: Pipeline, batches: int, is_whole: bool) -> float:
    return times.makespan_s if is_whole else float(times.ready_s[batches - 1])
