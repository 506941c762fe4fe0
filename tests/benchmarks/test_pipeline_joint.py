"""Cut, memory, order and modes together against the recipe of Optimus-CC (1F1B + CB + FE + SC75), at equal error.

`pytest tests/benchmarks/test_pipeline_joint.py -s` prints by how much the step is shorter, and what of that is
compression. The table of errors is made up for this comparison: `gapless profile compression-error` measures one. Its
costs are the paper's (section 9.6): rank 16 encodes at 98.37 GB/s and decodes at 8.32 TB/s; rank 128 is taken to be as
fast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.recipes import PAPER_DAYS, RECIPES, follow, speedup
from gapless.encodings.pipeline.solve import solve
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.text import table

EVEN = {"gpt-8.3b": (19, 37, 55), "gpt-2.5b": (14, 27, 40)}
DEPTH = np.array([0.0, 1.0])
STEPS = 230_000
ENCODE, DECODE = 1 / 98.37e9, 1 / 8.32e12
MADE_UP = CompressionTable(
    "made up", DEPTH,
    (
        CompressionMode("rank 16", 0.007, 16, ENCODE, DECODE, np.array([0.10, 0.20]), np.array([0.60, 0.50])),
        CompressionMode("rank 128", 0.055, 128, ENCODE, DECODE, np.array([0.04, 0.08]), np.array([0.30, 0.25])),
    ),
    "made up",
)  # fmt: skip
RECIPE, HOP_MODE, SUM_MODE = "1f1b+cb+fe+sc75", 1, 2


def asked(model: str, **values: Any) -> Problem:
    """Table 1 of the paper: nodes of eight A100, here of 40 GB, and one 200 Gb/s NIC a node."""
    return problem(**{
        "profile": model, "ranks": 4, "micro_batches": 16, "bandwidth": 25e9, "replicas": 4, "memory": 320 * 2**30,
        "compression": MADE_UP, **values,
    })  # fmt: skip


def solved(question: Problem, limit_s: float) -> tuple[float, float, float, dict[str, Any]]:
    """Step, bound, error and details of a plan that replays clean."""
    plan = solve(question, SolveOptions(time_limit_s=limit_s, threads=1))
    assert plan.schedule is not None
    assert plan.solution.bound is not None
    report = check(plan.schedule)
    assert report.valid
    error = report.spent[0] if report.spent else 0.0
    assert error <= question.error_budget * (1 + 1e-9)
    return report.makespan_s, plan.solution.bound, error, dict(plan.details)


@pytest.mark.parametrize("model", list(EVEN))
def test_joint_beats_the_recipe_at_equal_error(benchmark: Any, limit_s: Any, model: str) -> None:
    question, limit = asked(model), limit_s(120.0)
    recipe, error = follow(question, EVEN[model], RECIPES[RECIPE], HOP_MODE, SUM_MODE)
    usual, _ = follow(question, EVEN[model], RECIPES["1f1b"])
    budgeted = replace(question, error_budget=error)
    joint = benchmark.pedantic(lambda: solved(budgeted, limit), rounds=1)
    plain, recipe_cut = solved(question, limit), solved(replace(budgeted, cut=EVEN[model]), limit)
    before_s, recipe_s = usual.timeline.step_s, recipe.timeline.step_s
    rows = [["plan", "step", "speed-up", "bound", "error"]]
    for name, step_s, bound_s, spoilt in (
        ("1F1B, even cut", before_s, None, 0.0), (f"{RECIPE}, even cut", recipe_s, None, error),
        ("cut and order alone", *plain[:3]), ("joint, even cut", *recipe_cut[:3]), ("joint", *joint[:3]),
    ):  # fmt: skip
        bound = "-" if bound_s is None else f"{bound_s:.4f} s"
        rows.append([name, f"{step_s:.4f} s", f"{100 * speedup(before_s, step_s):.1f} %", bound, f"{spoilt:.4f}"])
    shorter, by_compression = 1 - joint[0] / recipe_s, (plain[0] - joint[0]) / (before_s - joint[0])
    days = PAPER_DAYS[model]
    print(f"\n{model}\n{table(rows)}")
    print(f"joint is {100 * shorter:.1f} % shorter than the recipe, by cut {joint[3]['cut']}")
    print(f"{100 * by_compression:.0f} % of what it saves of 1F1B is compression, of sums {joint[3]['sum_modes']}")
    paper = 100 * speedup(days["1f1b"], days[RECIPE])
    print(f"the paper measured {days['1f1b'] * 86400 / STEPS:.2f} s a step, and a speed-up of {paper:.2f} %")
    assert joint[0] < recipe_s
    assert joint[0] <= plain[0]
    benchmark.extra_info |= {"shorter": shorter, "by_compression": by_compression}
