"""Fewer queries than heads of kept key heads: which are used, how many, and how far they are from the best."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.problem import problem
from gapless.encodings.chai.queries import fewer_queries, using
from gapless.encodings.chai.solve import solve
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.heads.profile import nearest

PROFILE = "synthetic:layers=3,heads=8,key_heads=4"


def test_so_many_heads_are_used_and_no_choice_of_one_layer_is_better() -> None:
    apart = np.random.default_rng(1).gamma(0.5, size=(1, 8, 8)) * (1 - np.eye(8))
    kept = (0, 2, 3)
    whole = HeadMap((kept,), nearest(apart[0], kept, 2)[None])
    found = fewer_queries(whole, apart, 4, 3, 10**6)
    used = sorted(set(found.representative[0].tolist()))
    assert (len(used), set(found.kept[0])) == (3, {head // 2 for head in used})
    least = min(apart[0][:, list(heads)].min(axis=1).sum() for heads in combinations((0, 1, 4, 5, 6, 7), 3))
    assert found.error(apart) == pytest.approx(least)
    assert using(whole, apart, 4, [3]).error(apart) == pytest.approx(least)
    assert using(whole, apart, 4, [6]) is not whole
    assert using(whole, apart, 4, [6]).representative.tolist() == whole.representative.tolist()


def test_a_plan_saves_as_many_queries_as_it_was_asked_for() -> None:
    plan = solve(problem(PROFILE, 0.2, query_saving=0.7), SolveOptions())
    rows = plan.details["representatives"]
    assert plan.details["used_heads"] == sum(len(set(row)) for row in rows) <= 0.3 * 24
    assert plan.details["kept_heads"] <= 0.6 * 12
    assert plan.solution.bound < plan.solution.objective  # the bound is of the keys alone
    keys = solve(problem(PROFILE, 0.2, distance="output"), SolveOptions())
    assert keys.solution.objective == pytest.approx(plan.solution.bound)
    baselines = plan.details["baselines"]
    assert all(row["error"] > plan.solution.bound for row in baselines.values())


def test_rises_and_swaps_know_no_fewer_queries() -> None:
    with pytest.raises(InputError, match="loss is not measured for the heads of query_saving"):
        problem("small-lm", 0.2, query_saving=0.5, distance="loss")
    with pytest.raises(InputError, match="query_saving: doesn't go with swaps"):
        problem(PROFILE, 0.2, query_saving=0.5, swaps=2, model="hf:tiny-llama-gqa", calibration="text.txt")
    assert problem("small-lm", 0.2, query_saving=0.5).distance == "output"
