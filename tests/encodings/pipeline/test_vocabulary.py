"""A head in parts of the vocabulary: what the parts cost, plans that place them, and what goes without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.cli.main import main
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.solve import planned
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.methods import MethodChoice
from gapless.options import SolveOptions
from gapless.profiles.pipelines.named import find_pipeline_profile
from gapless.profiles.pipelines.vocabulary import head_in_parts

GPT = "gpt:layers=6,hidden=512,sequence=512,vocabulary=100001,micro_batch=1,tensor_parallel=1"
LITTLE = replace(DEFAULTS, quick_ops=1000, heuristic_ops=1000, methods=MethodChoice(only=("zero-bubble",)))


def asked(**values: Any) -> Problem:
    return problem(**{"profile": GPT, "ranks": 3, "micro_batches": 4, "bandwidth": 25e9, **values})


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_add_up_to_the_head(parts: int) -> None:
    one = find_pipeline_profile(GPT, 3, 1)
    cut = head_in_parts(one, parts)
    assert cut.layer_names[-parts:] == tuple(f"head.{part}" for part in range(parts))
    for name in ("forward_s", "backward_s", "weight_s", "parameter_bytes", "state_bytes"):
        assert getattr(cut, name)[-parts:].sum() == pytest.approx(getattr(one, name)[-1])
        assert (getattr(cut, name)[:-parts] == getattr(one, name)[:-1]).all()
    hidden = int(one.boundary_bytes[-2])
    assert cut.stash_bytes[-parts:].sum() == one.stash_bytes[-1] + (parts - 1) * hidden
    assert np.ptp(cut.stash_bytes[-parts:]) <= 1
    assert one.boundary_shape is not None
    assert cut.boundary_bytes[-parts:].tolist() == [hidden + 12 * one.boundary_shape[0]] * (parts - 1) + [0]
    assert (one.embedding_bytes > 0, cut.embedding_bytes) == (True, 0)


def test_stages_that_are_longer_than_all_others_are_shared() -> None:
    one, three = (planned(asked(vocabulary_parts=parts), SolveOptions(threads=1), LITTLE).solution for parts in (1, 3))
    assert one.objective is not None
    assert three.objective is not None
    assert three.objective < 0.7 * one.objective
    assert all(bound.value <= three.objective * (1 + 1e-9) for bound in three.bounds)


def test_a_plan_names_its_parts_and_is_not_run(tmp_path: Path) -> None:
    question = asked(vocabulary_parts=3, micro_batches=2, placement="looped", cut=(1, 4, 6, 7, 8))
    result = gapless.solve(question, SolveOptions(threads=1), parameters=LITTLE)
    assert result.report.valid
    result.save(tmp_path / "plan.json")
    assert main(["check", str(tmp_path / "plan.json"), "--quiet"]) == 0
    saved = read_plan(tmp_path / "plan.json")
    assert saved.problem["layer_names"][-3:] == ["head.0", "head.1", "head.2"]
    assert saved.problem["vocabulary_parts"] == 3
    with pytest.raises(InputError, match="parts of a vocabulary are drawn and replayed, not run"):
        program_of(saved)


def test_layers_without_a_head_have_no_parts(capsys: pytest.CaptureFixture[str]) -> None:
    line = "solve pipeline --profile uniform:f=1,b=1,w=1 --ranks 2 --micro-batches 2 --vocabulary-parts 2"
    assert main(line.split()) == 2
    assert "needs a profile whose last layer is a head, got 'uniform:f=1,b=1,w=1'" in capsys.readouterr().err
