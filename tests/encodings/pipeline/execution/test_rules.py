"""Rules of Optimus-CC on the order of any plan, for trainings."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from pipeline_plans import baseline_plan, gpt_profile

from gapless.encodings.pipeline.compression.recipes import epilogue
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.execution.rules import epilogue_hops, variants_of
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.encodings.pipeline.question import RunQuestion
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.errors import InputError
from gapless.torch.pipeline.training import Variant


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of(baseline_plan("1f1b"))


def variants(program: Program, *rules: str, replicas: int = 2, **values: object) -> list[Variant]:
    question = RunQuestion(model="train:gpt", plan="plan.json", ranks=4, steps=3, rules=",".join(rules), **values)
    return variants_of(question, program, replicas, fuses_embedding=False)[1:]


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "gpipe", "zb-h1"])
def test_the_epilogue_of_an_order_is_that_of_the_recipe(name: str) -> None:
    baseline = BASELINES[name]
    asked = problem(gpt_profile(6), ranks=4, micro_batches=8, hop=2.0, placement=baseline.placement,
                    backward="split" if baseline.splits else "whole")  # fmt: skip
    stages = stages_of(asked, even_cut(8, asked.stage_count))
    stages = stages if baseline.splits else whole(stages)
    expected = set(map(tuple, np.argwhere(epilogue(stages, baseline.order(stages))).tolist()))
    assert epilogue_hops(program_of(baseline_plan(name)).order) == expected


def test_rules_say_what_is_compressed_and_whether_errors_are_propagated(program: Program) -> None:
    cb, lossy, naive, fused, dp, forward = variants(
        program, "cb", "cb+no-lep", "naive-cb", "cb+fe+sc75", "dp", "naive-cb+forward", hop_mode="rank 2"
    )
    assert {(hop, m) for hop, m, _ in cb.hop_modes} == epilogue_hops(program.order)
    assert cb.hop_modes == lossy.hop_modes
    assert (cb.propagates, lossy.propagates, naive.propagates) == (True, False, False)
    assert len(naive.hop_modes) == 3 * 8
    assert not cb.sum_modes
    assert fused.sum_modes == ("rank 4", "rank 4", "rank 4", "plain")
    assert fused.fuses_embedding > cb.fuses_embedding
    assert (dp.hop_modes, dp.sum_modes) == ((), ("rank 4",) * 4)
    assert (forward.forward_mode, cb.forward_mode) == ("rank 2", "")


def test_several_modes_are_trainings_of_their_own(program: Program) -> None:
    found = variants(program, "sc25", "dp", sum_mode="rank 1,rank 8")
    assert [each.name for each in found] == ["sc25 rank 1", "sc25 rank 8", "dp rank 1", "dp rank 8"]
    assert found[1].sum_modes == ("rank 8", "plain", "plain", "plain")


@pytest.mark.parametrize("rule", ["sc10", "fe+cb", "lep", "cb+cb", ""])
def test_an_unknown_rule_is_refused(program: Program, rule: str) -> None:
    with pytest.raises(InputError, match=r"^rules: "):
        variants(program, rule)


def test_sums_are_compressed_among_replicas_only(program: Program) -> None:
    with pytest.raises(InputError, match="rules: dp compresses sums among replicas, the plan has one"):
        variants(program, "dp", replicas=1)
