"""Rivals of MONeT and small tables of the thesis: Gist and the least memory (Table 4.3), GoogLeNet's ablation (Figure
4.5), 3D-UNet (Figure A.2), solver times of MONeT-NoOp and Checkmate (Table 4.4), plans at another batch size.

`pytest tests/benchmarks/test_monet_rivals.py --tables FOLDER`, on one thread, 30 s (`--limit-s`) for each solve.
Overheads are over a step that keeps everything on 16 GiB with the fastest convolutions that fit (those of carried plans
over a step without a budget), memory ratios over what the network's step takes without any saving.

What is asserted: every plan replays clean within its budget. More zeros never take Gist more memory, and cuSPARSE's
rate is never faster than the memory's. No ablation beats the bound of full MONeT, no plan the bound of its question,
and no carried plan the bound of its batch.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
from measured_monet import DEVICE_BYTES, FULL, GIB, MODES, TITLES, commercial, measured
from result_tables import ResultTables

import gapless
from gapless import SolveOptions, Status
from gapless.checker import Report
from gapless.encodings.monet import Problem
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Encoding, Parameters
from gapless.encodings.monet.study import checkmate
from gapless.encodings.monet.study.baselines import eager
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build
from gapless.recipe import Result
from gapless.solvers.registry import solve_model

LIMIT_S = 30.0
CUSPARSE = 2207744 * 256 * 4 / 0.144
"""Bytes a second of `cusparseSdense2csr`, by the thesis's one measurement."""
THESIS = {  # batch, Gist's memory ratio and overhead, MONeT's, and the budget in GiB that is that ratio of Table 4.2
    "vgg16": (176, 0.76, 44.34, 0.39, 9.11, 5.5),
    "resnet50": (184, 0.58, 105.69, 0.33, 11.94, 5),
    "googlenet": (320, 0.52, 35.94, 0.33, 15.77, 5),
    "mobilenet_v2": (256, 0.69, 153.98, 0.34, 8.80, 5),
    "unet": (11, 0.73, 38.26, 0.35, 11.51, 5),
}
MEASURED = {"vgg16": "vgg16_176", "resnet50": "resnet50_184", "mobilenet_v2": "mobilenet_v2_272", "unet": "un_11"}
Limit = Callable[[float], float]


def base_s(graph: TrainingGraph) -> float:
    return evaluate(graph, eager(graph, DEVICE_BYTES)).cost_s


def overhead(report: Report | None, least_s: float) -> str:
    return "none" if report is None else f"{100 * (report.makespan_s / least_s - 1):.1f}"


def solved(problem: Problem, limit_s: float, gap: float = 0.005) -> Result:
    result = gapless.solve(problem, SolveOptions(gap=gap, time_limit_s=limit_s, threads=1))
    if result.schedule is not None:
        assert result.valid
        assert result.report.peak_bytes[0] <= problem.budget_bytes
        assert result.solution.bound <= result.solution.objective * (1 + 1e-9)
    return result


