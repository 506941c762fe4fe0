"""Recomputation: every subset of few stages, prefixes of many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pipeline_plans import gpt_profile

import gapless
from gapless.encodings.pipeline.classes import any_placement_s
from gapless.encodings.pipeline.cut.costs import are_all_choices, recomputation_choices, stages_of
from gapless.encodings.pipeline.problem import problem


def test_a_backward_as_one_op_takes_what_was_measured_of_it() -> None:
    profile = gpt_profile(6)
    measured = replace(profile, whole_backward_s=0.75 * (profile.backward_s + profile.weight_s))
    apart, whole = (problem(measured, ranks=4, micro_batches=8, backward=how) for how in ("split", "whole"))
    assert stages_of(whole, (2, 4, 6)).backward_s.tolist() == [30.0] * 4, "15 a layer instead of 12 and 8"
    assert stages_of(whole, (2, 4, 6)).weight_s.tolist() == [0.0] * 4
    stages = stages_of(apart, (2, 4, 6))
    assert (stages.backward_s.tolist(), stages.weight_s.tolist()) == ([24.0] * 4, [16.0] * 4)
    assert any_placement_s(whole)[0] < any_placement_s(apart)[0]
    found = gapless.solve(whole)
    assert found.report.makespan_s >= any_placement_s(whole)[0]
    assert found.report.makespan_s < gapless.solve(replace(whole, profile=profile)).report.makespan_s


@pytest.mark.parametrize(("recomputation", "chosen"), [("none", [False] * 4), ("all", [True] * 4)])
def test_what_is_asked_for_is_the_only_choice(recomputation: str, chosen: list[bool]) -> None:
    asked = problem("uniform:f=1,b=1,w=1", ranks=4, micro_batches=2, recomputation=recomputation)
    assert [choice.tolist() for choice in recomputation_choices(asked, 2)] == [chosen]
    assert are_all_choices(asked, 2)


def test_every_subset_of_few_stages_and_prefixes_of_many() -> None:
    asked = problem("uniform:f=1,b=1,w=1", ranks=4, micro_batches=2, recomputation="auto")
    subsets = [tuple(choice.tolist()) for choice in recomputation_choices(asked, 4)]
    assert len(set(subsets)) == 16
    assert [sum(subset) for subset in subsets] == sorted(sum(subset) for subset in subsets)
    assert are_all_choices(asked, 4)
    assert [choice.tolist() for choice in recomputation_choices(asked, 3)] == [
        [number < recomputed for number in range(4)] for recomputed in range(5)
    ]
    assert not are_all_choices(asked, 3)
