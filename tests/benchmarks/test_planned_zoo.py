"""The zoo of planned models: what is captured, whether bits are eager's, peaks, overheads, and seconds to plan.

`pytest tests/benchmarks/test_planned_zoo.py --tables FOLDER` trains each model of `planned_zoo` in a process of its
own, on one thread, with 2 s a solve. What is asserted: nothing but a line comes from a model that isn't captured, what
is captured has eager's bits or is off by no more than `DIFFERS` says, and where the loss is inside, measured peaks keep
to plans, and plans to budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from planned_zoo import NAMES, cells, counts, is_close, rows

LEAST_CAPTURED = 36


@pytest.mark.usefixtures("keep_tables")
def test_models_train_by_plans(
    benchmark: Any, tables: ResultTables, sized: Callable[[list[str], list[str]], list[str]]
) -> None:
    table = tables.table("planned_zoo", "Models that train by plans; peaks in KB above parameters and arguments")
    totals = tables.table("planned_zoo_counts", "How many of them")
    names = sized(list(NAMES), ["Two towers", "Experts, routed by data"])

    def run_all() -> None:
        found = []
        for row in rows(names):
            found.append(row)
            table.add(str(row["model"]), **cells(row))
            if row["captured"] == "yes":
                assert is_close(row), row
                peaks = [float(str(row[f"{what}_KB"])) for what in ("measured", "plan", "budget")]
                assert row["loss"] == "outside" or peaks == sorted(peaks)
        counted = counts(found)
        totals.add("all", **counted)
        assert not counted["traceback"]
        assert counted["captured"] >= min(LEAST_CAPTURED, len(names) - 1)

    benchmark.pedantic(run_all, rounds=1, iterations=1)
