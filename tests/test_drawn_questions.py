"""Questions full of zeros: every plan replays clean, and what is refused is refused in one line."""

from __future__ import annotations

from collections import Counter

import pytest
from compression_traces import small_trace
from drawn_questions import DRAWN, Question, drawn_questions
from examples import examples
from hypothesis import HealthCheck, given

from gapless.errors import InputError
from gapless.profiles.sparsity.index_sets import index_sets
from gapless.question.entry import entry
from gapless.solution import Status
from gapless.topologies.topology import Link, Topology


def outcome(system: str, question: Question) -> str:
    """What comes of a question: a status, or `refused`."""
    refusal = ""
    try:
        result = entry(system).solve(**question, threads=1)
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        return "refused"
    assert result.status is not Status.INVALID, result.report
    assert result.valid == (result.schedule is not None)
    return result.status.value


@pytest.mark.parametrize("system", DRAWN)
def test_no_plan_is_invalid(system: str) -> None:
    """With --thorough, of 2,000 questions; counts by outcome are printed with -s."""
    found: Counter[str] = Counter()

    @examples(250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(question=drawn_questions(system))
    def look(question: Question) -> None:
        found[outcome(system, question)] += 1

    look()
    print(system, dict(found))
    assert found["optimal"] + found["feasible"] >= 0.3 * found.total()


LINK_FREE_OF_BYTES = Topology("pair", (0, 1), (Link(0, 1, 1e-6, 0.0), Link(1, 0, 1e-6, 1e-9)))
ROWS = {"trace": "zipf", "trainers": 1, "latency": 0.0}
FOUND: list[tuple[str, Question, str]] = [
    ("taccl", {"topology": LINK_FREE_OF_BYTES, "collective": "alltoall", "size": 10**6, "chunks": 1}, "optimal"),
    ("oktopk", {"indices": index_sets([[[], []]], 10), "method": "exact"}, "optimal"),
    ("oktopk", {"indices": index_sets([[[], [3]]], 10), "latency": 0.0}, "optimal"),
    (
        "ranks",
        {"trace": small_trace(), "step_time": 0.0, "workers": 2, "bandwidth": 1e9, "phases": "epoch"},
        "infeasible",
    ),
    ("bagpipe", {**ROWS, "table_rows": (3, 9), "examples": 2, "batch_size": 1, "design": "replicated",
                 "placement": "same-network", "backward": 0.0}, "optimal"),
    ("bagpipe", {**ROWS, "table_rows": (40, 5), "examples": 7, "batch_size": 5, "design": "replicated",
                 "lookahead": 1, "placement": "colocated", "fetch_latency": 0.0, "backward": 0.0}, "optimal"),
    ("bagpipe", {**ROWS, "trainers": 2, "table_rows": (3, 9), "examples": 20, "batch_size": 2, "design": "lrpp",
                 "objective": "paper", "batches": 2, "trace_seed": 2, "dimension": 1, "placement": "colocated",
                 "fetch_latency": 0.0, "forward": 1e-3, "backward": 1e-3}, "optimal"),
    ("pipeline", {"profile": "uniform:f=10,b=0,w=8", "ranks": 4, "micro_batches": 8}, "feasible"),
    ("pipeline", {"profile": "uniform:f=0,b=0,w=0", "ranks": 2, "micro_batches": 2, "memory": 10**10}, "optimal"),
]  # fmt: skip


@pytest.mark.parametrize(("system", "question", "expected"), FOUND)
def test_what_was_drawn_once_stays_right(system: str, question: Question, expected: str) -> None:
    """Each had a traceback, or a plan that broke a rule."""
    assert outcome(system, question) == expected
