"""What caches within so many bytes cost two language models that are trained here, beside one format for all.

`pytest tests/benchmarks/test_cache_quality.py` trains for some minutes of processor time, unless GAPLESS_SMALL_LM names
a folder that `tests/support/small_lm.py` has written, with a model of grouped queries in `grouped`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from extras import needs_transformers
from result_tables import ResultTables

from gapless.encodings.cache.baselines import BASELINES
from gapless.encodings.cache.commands.profile import measured_cache
from gapless.encodings.cache.decision import CacheDecision
from gapless.encodings.cache.parameters import Parameters
from gapless.encodings.cache.problem import Problem
from gapless.encodings.cache.question import UNIFORM
from gapless.encodings.cache.solve import solve
from gapless.encodings.chai.methods import Baselines
from gapless.encodings.chai.parameters import Parameters as SharingParameters
from gapless.encodings.chai.problem import Problem as Sharing
from gapless.methods.medians import guessed
from gapless.options import SolveOptions
from gapless.profiles.cache.layout import Layout
from gapless.profiles.cache.modes import LayerModes

TITLE = "Caches within so many bytes: divergence in millionths of a nat, rise of the loss, 24 sequences of 128 tokens"
TRAINED = os.environ.get("GAPLESS_SMALL_LM")
WINDOWS = (32, 48, 64, 80, 96, 112)
TOKENS = 128
MODELS = {"8 key heads": 8, "4 key heads": 4}


def folder_of(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from small_lm import train

    if TRAINED:
        return Path(TRAINED) if MODELS[model] == 8 else Path(TRAINED) / "grouped"
    folder = tmp_path_factory.mktemp("lm")
    train(folder, key_heads=MODELS[model])
    return folder


def shared_evenly(found: Any, calibration: Any, asked: Problem) -> tuple[LayerModes, ...]:
    """The paper's rule at three quarters of the full cache: half of all keys, clusters of k-means."""
    from gapless.torch.heads.measurement import measure_heads

    sharing = Sharing(measure_heads(found, calibration, ""), 0.25, "scores")
    medians = tuple(guessed(cost) for cost in sharing.cost)
    made = Baselines(sharing, medians, SharingParameters(), 0).elbow(sharing.most_kept)
    pairs = zip(asked.full, made.kept, made.representative, strict=True)
    return tuple(full.sharing(kept, tuple(row.tolist())) for full, kept, row in pairs)


@needs_transformers
@pytest.mark.parametrize("name", MODELS)
def test_a_plan_spoils_no_more_than_one_format_for_all(
    takes_minutes: None, tables: ResultTables, keep_tables: None, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    from gapless.torch.cache.measurement import FullModel
    from gapless.torch.heads.models import load_language_model, sequences_of

    folder = folder_of(name, tmp_path_factory)
    found = load_language_model(str(folder))
    calibration = sequences_of(found.tokens(folder / "calibration.txt"), TOKENS, 16, "calibration")
    layout = Layout(found.layers[0].dimension, 16, 16, 4)
    profile = measured_cache(found, calibration, layout, WINDOWS, SolveOptions())
    assert profile is not None
    full = FullModel(found, sequences_of(found.tokens(folder / "validation.txt"), TOKENS, 24, "validation"), layout)
    base = Problem(profile, 1, tokens=TOKENS)
    table = tables.table("cache_quality", TITLE)

    def measured(row: str, modes: Sequence[LayerModes], **others: object) -> float:
        made = full.measured(modes)
        saved = round(100 - 100 * base.bytes_of(modes) / base.full_bytes, 1)
        table.add(f"{name}, {row}", saved=saved, divergence=float(f"{1e6 * made.divergence:.3g}"),
                  rise=round(made.loss - full.loss, 4), **others)  # fmt: skip
        return made.divergence

    def planned(row: str, size: int) -> float:
        plan = solve(replace(base, cache_bytes=size), SolveOptions())
        assert plan.solution.status.value == "optimal"
        assert isinstance(plan.decision, CacheDecision)
        assert plan.solution.objective is not None
        return measured(row, plan.decision.modes, predicted=float(f"{1e6 * plan.solution.objective:.3g}"))

    for each in UNIFORM:
        modes = BASELINES[each](base, Parameters(), 0)
        assert modes is not None
        uniform = measured(each, modes)
        assert planned(f"plan of {each}'s size", base.bytes_of(modes)) <= uniform * 1.05
    for share in (0.3, 0.2):
        planned(f"plan of {100 * share:.0f} %", int(share * base.full_bytes))
    beside = replace(base, cache_bytes=int(0.75 * base.full_bytes))
    for each in ("share", "random"):
        modes = BASELINES[each](beside, Parameters(), 0)
        assert modes is not None
        measured(each, modes)
    measured("elbow", shared_evenly(found, calibration, base))
