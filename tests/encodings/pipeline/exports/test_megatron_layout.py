"""Layouts for Megatron-core, read back by a reader of their grammar: every stage has the plan's layers."""

from __future__ import annotations

import random

import pytest
from megatron_layout import read_layout
from pipeline_plans import baseline_plan, gpt_profile

from gapless.encodings.pipeline.exports.megatron import megatron_arguments
from gapless.encodings.pipeline.programs.program import program_of

OPTION = "--pipeline-model-parallel-layout "


def test_the_reader_knows_the_documented_examples() -> None:
    assert read_layout("Et*3|(tt|)*29,m|L") == ["Ettt", *["tt"] * 29, "m", "L"]
    assert read_layout("E||t|L") == ["E", "", "t", "L"]
    for wrong in ("E|x|L", "E|t)|L"):
        with pytest.raises(ValueError, match=r"unknown: "):
            read_layout(wrong)


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b"])
def test_layouts_of_random_cuts_have_the_layers_of_the_plan(name: str) -> None:
    """Stage by stage in the order of the forward pass: all ranks' first stages, then their second ones."""
    drawn, stages = random.Random(name), 4 if name == "1f1b" else 8
    read = 0
    for _ in range(25):
        blocks = drawn.randint(stages, 3 * stages)
        cut = tuple(sorted(drawn.sample(range(1, blocks + 2), stages - 1)))
        plan = baseline_plan(name, profile=gpt_profile(blocks), cut=cut)
        program = program_of(plan)
        found = [line for line in megatron_arguments(plan, program, 1) if line.startswith(OPTION)]
        ends = (0, *cut, blocks + 2)
        sizes = [ends[stage + 1] - ends[stage] for stage in range(stages)]
        if not found:  # an even cut, or one that differs at its ends
            assert len(set(sizes[1:-1])) == 1
            continue
        read += 1
        (line,) = found
        layers = read_layout(line.removeprefix(OPTION))
        assert [len(letters) for letters in layers] == sizes, line
        assert "".join(layers) == f"E{'t' * blocks}L"
        assert program.order.rank_of_stage == tuple(stage % 4 for stage in range(stages))
    assert read >= 15
