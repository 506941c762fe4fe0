"""Every question that the portfolio of TACCL was measured on, asked again: no plan is over 1 % slower than it once was.

`portfolio_before.json` holds what our own former version found: makespan and processor seconds, one thread. Questions
without a sketch are eleven topologies x five collectives x three sizes; with one, every shipped sketch at its own size.
Each is asked on the command line in a process of its own, so that its processor time includes that of its workers.

Run with `pytest tests/benchmarks/test_taccl_portfolio.py --tables FOLDER`; some of it with `-k "torus and alltoall"`,
`-k sk-`, `-k "not sk-"`; with another time limit with `--limit-s S`.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT
from result_tables import ResultTables

RECORD: dict[str, Any] = json.loads((Path(__file__).parent / "portfolio_before.json").read_text(encoding="utf-8"))
MOST_SLOWER = 1.01
TOGETHER = "all of these"
TITLE = "Plans of TACCL's portfolio, and those of our former version at the same time limit"


def ask(words: list[str], limit_s: float) -> tuple[dict[str, Any], float]:
    """The JSON object of `gapless solve taccl`, and the processor seconds that it took with its workers."""
    command = [sys.executable, "-m", "gapless", "solve", "taccl", *words]
    options = ["--json", "--quiet", "--threads", "1", "--time-limit", str(limit_s)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), cpu_s


@pytest.mark.parametrize("question", RECORD["questions"])
@pytest.mark.usefixtures("keep_tables")
def test_no_plan_is_slower_than_it_was(question: str, tables: ResultTables, limit_s: Callable[[float], float]) -> None:
    before = RECORD["questions"][question]
    answer, cpu_s = ask(before["words"], limit_s(RECORD["limit_s"]))
    assert answer["valid"]
    ratio = answer["makespan_s"] / before["makespan_s"]
    tables.table("taccl_portfolio", TITLE).add(
        question,
        question=question,
        before_us=round(1e6 * before["makespan_s"], 2),
        now_us=round(1e6 * answer["makespan_s"], 2),
        now_over_before=round(ratio, 4),
        bound_us=round(1e6 * answer["bound_s"], 2),
        before_cpu_s=before["cpu_s"],
        now_cpu_s=round(cpu_s, 1),
        method_before=before["method"],
        method_now=answer["method"],
    )
    assert ratio <= MOST_SLOWER


@pytest.mark.usefixtures("keep_tables")
def test_all_of_them_together(tables: ResultTables) -> None:
    """The last row of the table: processor seconds in all, and the mean of the ratios (geometric)."""
    table = tables.table("taccl_portfolio", TITLE)
    rows = [row for key, row in table.rows.items() if key in RECORD["questions"]]
    if not rows:
        pytest.skip("no question was asked")
    sums = {name: round(sum(float(row[name] or 0.0) for row in rows), 1) for name in ("before_cpu_s", "now_cpu_s")}
    mean = math.exp(sum(math.log(float(row["now_over_before"] or 1.0)) for row in rows) / len(rows))
    table.add(TOGETHER, question=TOGETHER, now_over_before=round(mean, 4), **sums)
    assert mean <= MOST_SLOWER
