"""Costs of stages: what was measured as one op."""

from __future__ import annotations

from dataclasses import replace

from pipeline_plans import gpt_profile

import gapless
from gapless.encodings.pipeline.classes import any_placement_s
from gapless.encodings.pipeline.cut.costs import stages_of
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
