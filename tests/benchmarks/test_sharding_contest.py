"""The contest's instances within the contest's limits, beside what its winners and XLA reached on eight cores.

Costs and bounds are shares of the best cost that anybody has published. Run with
`pytest tests/benchmarks/test_sharding_contest.py --tables FOLDER`; with `--large` also those that take minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_tables import ResultTables

import gapless
from gapless.encodings.sharding.instance import read_instance
from gapless.encodings.sharding.problem import Problem
from gapless.options import SolveOptions

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "sharding"
KNOWN = DATA / "known.json"
TITLE = "The contest's instances: cost and bound, as shares of the best published cost"
CORES = 2
QUICK = ("B", "G")
"""Instances that are solved in seconds."""


def known(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KNOWN.read_text())["instances"][name]
    return found


@pytest.mark.skipif(not KNOWN.exists(), reason=f"the contest's instances are not at {DATA}")
@pytest.mark.shortest("B")
@pytest.mark.parametrize("name", ["A", "B", "C", "G", "M", "N", "S"])
@pytest.mark.usefixtures("keep_tables")
def test_no_bound_is_above_what_somebody_reached(
    name: str, tables: ResultTables, limit_s: Callable[[float], float], request: pytest.FixtureRequest
) -> None:
    if name not in QUICK and not request.config.getoption("--large"):
        pytest.skip("takes minutes: --large")
    row = known(name)
    path, allowed_s = DATA / f"asplos-2025-iopddl-{name}.json.gz", limit_s(row["contest_limit_s"])
    result = gapless.solve(Problem(read_instance(path)), SolveOptions(time_limit_s=allowed_s, threads=CORES))
    assert result.valid
    solution, best = result.solution, min(row["best_team"], row["best_later"])
    assert solution.bound is not None
    assert solution.objective is not None
    assert solution.bound <= best, "nobody can be below a bound"
    assert solution.objective >= row["lower_bound"] * (1 - 1e-9), "nor below a published one"
    shares = {
        who: round(value / best, 4)
        for who, value in (
            ("first", row["first_place"]), ("second", row["second_place"]), ("third", row["third_place"]),
            ("XLA", row["xla"]), ("gapless", solution.objective), ("bound", solution.bound),
            ("published bound", row["lower_bound"]),
        ) if value is not None
    }  # fmt: skip
    table = tables.table("sharding_contest", TITLE)
    table.add(name, instance=name, limit_s=allowed_s, **shares, gap=f"{solution.gap:.2%}")
