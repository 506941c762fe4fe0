"""How long synthesis takes on the published cases, beside Table 5.3; every answer is asserted while it is timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked, load_sketch, read_sketch
from gapless.encodings.taccl.programs.export import to_program
from gapless.io.taccl_ef import run
from gapless.recipe import Result
from gapless.topologies.files import load_topology, read_node

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "taccl"

CASES = {  # profile, sketch, input bytes, ratio to reach, seconds of Table 5.3 (Gurobi, all three stages)
    "ndv2-sk-1": ("topo-ndv2-1MB.json", "sk1-ndv2-n2", 1_000_000, 1.02, 2.6),
    "dgx2-sk-1": ("topo-dgx2-1MB.json", "sk1-dgx2-n2", 2_000_000, 1.05, 35.8),
    "dgx2-sk-2": ("topo-dgx2-1KB.json", "sk2-dgx2-n2", 1_000, 1.06, 11.3),
}
"""Ratios are to the bound for any grouping, and leave a hundredth or two above what is reached today."""


def within_class(result: gapless.Result) -> float:
    """The plan's time over the bound of the narrowest class that the question keeps to: the sketch's chunks."""
    assert result.report is not None
    return result.report.makespan_s / result.solution.bounds[-1].value


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Chunked]:
    if not DATA.is_dir():
        pytest.skip(f"the published profiles are not at {DATA}")
    profile, sketch, size, _, _ = CASES[request.param]
    profiles = json.loads((DATA / "taccl_profiles.json").read_text())["profiles"]
    values = next(entry["values"] for entry in profiles if entry["file"] == profile)
    (tmp_path / profile).write_text(json.dumps(values))
    (tmp_path / "sketch.json").write_text(
        json.dumps(json.loads((DATA / "taccl_sketches.json").read_text())["sketches"][sketch])
    )
    parsed = read_sketch(tmp_path / "sketch.json")
    return request.param, Chunked.of(read_node(tmp_path / profile).cluster(2), "allgather", size, parsed)


def test_synthesis_of_the_published_cases(benchmark: Callable[..., Result], case: tuple[str, Chunked]) -> None:
    judge(benchmark, *case)


@pytest.mark.parametrize("name", CASES)
def test_synthesis_on_the_links_that_gapless_ships(benchmark: Callable[..., Result], name: str) -> None:
    """The same sketches on other measurements of the same machines: they need no other data."""
    judge(benchmark, name, Chunked.of(load_topology(name[:4], 2), "allgather", CASES[name][2], load_sketch(name)))


def judge(benchmark: Callable[..., Result], name: str, problem: Chunked) -> None:
    """Solve three times, and hold the plan against its bound."""
    result = benchmark.pedantic(gapless.solve, args=(problem,), rounds=3, warmup_rounds=1)  # type: ignore[attr-defined]
    _, _, _, ratio, table_s = CASES[name]
    assert result.valid
    assert within_class(result) <= ratio * (1 + 1e-9)
    info: dict[str, Any] = benchmark.extra_info  # type: ignore[attr-defined]
    info |= {"ratio": within_class(result), "table_5_3_s": table_s, "speedup": table_s / result.solution.wall_s}
    claim = f"bound {result.solution.bound:.4g} s, plan {result.report.makespan_s:.4g} s, ratio {info['ratio']:.3f}"
    print(f"\n{name}: {claim}, synthesis {result.solution.wall_s:.2f} s, Table 5.3 {table_s} s")
    info |= {f"stage_{stage}_s": duration_s for stage, duration_s in result.details.get("stages", {}).items()}


@pytest.mark.parametrize("instances", [1, 8])
def test_lowering_to_taccl_ef(benchmark: Callable[..., Any], case: tuple[str, Chunked], instances: int) -> None:
    _, problem = case
    result = gapless.solve(problem)
    assert result.schedule is not None
    program = benchmark.pedantic(  # type: ignore[attr-defined]
        to_program, args=(result.schedule, problem.collective), kwargs={"instances": instances}, rounds=2
    )
    assert run(program, problem.collective, slots=2).is_ok


def test_allgather_on_80_gpus(benchmark: Callable[..., Result], limit_s: Callable[[float], float]) -> None:
    """Ten NDv2 nodes: the thesis says under 8 minutes."""
    options = SolveOptions(gap=0.05, time_limit_s=limit_s(60.0))
    problem = Chunked.of(load_topology("ndv2", 10), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    result = benchmark.pedantic(gapless.solve, args=(problem, options), rounds=2)  # type: ignore[attr-defined]
    assert result.valid
    assert within_class(result) <= 1.05
