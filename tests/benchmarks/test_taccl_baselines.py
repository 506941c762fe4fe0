"""Every collective at 1 KB, 1 MB, 64 MB and 1 GB on every topology: the sweep's choice, the bound, the best baseline.

`pytest tests/benchmarks/test_taccl_baselines.py -k no_size --limit-s 8 --tables FOLDER` takes about an hour on one
core. `--limit-s S` is for the four sizes of a case together; a case that takes far longer is broken off. The tables are
written after each case, with a row for what went wrong too, and the rows of earlier runs are kept: a run that was
broken off goes on with `-k` for what is missing. `--large` takes the torus of 64 ranks, too; with `--programs` what the
runtime refuses serves no size, and takes minutes to find out for plans in many pieces.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from result_tables import ResultTable, ResultTables

from gapless import SolveOptions
from gapless.encodings.taccl import load_sketch
from gapless.encodings.taccl.baselines.library import Baselines
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.sweep.candidates import Lowering
from gapless.encodings.taccl.sweep.request import Request, larger_buffer, with_instances
from gapless.encodings.taccl.sweep.run import sweep
from gapless.encodings.taccl.sweep.table import Outcome
from gapless.errors import InputError
from gapless.ir.collective import COLLECTIVES
from gapless.topologies.files import load_topology

SIZES = {"1 KB": 10**3, "1 MB": 10**6, "64 MB": 64 * 10**6, "1 GB": 10**9}
MACHINES = ("dgx1", "ndv2", "dgx2", "dgx-a100", "dgx-h100", "mi250", "mi300x")
NETWORKS = ("ring:8", "line:8", "hub-and-spoke:8", "torus:4x4", "mesh:3x5", "hypercube:4", "fat-tree:k=4",
            "dragonfly:a=4,p=2,h=2")  # fmt: skip
LARGE = ("torus:4x4x4",)
SKETCHES = {("ndv2", 2): "ndv2-sk-1", ("dgx2", 2): "dgx2-sk-1"}
CASES = {  # machine, nodes, sketch
    **{f"{name} x {nodes}": (name, nodes, SKETCHES.get((name, nodes))) for name in MACHINES for nodes in (1, 2)},
    **{name: (name, 1, None) for name in (*NETWORKS, *LARGE)},
}
LIMIT_S = 60.0
MOST_TIMES_THE_LIMIT = 10
"""A case that takes longer than its limit this many times over is broken off; files take time beyond the limit."""
TITLE = "The sweep's choice, the bound for any chunks, and the best baseline, on the same replay"


@pytest.fixture
def only_tables(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """No programs, unless they are asked for: the sweep then chooses as if the runtime took everything."""
    if not pytestconfig.getoption("--programs"):
        monkeypatch.setattr(Lowering, "program", lambda *_: None)


@pytest.fixture
def large(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--large"))


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("keep_tables", "only_tables")
def test_no_size_is_served_slower_than_by_the_best_baseline(
    case: str, collective: str, tables: ResultTables, tmp_path: Path, limit_s: Callable[[float], float], large: bool
) -> None:
    machine, nodes, sketch = CASES[case]
    if machine in LARGE and not large:
        pytest.skip("it takes minutes: --large")
    request = Request(
        load_topology(machine, nodes).without_switch_groups(),
        collective,
        tuple(SIZES.values()),
        sketches=(load_sketch(sketch) if sketch else None,),
    )
    try:
        request.problem(10**9, 1)
    except InputError as error:
        pytest.skip(f"can't be synthesised: {error}")
    table, limit = tables.table("taccl_baselines", TITLE), limit_s(LIMIT_S)
    try:
        with _alarm(MOST_TIMES_THE_LIMIT * limit):
            outcome = sweep(request, SolveOptions(gap=0.02, time_limit_s=limit), tmp_path)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        table.add(f"{case} {collective}", topology=case, collective=collective, failed=what)
        raise
    table.rows.pop(f"{case} {collective}", None)  # an earlier run's failure
    _fill(table, case, collective, outcome)
    for row in outcome.rows:
        assert row.ratio_to_bound is not None
        assert row.ratio_to_bound >= 1 - 1e-9
        refused = {its.plan for its in outcome.refused}
        # A baseline that exceeds a limit of the runtime can't serve; the table has what it would be.
        if row.ratio_to_baseline is not None:  # else no baseline was reached in time
            assert row.ratio_to_baseline <= 1 + 1e-9 or row.baseline in refused


def _fill(table: ResultTable, case: str, collective: str, outcome: Outcome) -> None:
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


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` in the block after that time: so that one case can't hold up all that follow."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"broken off after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("keep_tables")
def test_baselines_alone(case: str, collective: str, tables: ResultTables, large: bool) -> None:
    machine, nodes, _ = CASES[case]
    if machine in LARGE and not large:
        pytest.skip("it takes minutes: --large")
    topology = load_topology(machine, nodes).without_switch_groups()
    definition = COLLECTIVES[collective](topology.device_count, 1)
    library = Baselines(topology, definition)
    table = tables.table(
        "taccl_baselines_alone", "Baselines with 8 instances, as multiples of the bound for any chunks"
    )
    for title, size in SIZES.items():
        chunk_bytes = -(-size // larger_buffer(definition))
        bound_s = bounds_of(Chunked(topology, definition, chunk_bytes)).any_chunking_s
        found = {its.name: its for its in library.of_size(chunk_bytes, with_instances(topology, 8))}
        ratios = {name: round(its.makespan_s / bound_s, 3) for name, its in found.items()}
        table.add(f"{case} {collective} {title}", topology=case, collective=collective, size=title, **ratios)
        assert min(ratios.values()) >= 1 - 1e-9


def _rounded(value: float | None, scale: float = 1.0) -> float | None:
    return None if value is None else round(value * scale, 3)
