"""A step taken apart by kind of communication."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.breakdown import said
from gapless.encodings.pipeline.solve import planned
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable

ERRORS = np.array([0.5, 0.5])
TENTH = CompressionTable("made up", np.array([0.0, 1.0]), (CompressionMode("tenth", 0.1, 0, 0.0, 0.0, ERRORS, ERRORS),))


def parts(method: str) -> dict[str, float]:
    """Of GPT-2.5B on four ranks and replicas; they add up to the replay's step."""
    extra = {"compression": TENTH, "error_budget": 99.0} if "cb" in method else {}
    embedding = "separate" if method == "1f1b" else "fused"
    asked = problem("gpt-2.5b", ranks=4, micro_batches=8, bandwidth=25e9, replicas=4, cut="even", method=method,
                    embedding=embedding, **extra)  # fmt: skip
    plan = planned(asked, SolveOptions())
    found = plan.details["exposed_s"]
    assert isinstance(found, dict)
    assert plan.schedule is not None
    assert sum(found.values()) == pytest.approx(check(plan.schedule).makespan_s)
    assert min(found.values()) >= 0.0
    return found


def test_each_part_of_a_recipe_shortens_its_own_kind_of_communication() -> None:
    plain, hops, fused, sums = (parts(name) for name in ("1f1b", "1f1b+cb", "1f1b+cb+fe", "1f1b+cb+fe+sc75"))
    assert hops["gradients"] < plain["gradients"]
    assert hops["embedding"] == pytest.approx(plain["embedding"])
    assert fused["embedding"] + fused["sums"] < hops["embedding"] + hops["sums"]
    assert sums["sums"] < fused["sums"]
    assert len({round(each["computation"], 9) for each in (plain, hops, fused, sums)}) == 1


def test_without_hops_a_step_of_1f1b_is_computation_alone() -> None:
    plan = planned(problem("uniform:f=10,b=12,w=8", ranks=4, micro_batches=8, method="1f1b"), SolveOptions())
    found = plan.details["exposed_s"]
    assert found == {"embedding": 0.0, "sums": 0.0, "gradients": 0.0, "activations": 0.0, "computation": 330.0}
    assert said(found) == "the step by kind: computation 330 s (100.0%)"
