"""Times to the first and to the next token of a model of 4 layers of 8 heads, on one core: the full model with the
attention that transformers takes by default, the plan's map for all requests, and heads clustered by request.

Times are of the processor: those of the clock are of a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from extras import needs_transformers
from result_tables import ResultTables

import gapless
from gapless.encodings.chai.commands.latency import execute_latency
from gapless.encodings.chai.question import LatencyQuestion
from gapless.options import SolveOptions
from gapless.system import Session

TITLE = "Times to the first and to the next token, 4 layers of 8 heads of 64, 21.4 % of the cache saved, one core"
CASES = [("float32", 1, length) for length in (128, 512, 1024, 2048, 4096)]
CASES += [("bfloat16", 1, length) for length in (128, 512, 1024, 2048, 4096)]
CASES += [("float32", 4, length) for length in (128, 1024)]


@needs_transformers
@pytest.mark.parametrize(("dtype", "batch", "length"), CASES)
def test_a_request_s_cache_is_the_plan_s(
    tables: ResultTables, keep_tables: None, tmp_path: Path, sized: Callable[[int, int], int], dtype: str, batch: int,
    length: int,
) -> None:  # fmt: skip
    plan = str(tmp_path / "plan.json")
    gapless.chai.solve("synthetic:layers=4,heads=8,dimension=64", kv_saving=0.214).save(plan)
    question = LatencyQuestion(
        "hf:small-llama", plan, lengths=(length,), batches=(batch,), dtypes=(dtype,), repeats=sized(3, 1),
        new_tokens=sized(17, 2),
    )  # fmt: skip
    rows = execute_latency(question, Session(SolveOptions(), print)).data["rows"]
    assert rows[1]["cache_bytes"] == rows[2]["cache_bytes"] < 0.8 * rows[0]["cache_bytes"]
    found = {
        f"{row['heads']} {kind}": round(1000 * row[f"{kind}_token_cpu_s"], 2)
        for kind in ("first", "next") for row in rows
    }  # fmt: skip
    clustering = round(1000 * rows[2]["clustering_cpu_s"], 2)
    table = tables.table("chai_latency", TITLE)
    table.add(f"{dtype} {batch} {length}", dtype=dtype, batch=batch, length=length, **found, clustering=clustering)
