"""Rows that the cache that runs synchronises: the design, its objective, and what no partition could save.

`pytest tests/benchmarks/test_bagpipe_synchronised.py -s` prints the table of docs/bagpipe.md: 8 trainers, batches of
16,384, a lookahead of 20. Numbers are the means of a batch but the first, whose rows nobody has used before.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from result_tables import ResultTables
from session_trace import session_trace

from gapless.encodings.bagpipe import Bound, Cluster, Parameters, Planning, Search
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.parameters import Synchronised
from gapless.profiles.traces.generators import criteo_like_trace, skew_trace
from gapless.profiles.traces.trace import Trace

BATCH, TRAINERS, LOOKAHEAD = 16_384, 8, 20
FINE = "lrpp-fine-grained"
UNBOUNDED = Parameters(Search(), Bound(rounds=0))
BOUNDED = replace(UNBOUNDED, bound=Bound(rounds=40))
CASES = {
    "the paper": ("lrpp-delayed", "paper", "auto", UNBOUNDED),
    "its cache, our objective": ("lrpp-delayed", "synchronised", "auto", BOUNDED),
    "fine-grained, contiguous": (FINE, "synchronised", "contiguous", UNBOUNDED),
    "fine-grained, the paper's optimum": (FINE, "paper", "auto", UNBOUNDED),
    "fine-grained, ours": (FINE, "synchronised", "auto", BOUNDED),
    "fine-grained, ours, four together": (
        FINE, "synchronised", "auto", replace(UNBOUNDED, synchronised=Synchronised(window=4)),
    ),
}  # fmt: skip

pytestmark = [pytest.mark.usefixtures("keep_tables"), pytest.mark.benchmark(timer=time.process_time)]


def trace_of(name: str) -> Trace:
    """Long enough for no batch that is planned to see its end."""
    examples = 40 * BATCH
    if name == "criteo-like":
        return criteo_like_trace(examples)
    return session_trace(examples) if name == "sessions" else skew_trace([100_000] * 26, 0.01, examples)


@cache
def result(trace: str, case: str, batches: int) -> dict[str, float]:
    """Rows at once and later, messages, value and bound of a mean batch; the makespan."""
    design, objective, method, parameters = CASES[case]
    planning = Planning(TRAINERS, BATCH, LOOKAHEAD, objective=objective, method=method, design=design)
    plans = list(islice(batch_plans(trace_of(trace), planning, parameters), batches))
    counts = counted(plans)
    found = pipeline(counts, Cluster(TRAINERS), design)
    now = counts.rooted.moved_now[1:] if design == FINE else counts.sync_now[:-1]
    later = counts.rooted.moved_later if design == FINE else counts.sync_later
    bounds = [plan.partition.bound if objective == "synchronised" else None for plan in plans[1:]]
    return {
        "now": float(now.mean()),
        "later": float(later[1:].mean()),
        "value": float(np.mean([plan.partition.value for plan in plans[1:]])),
        "bound": np.nan if None in bounds else float(np.mean(bounds)),  # type: ignore[arg-type]
        "makespan_s": found.makespan_s,
        "sync_s": found.sync_s,
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("trace", ["criteo-like", "sessions", "uniform"])
def test_rows_that_are_synchronised(benchmark: Any, tables: ResultTables, sized: Any, trace: str, case: str) -> None:
    batches = sized(6, 4)
    mine = benchmark.pedantic(lambda: result(trace, case, batches), rounds=1)
    title = f"Rows synchronised, 8 trainers x {BATCH:,}, L = {LOOKAHEAD}"
    tables.table("bagpipe-synchronised", title).add(
        f"{trace} {case}", trace=trace, case=case, at_once=round(mine["now"]), later=round(mine["later"]),
        gap="-" if np.isnan(mine["bound"]) else f"{1 - mine['bound'] / mine['value']:.1%}",
        sync_ms=round(1e3 * mine["sync_s"], 2), makespan_ms=round(1e3 * mine["makespan_s"], 1),
    )  # fmt: skip
    papers = result(trace, "the paper", batches)
    assert mine["makespan_s"] <= papers["makespan_s"] * 1.001
    if not np.isnan(mine["bound"]):
        assert mine["bound"] <= mine["value"]
    if case.startswith("fine-grained, ours"):
        least_saved = {"criteo-like": 0.30, "sessions": 0.65, "uniform": 0.20}[trace]
        assert mine["now"] <= (1 - least_saved) * papers["now"]
        assert mine["now"] < result(trace, "fine-grained, the paper's optimum", batches)["now"]
    if case == "its cache, our objective":
        assert mine["now"] == papers["now"]  # whatever the partition
        assert mine["later"] <= papers["later"]
