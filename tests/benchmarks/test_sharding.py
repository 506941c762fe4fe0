"""Seven instances of the ASPLOS 2025 contest, each within its limit on two cores, beside what everybody reached.

`pytest tests/benchmarks/test_sharding.py --tables FOLDER` writes the table of docs/sharding.md; the limit holds for
the whole command, reading and writing included. Costs are evaluated on the contest's file by plain Python.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from result_tables import ResultTables

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "sharding"
TITLE = "The seven instances at hand: cost and bound within the contest's limit, on two cores"
CORES = 2
WRITING_S, SHARE = 4.0, 0.88
"""Of the limit, what is kept for reading and writing."""


def evaluated(problem: dict, choices: list[int]) -> tuple[int, int]:
    """Cost and peak by the contest's rules."""
    nodes, edges = problem["nodes"], problem["edges"]
    cost = sum(row[k] for row, k in zip(nodes["costs"], choices, strict=True))
    for (v, w), table in zip(edges["nodes"], edges["costs"], strict=True):
        cost += table[choices[v] * len(nodes["costs"][w]) + choices[w]]
    change: dict[int, int] = {}
    for (start, end), row, k in zip(nodes["intervals"], nodes["usages"], choices, strict=True):
        if start < end:
            change[start] = change.get(start, 0) + row[k]
            change[end] = change.get(end, 0) - row[k]
    used = peak = 0
    for at in sorted(change):
        used += change[at]
        peak = max(peak, used)
    return cost, peak


@pytest.mark.shortest("B")
@pytest.mark.parametrize("letter", ["B", "G", "A", "C", "M", "N", "S"])
@pytest.mark.usefixtures("keep_tables")
def test_instances_of_the_contest(
    letter: str, tables: ResultTables, limit_s: Callable[[float], float], tmp_path: Path
) -> None:
    file = DATA / f"asplos-2025-iopddl-{letter}.json.gz"
    if not file.is_file():
        pytest.skip("needs ../shared/data/sharding, the contest's instances")
    known = json.loads((DATA / "known.json").read_text())["instances"][letter]
    whole_s = limit_s(known["contest_limit_s"])
    command = [
        *(sys.executable, "-m", "gapless", "solve", "sharding", "--instance", str(file), "--json", "--quiet"),
        *("--time-limit", f"{max(SHARE * whole_s - WRITING_S, 0.7 * whole_s):g}", "-o", str(tmp_path / "plan.json")),
    ]
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    begin_s = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    took_s = time.monotonic() - begin_s
    assert done.returncode == 0, done.stderr[-2000:]
    found, problem = json.loads(done.stdout), json.loads(gzip.decompress(file.read_bytes()))["problem"]
    choices = json.loads((tmp_path / "plan.json").read_text())["decision"]["choices"]
    cost, peak = evaluated(problem, choices)
    assert cost == found["objective"]
    assert peak == found["peak_bytes"] <= problem["usage_limit"]
    best = round(min(known["best_team"], known["best_later"]))
    assert found["bound"] <= min(cost, best)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    table = tables.table("sharding_contest", TITLE)
    table.add(
        letter, cost=cost, cost_to_best=f"{cost / best:.4f}", bound_to_best=f"{found['bound'] / best:.4f}",
        published_bound=f"{known['lower_bound'] / best:.4f}", gap=f"{100 * found['gap']:.2f} %",
        first=_ratio(known["first_place"], best), second=_ratio(known["second_place"], best),
        third=_ratio(known["third_place"], best), xla=_ratio(known["xla"], best), seconds=round(took_s, 1),
        most_mb_so_far=used.ru_maxrss // 1000, status=found["status"],
    )  # fmt: skip


def _ratio(cost: float | None, best: int) -> str:
    """Of a record to the best known; a plan with forbidden choices is none."""
    return "-" if cost is None or cost > 10**17 else f"{cost / best:.3f}"
