"""300 random networks of 3 to 5 ranks, every collective: bounds, an independent exact model and plans don't contradict.

The table has, for each collective, how much of the optimum the bounds reach: the general one, and that for the chunks.
Run with `pytest tests/benchmarks/test_taccl_exact.py --tables FOLDER`.
"""

from __future__ import annotations

import pytest
from exact_bounds import Compared, compare
from result_tables import ResultTables

WORK = 3.0
"""CP-SAT's deterministic time for each, some seconds."""
BLOCK = 9
TITLE = "Bounds over the best that an exact model finds, 300 random networks of 3 to 5 ranks"


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
@pytest.mark.usefixtures("keep_tables")
def test_no_bound_contradicts_the_truth(first: int, tables: ResultTables) -> None:
    found: list[Compared] = []
    for seed in range(first, min(first + BLOCK, 300)):
        found.append(compare(seed, WORK))
        assert found[-1].in_order, (seed, found[-1])
    table = tables.table("taccl_exact", TITLE)
    for one in found:
        row = table.rows.get(one.collective, {})
        count = int(row.get("networks", 0) or 0)
        ratios = {"any_chunking": one.any_chunking / one.best, "any_grouping": one.any_grouping / one.best}
        means = {
            name: round((float(row.get(name, 0.0) or 0.0) * count + ratio) / (count + 1), 4)
            for name, ratio in ratios.items()
        }
        proven = int(row.get("proven", 0) or 0) + one.proven
        table.add(one.collective, collective=one.collective, networks=count + 1, proven=proven, **means)
