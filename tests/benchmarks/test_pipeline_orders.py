"""Orders of pipelines: the field's schedules, the heuristic, what is found and what is proven, with processor seconds.

`pytest tests/benchmarks/test_pipeline_orders.py --tables FOLDER` writes the table of docs/pipeline.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from result_tables import ResultTables
from tiny_pipelines import trial

from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.options import Deadline, SolveOptions

TITLE = "Step times of pipelines: forward 10, input gradient 12, weight gradient 8, hop 2"

# Ranks, micro-batches, in flight, placement; at most so long; whether it is proven.
CASES = [
    (4, 8, 5, "linear", 286, True),
    (4, 8, 4, "linear", 306, True),
    (4, 8, 6, "linear", 278, True),
    (4, 8, 8, "linear", 276, True),
    (8, 16, 8, "linear", 634, True),
    (8, 16, 9, "linear", 604, True),
    (8, 16, 10, "linear", 590, True),
    (8, 16, 12, "linear", 574, True),
    (16, 8, 8, "linear", 574, True),
    (4, 32, 5, "linear", 1006, True),
    (8, 32, 9, "linear", 1090, False),
    (16, 64, 16, "linear", 2250, True),
    (16, 64, 20, "linear", 2174, False),
    (4, 8, 4, "v", 281, False),
    (8, 16, 8, "v", 584, False),
    (4, 16, 4, "looped", 539, False),
]


@pytest.mark.parametrize(("ranks", "micro_batches", "in_flight", "placement", "most_s", "is_proven"), CASES)
@pytest.mark.usefixtures("keep_tables")
def test_orders(
    ranks: int, micro_batches: int, in_flight: int, placement: str, most_s: float, is_proven: bool,
    tables: ResultTables, limit_s: Callable[[float], float],
) -> None:  # fmt: skip
    question, stages = trial(ranks, micro_batches, in_flight, placement)
    options = SolveOptions(time_limit_s=limit_s(600.0))
    begin_s = time.process_time()
    ordered = best_orders(question, (), stages, options, Deadline(options), DEFAULTS)
    cpu_s = time.process_time() - begin_s
    assert ordered.best is not None
    found_s = ordered.best.timeline.step_s
    known = {candidate.method: candidate.timeline.step_s for candidate in ordered.known}
    table = tables.table("pipeline_orders", TITLE)
    table.add(
        f"P{ranks} M{micro_batches} {placement} {in_flight}", ranks=ranks, micro_batches=micro_batches,
        placement=placement, in_flight=in_flight,
        schedule_of_the_field=min((known[name] for name in known if name != "zero-bubble"), default=None),
        heuristic=known["zero-bubble"], found=found_s, bound=ordered.bound_s, proven=str(ordered.proven),
        method=ordered.best.method, cpu_s=round(cpu_s, 1),
    )  # fmt: skip
    assert ordered.bound_s <= found_s * (1 + 1e-9)
    assert ordered.proven == is_proven
    assert found_s <= most_s
