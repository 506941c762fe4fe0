"""Every collective at 1 KB, 1 MB, 64 MB and 1 GB: the sweep's choice over the bound, and over the best baseline.

Run with `pytest tests/benchmarks/test_taccl_baselines.py --tables FOLDER`, with `-k` for some of it, and with
`--limit-s S` for another time limit for the synthesis of the four sizes together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from result_tables import ResultTables

from planwright import SolveOptions
from planwright.collective import COLLECTIVES
from planwright.encodings.taccl import load_sketch
from planwright.encodings.taccl.baselines import Baselines
from planwright.encodings.taccl.cut_bound import any_cut_bound_s
from planwright.encodings.taccl.instances import with_instances
from planwright.encodings.taccl.sweep import Request, sweep
from planwright.encodings.taccl.sweep.request import larger_buffer
from planwright.errors import InputError
from planwright.topologies.files import load_topology

SIZES = {"1 KB": 10**3, "1 MB": 10**6, "64 MB": 64 * 10**6, "1 GB": 10**9}
CASES = {  # machine, nodes, sketch
    "ndv2 x 1": ("ndv2", 1, None),
    "ndv2 x 2": ("ndv2", 2, "ndv2-sk-1"),
    "dgx2 x 1": ("dgx2", 1, None),
    "dgx2 x 2": ("dgx2", 2, "dgx2-sk-1"),
}
LIMIT_S = 60.0
TITLE = "The sweep's choice, the bound for any chunks, and the best baseline, on the same replay"


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("keep_tables")
def test_no_size_is_served_slower_than_by_the_best_baseline(
    case: str, collective: str, tables: ResultTables, tmp_path: Path, limit_s: Callable[[float], float]
) -> None:
    machine, nodes, sketch = CASES[case]
    request = Request(
        load_topology(machine, nodes), collective, tuple(SIZES.values()), sketch=load_sketch(sketch) if sketch else None
    )
    try:
        request.problem(10**9, 1)
    except InputError as error:
        pytest.skip(f"can't be synthesised: {error}")
    outcome = sweep(request, SolveOptions(gap=0.02, time_limit_s=limit_s(LIMIT_S)), tmp_path)
    table = tables.table("taccl_baselines", TITLE)
    for title, row in zip(SIZES, outcome.rows, strict=True):
        table.add(
            f"{case} {collective} {title}",
            topology=case,
            collective=collective,
            size=title,
            plan=row.plan,
            instances=row.instances,
            time_us=_rounded(row.makespan_s, 1e6),
            to_bound=_rounded(row.ratio_to_bound),
            to_baseline=_rounded(row.ratio_to_baseline),
            synthesised_to_baseline=_rounded(row.synthesised_ratio),
            best_baseline=row.baseline,
            solve_s=_rounded(row.solve_s),
        )
    for row in outcome.rows:
        assert row.ratio_to_bound is not None
        assert row.ratio_to_bound >= 1 - 1e-9
        refused = {its["plan"] for its in outcome.refused}
        # A baseline that exceeds a limit of the runtime can't serve; the table has what it would be.
        assert row.ratio_to_baseline is not None
        assert row.ratio_to_baseline <= 1 + 1e-9 or row.baseline in refused


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("keep_tables")
def test_baselines_alone(case: str, collective: str, tables: ResultTables) -> None:
    machine, nodes, _ = CASES[case]
    topology = load_topology(machine, nodes)
    definition = COLLECTIVES[collective](topology.device_count, 1)
    library = Baselines(topology, definition)
    table = tables.table(
        "taccl_baselines_alone", "Baselines with 8 instances, as multiples of the bound for any chunks"
    )
    for title, size in SIZES.items():
        chunk_bytes = -(-size // larger_buffer(definition))
        bound_s = any_cut_bound_s(topology, definition, chunk_bytes)
        found = {its.name: its for its in library.of_size(chunk_bytes, with_instances(topology, 8))}
        ratios = {name: round(its.makespan_s / bound_s, 3) for name, its in found.items()}
        table.add(f"{case} {collective} {title}", topology=case, collective=collective, size=title, **ratios)
        assert min(ratios.values()) >= 1 - 1e-9


def _rounded(value: float | None, scale: float = 1.0) -> float | None:
    return None if value is None else round(value * scale, 3)
