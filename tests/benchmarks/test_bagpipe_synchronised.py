"""What runs wait for embeddings, by cache and partition, and how far each is above the bound that holds for all.

`pytest tests/benchmarks/test_bagpipe_synchronised.py -s` prints the table of docs/bagpipe.md: 8 trainers, batches of
16,384, a lookahead of 20, whole runs of 12 batches. Rows and messages are the means of a batch but the first, whose
rows nobody has used before.
"""

from __future__ import annotations

import time
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from result_tables import ResultTables
from session_trace import session_trace

from gapless.encodings.bagpipe import Bound, Cluster, Parameters, Planning, Search
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.designs.bound import first_uses, run_bound_s
from gapless.encodings.bagpipe.designs.counts import counted
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.parameters import Synchronised
from gapless.profiles.traces.generators import criteo_like_trace, skew_trace, zipf_trace
from gapless.profiles.traces.trace import Trace

BATCH, TRAINERS, LOOKAHEAD = 16_384, 8, 20
FINE = "lrpp-fine-grained"
UNBOUNDED = Parameters(Search(), Bound(rounds=0))
CASES = {
    "the paper": ("lrpp-delayed", "paper", "auto"),
    "partitioned": ("partitioned", "paper", "auto"),
    "fine-grained, contiguous": (FINE, "time", "contiguous"),
    "fine-grained, the paper's optimum": (FINE, "paper", "auto"),
    "fine-grained, fewest rows": (FINE, "synchronised", "auto"),
    "fine-grained, ours": (FINE, "time", "auto"),
}

pytestmark = [pytest.mark.usefixtures("keep_tables"), pytest.mark.benchmark(timer=time.process_time)]


def trace_of(name: str) -> Trace:
    """Long enough for no batch that is planned to see its end."""
    examples = 40 * BATCH
    if name == "criteo-like":
        return criteo_like_trace(examples)
    return session_trace(examples) if name == "sessions" else skew_trace([100_000] * 26, 0.01, examples)


@cache
def result(trace: str, case: str, batches: int) -> dict[str, float]:
    """Rows at once and messages of the busiest trainer in a mean batch; the makespan, its bound, time of a batch."""
    design, objective, method = CASES[case]
    planning = Planning(TRAINERS, BATCH, LOOKAHEAD, objective=objective, method=method, design=design, batches=batches)
    plans = list(batch_plans(trace_of(trace), planning, UNBOUNDED))
    counts, ids = counted(plans, design), [plan.step.ids for plan in plans]
    found = pipeline(counts, Cluster(TRAINERS), design)
    first, last = (np.array(list(first_uses(each))) for each in (ids, ids[::-1]))
    rooted = counts.rooted
    messages = 2 * counts.peer_most if design == "partitioned" else rooted.gathered_now_most + rooted.sent_now_most
    return {
        "now": float((rooted.moved_now[1:] if design == FINE else found.rows.sync_now[:-1]).mean()),
        "messages": 0.0 if design == "lrpp-delayed" else float(messages[1:].mean()),
        "makespan_s": found.makespan_s,
        "bound_s": run_bound_s(np.full(batches, BATCH // TRAINERS), first, last[::-1], Cluster(TRAINERS)),
        "sync_s": found.sync_s,
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("trace", ["criteo-like", "sessions", "uniform"])
def test_what_runs_wait_for(benchmark: Any, tables: ResultTables, sized: Any, trace: str, case: str) -> None:
    batches = sized(12, 4)
    mine = benchmark.pedantic(lambda: result(trace, case, batches), rounds=1)
    title = f"Waiting for embeddings, 8 trainers x {BATCH:,}, L = {LOOKAHEAD}"
    above = mine["makespan_s"] / mine["bound_s"] - 1
    tables.table("bagpipe-synchronised", title).add(
        f"{trace} {case}", trace=trace, case=case, at_once=round(mine["now"]), messages=round(mine["messages"]),
        sync_ms=round(1e3 * mine["sync_s"], 2), makespan_ms=round(1e3 * mine["makespan_s"], 1),
        above_bound=f"{above:.1%}",
    )  # fmt: skip
    assert above >= 0
    if case == "fine-grained, ours":
        for other in CASES:
            assert mine["makespan_s"] <= result(trace, other, batches)["makespan_s"] * 1.001
        if trace != "uniform":
            assert above < 0.03


@pytest.mark.parametrize("window", [2, 3, 4])
def test_windows_against_their_optimum(tables: ResultTables, sized: Any, window: int) -> None:
    """Rows at once of small windows, 8 examples of three tables on two trainers: by search, and the least there are."""
    seeds, values = sized(40, 4), {"milp": 0, "search": 0, "contiguous": 0}
    equal = 0
    for seed in range(seeds):
        trace = zipf_trace((12, 30, 6), 1.1, (window + 1) * 8, seed)
        found = {}
        for method in values:
            planning = Planning(2, 8, 3, objective="synchronised", method=method, design=FINE)
            own = Parameters(bound=Bound(rounds=0), synchronised=Synchronised(window=window))
            plans = list(islice(batch_plans(trace, planning, own), window))
            found[method] = sum(plan.partition.value for plan in plans)
            values[method] += found[method]
            if method == "milp":
                assert found[method] == sum(plan.partition.bound or 0 for plan in plans)
        assert found["milp"] <= found["search"]
        equal += found["milp"] == found["search"]
    tables.table("bagpipe-windows", "Rows at once of small windows").add(
        str(window), window=window, least=values["milp"], search_above=f"{values['search'] / values['milp'] - 1:.1%}",
        contiguous_above=f"{values['contiguous'] / values['milp'] - 1:.1%}", optimal=equal,
    )  # fmt: skip