def gist(graph: TrainingGraph, zeros: float, csr_bytes_per_s: float) -> Report:
    parameters = Parameters(encoding=Encoding(zeros=(zeros,), csr_bytes_per_s=csr_bytes_per_s))
    result = gapless.solve(Problem(graph, DEVICE_BYTES, method="gist"), parameters=parameters)
    assert result.valid
    return result.report


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("kind", ["estimated", "measured"])
@pytest.mark.parametrize("name", THESIS)
def test_gist_saves_memory_and_costs_time(tables: ResultTables, name: str, kind: str) -> None:
    batch, memory, cost, *_ = THESIS[name]
    if kind == "measured" and name not in MEASURED:
        pytest.skip("there is no measured file of this network")
    graph = build(name, batch) if kind == "estimated" else measured(f"{MEASURED[name]}_{FULL}")
    whole_bytes, least_s = peak_without_saving_bytes(graph), base_s(graph)
    half, most = gist(graph, 0.5, 0.0), gist(graph, 0.9, 0.0)
    slow = gist(graph, 0.5, CUSPARSE)
    tables.table("monet_gist", "Gist's memory and overhead (Table 4.3)").add(
        f"{name}-{kind}", network=name, costs=kind, memory=round(half.peak_bytes[0] / whole_bytes, 2),
        memory_90=round(most.peak_bytes[0] / whole_bytes, 2), thesis=memory, bandwidth=overhead(half, least_s),
        cusparse=overhead(slow, least_s), thesis_overhead=cost,
    )  # fmt: skip
    assert most.peak_bytes[0] <= half.peak_bytes[0]
    assert half.makespan_s <= slow.makespan_s


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("kind", ["estimated", "measured"])
@pytest.mark.parametrize("name", THESIS)
def test_overhead_at_the_least_memory_of_the_thesis(tables: ResultTables, limit_s: Limit, name: str, kind: str) -> None:
    batch, _, _, memory, cost, budget_gib = THESIS[name]
    if kind == "measured" and name not in MEASURED:
        pytest.skip("there is no measured file of this network")
    graph = build(name, batch) if kind == "estimated" else measured(f"{MEASURED[name]}_{FULL}")
    result = solved(Problem(graph, int(budget_gib * GIB)), limit_s(LIMIT_S))
    least = result.details.get("least_budget_bound_bytes")
    tables.table("monet_points", "Overhead at the least memory of Table 4.3").add(
        f"{name}-{kind}", network=name, costs=kind, GiB=budget_gib,
        ratio=round(budget_gib * GIB / peak_without_saving_bytes(graph), 2), thesis_ratio=memory,
        overhead=overhead(result.report, base_s(graph)), thesis=cost,
        least_GiB=None if least is None else round(least / GIB, 2),
    )  # fmt: skip


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("budget", ["0.53x", "8GiB"])
def test_googlenet_needs_all_choices(tables: ResultTables, limit_s: Limit, budget: str) -> None:
    graph = build("googlenet", 320)
    methods = (*(mode for mode in MODES if mode != "monet"), "auto")
    asked = {method: gapless.monet.problem(graph, budget=budget, method=method) for method in methods}
    found = {method: solved(problem, limit_s(LIMIT_S)) for method, problem in asked.items()}
    cells = {method: overhead(result.report, base_s(graph)) for method, result in found.items()}
    tables.table("monet_googlenet", "Overhead of GoogLeNet's ablations (Figure 4.5)").add(
        budget, budget=budget, **cells
    )
    best = found["auto"]
    assert best.report is not None
    assert all(best.solution.bound <= its.solution.objective for its in found.values() if its.report is not None)


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("share", [0.54, 0.62, 0.81])
def test_unet_in_three_dimensions(tables: ResultTables, limit_s: Limit, share: float) -> None:
    graph = build("unet_3d", 22)
    whole_bytes, least_s = peak_without_saving_bytes(graph), base_s(graph)
    result = solved(Problem(graph, int(share * whole_bytes)), limit_s(2 * LIMIT_S))
    needed = result.details.get("least_budget_bound_bytes")
    tables.table("monet_unet_3d", "Overhead of 3D-UNet at batch 22 (Figure A.2)").add(
        f"{share}", share=share, GiB=round(share * whole_bytes / GIB, 2), overhead=overhead(result.report, least_s),
        bound=f"{100 * (result.solution.bound / least_s - 1):.1f}",
        least_share=None if needed is None else round(needed / whole_bytes, 2),
    )  # fmt: skip
    assert (result.report is None) == (share < 0.55), "the least budget is proven to be above 0.54"


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("budget_gib", [5, 6, 7, 8, 9, 10])
@pytest.mark.parametrize("model", TITLES)
def test_time_to_five_percent_without_operator_choices(
    tables: ResultTables, limit_s: Limit, model: str, budget_gib: int
) -> None:
    graph = measured(f"{model}_{MODES['noop'][0]}")
    before_s = cpu_s()
    result = solved(Problem(graph, budget_gib * GIB), limit_s(2 * LIMIT_S), gap=0.05)
    taken_s = cpu_s() - before_s
    theirs = commercial(model, float(budget_gib), "noop").to_5_percent_s
    is_there = result.report is not None and result.solution.gap is not None and result.solution.gap <= 0.05
    tables.table("monet_noop_times", "Processor seconds of MONeT-NoOp to 5 % (Table 4.4)").add(
        f"{model}-{budget_gib}", graph=TITLES[model], GiB=budget_gib, theirs=theirs, cpu_s=round(taken_s, 1),
        found="yes" if is_there else "impossible" if result.status is Status.INFEASIBLE else "no",
    )  # fmt: skip


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("budget_gib", [8, 9, 10])
@pytest.mark.parametrize("model", ["vgg16_176", "un_11"])
def test_time_to_five_percent_of_checkmates_program(
    tables: ResultTables, limit_s: Limit, model: str, budget_gib: int
) -> None:
    graph = checkmate.single_choice(measured(f"checkmate_{model}_normal"))
    program = checkmate.encode(graph, budget_gib * GIB)
    before_s = cpu_s()
    options = SolveOptions(gap=0.05, time_limit_s=limit_s(5 * LIMIT_S), threads=1)
    solution = solve_model(program.milp, options, "highs")
    tables.table("monet_checkmate_times", "Processor seconds of Checkmate's program in HiGHS to 5 % (Table 4.4)").add(
        f"{model}-{budget_gib}", graph=TITLES[model], GiB=budget_gib, cpu_s=round(cpu_s() - before_s, 1),
        gap=None if solution.gap is None else round(100 * solution.gap, 1), status=solution.status.value,
    )  # fmt: skip
    assert solution.bound is None or solution.objective is None or solution.bound <= solution.objective * (1 + 1e-6)


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("share", [0.5, 0.75, 1.25])
@pytest.mark.parametrize("name", ["resnet50", "unet", "vgg16"])
def test_plans_are_carried_to_another_batch(tables: ResultTables, limit_s: Limit, name: str, share: float) -> None:
    batch = THESIS[name][0]
    plan = _plan(name, batch, limit_s(LIMIT_S))
    other = max(1, round(share * batch))
    graph = build(name, other)
    budget_bytes = int(0.52 * peak_without_saving_bytes(graph))  # parameters don't shrink with the batch
    carried = solved(gapless.monet.problem(graph, budget=budget_bytes, carry=plan), 10.0)
    fresh = solved(Problem(graph, budget_bytes), limit_s(LIMIT_S))
    needed = carried.details.get("needed_bytes", None if carried.report is None else carried.report.peak_bytes[0])
    least_s = carried.details.get("unlimited_s", fresh.details["unlimited_s"])  # not every batch fits 16 GiB
    tables.table("monet_carried", "Plans for half of the memory at another batch, with 0.52 of its memory").add(
        f"{name}-{share}", network=name, batch=other, GiB=round(budget_bytes / GIB, 2),
        needs_GiB=round(needed / GIB, 2), carried=overhead(carried.report, least_s),
        fresh=overhead(fresh.report, least_s), largest=largest(name, plan),
    )  # fmt: skip
    if carried.report is not None:
        assert carried.report.makespan_s >= fresh.solution.bound * (1 - 1e-9)


_PLANS: dict[str, Result] = {}


def _plan(name: str, batch: int, limit_s: float) -> Result:
    """A plan at half of the memory, once for all tests."""
    if name not in _PLANS:
        _PLANS[name] = solved(gapless.monet.problem(name, batch=batch, budget="0.5x"), limit_s)
    return _PLANS[name]


def largest(name: str, plan: Result) -> int:
    """The largest batch at which the plan fits the device's 16 GiB."""
    low, high = 1, 8 * THESIS[name][0]
    while high - low > 1:
        middle = (low + high) // 2
        fits = gapless.solve(gapless.monet.problem(name, batch=middle, budget=DEVICE_BYTES, carry=plan)).valid
        low, high = (middle, high) if fits else (low, middle)
    return low
