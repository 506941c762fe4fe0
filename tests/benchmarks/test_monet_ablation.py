"""The ablations of the thesis at memory ratio 0.53 (Figure 4.5): what each kind of choice saves.

`pytest tests/benchmarks/test_monet_ablation.py --tables FOLDER` solves each measured ablation of each model for 20 s
(`--limit-s`) on two cores, at the two readings of the figure: 0.53 of the memory of a step that keeps everything, and
its 8 GB. As the thesis does, plans that were made without a choice of convolutions get the fastest ones that fit
afterwards. All plans are then judged on one profile, that of the full model's file, since the files come from
profiling runs of their own; overheads are over a step that keeps everything on the 16 GiB of the P100.

What is asserted:
- Every plan replays clean within the budget, on its own file and on the full one.
- On the full profile no plan costs less than the lower bound of full MONeT, to whose plans all of them belong, and full
  MONeT costs no more than any other. Its search starts from the plans of the others: the full space is much larger, and
  from its own starts it may still be a few tenths of a percent behind the best ablation when the time is over.
- On the full profile `conv` costs no more than MONeT-NoOp, but for the gap that `conv` has proven.
- Each on its own file and relative to the least cost there, `output` adds no more than MONeT-NoOp, but for its gap; so
  does `intermediate` on VGG-16, the model for which the thesis says that it matters.
- An ablation that is proven not to fit proves that MONeT-NoOp doesn't either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from measured_monet import FULL, GIB, MODES, ROOT, TITLES, eager_s, measured
from result_tables import ResultTables

import gapless
from gapless import SolveOptions
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.decisions import StepDecision
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.search.retention import fit_implementations, keep_set_of
from gapless.encodings.monet.study.ablation import carry_over
from gapless.profiles.training.baseline import peak_without_saving_bytes

LIMIT_S = 20.0
THREADS = 2
RATIO = 0.53


@dataclass(frozen=True)
class Outcome:
    """A solved ablation: what it proved on its own file, and its plan's cost on the full file's profile.

    `own_share`: of what the step costs there without a budget. Without a plan `cost_s` is None, and `gap` and
    `own_share` say nothing; `is_infeasible` says whether it is proven that there is none.
    """

    is_infeasible: bool
    bound_s: float = 0.0
    gap: float = 0.0
    own_share: float = 0.0
    cost_s: float | None = None

    @property
    def least_share(self) -> float:
        """What `own_share` can at best be."""
        return self.own_share * (1 - self.gap)


def outcome(
    model: str, mode: str, budget_bytes: int, limit_s: float, starts: Sequence[KeepSet]
) -> tuple[Outcome, KeepSet | None]:
    """Solve an ablation, carry its plan over to the full graph, and replay it there; also the keep-set that it is."""
    graph, full = measured(f"{model}_{MODES[mode][0]}"), measured(f"{model}_{FULL}")
    result = gapless.solve(
        Problem(graph, budget_bytes, tuple(starts)), SolveOptions(gap=0.002, time_limit_s=limit_s, threads=THREADS)
    )
    if result.schedule is None:
        return Outcome(result.status is gapless.Status.INFEASIBLE), None
    assert result.valid, f"{mode}: {result.report.summary()}"
    assert isinstance(result.decision, StepDecision)
    plan = fit_implementations(full, carry_over(graph, result.decision.on(graph), full), budget_bytes)
    schedule = to_schedule(full, plan, budget_bytes)
    report, own_s = check(schedule), result.report.makespan_s
    assert report.valid, f"{mode}, carried over: {report.summary()}"
    cost_s = evaluate(full, plan).cost_s
    assert report.makespan_s == pytest.approx(cost_s, rel=1e-9)
    if mode == "monet":  # it was made here: carrying it over may only find faster implementations
        assert cost_s <= own_s * (1 + 1e-9)
    assert result.solution.bound is not None
    own_share = own_s / result.details["unlimited_s"]
    return Outcome(False, result.solution.bound, result.solution.gap, own_share, cost_s), keep_set_of(full, plan)


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("reading", ["0.53", "8GiB"])
@pytest.mark.parametrize("model", TITLES)
def test_all_choices_together_cost_the_least(tables: ResultTables, limit_s: Any, model: str, reading: str) -> None:
    budget_bytes = 8 * GIB if reading == "8GiB" else int(RATIO * least_peak_bytes(model))
    modes = [mode for mode in MODES if (ROOT / "instances" / f"{model}_{MODES[mode][0]}.json.gz").exists()]
    found: dict[str, Outcome] = {}
    starts: list[KeepSet] = []
    for mode in modes:  # the full one comes last
        found[mode], keep = outcome(model, mode, budget_bytes, limit_s(LIMIT_S), starts if mode == "monet" else ())
        starts += [] if keep is None else [keep]
    least_s = eager_s(model)
    row: dict[str, Any] = {"graph": TITLES[model], "GiB": round(budget_bytes / GIB, 2)}
    for mode in MODES:
        its = found.get(mode)
        row[mode] = "no file" if its is None else _cell(its, least_s)
    title = "Overhead in % on the profile of the full file / on its own file (gap proven there)"
    tables.table("monet_ablation", title).add(f"{model}-{reading}", **row)
    assert found["monet"].cost_s is not None, "full MONeT found no plan"
    _assert_full_is_best(found)
    _assert_noop_is_worst(found, model)


def least_peak_bytes(model: str) -> int:
    """What a step holds that keeps everything, with ReLU from its output, as in the file that has that choice."""
    return min(peak_without_saving_bytes(measured(f"{model}_{mode}")) for mode in (FULL, "inplace_multiway"))


def _cell(its: Outcome, least_s: float) -> str:
    if its.cost_s is None:
        return "infeasible" if its.is_infeasible else "no plan"
    carried, own = 100 * (its.cost_s / least_s - 1), 100 * (its.own_share - 1)
    return f"{carried:.1f} / {own:.1f} ({100 * its.gap:.1f})"


def _assert_full_is_best(found: dict[str, Outcome]) -> None:
    best = found["monet"]
    for mode, its in found.items():
        if its.cost_s is not None:
            assert its.cost_s >= best.bound_s * (1 - 1e-9), f"{mode} beats the bound of full MONeT"
            assert best.cost_s <= its.cost_s * (1 + 1e-9), f"{mode} beats full MONeT"


def _assert_noop_is_worst(found: dict[str, Outcome], model: str) -> None:
    noop, conv = found["noop"], found["conv"]
    if noop.cost_s is None:
        assert noop.is_infeasible or not any(its.is_infeasible for its in found.values())
        return
    assert not any(its.is_infeasible for its in found.values()), "MONeT-NoOp fits, so all others must"
    if conv.cost_s is not None:
        assert conv.cost_s * (1 - conv.gap) <= noop.cost_s, "conv is proven slower than MONeT-NoOp"
    for mode in ("output", *(["intermediate"] if model == "vgg16_176" else [])):
        assert found[mode].least_share <= noop.own_share, f"{mode} is proven slower than MONeT-NoOp"
