"""What caches within so many bytes cost two language models that are trained here, beside one format for all.

`pytest tests/benchmarks/test_cache_quality.py` trains for some minutes of processor time, unless GAPLESS_SMALL_LM names
a folder that `tests/support/small_lm.py` has written, with a model of grouped queries in `grouped`.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from extras import needs_transformers
from result_tables import ResultTables

from gapless.encodings.cache.baselines import Layers, baseline
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
from gapless.solution import Status

TITLE = "Caches within so many bytes: divergence in millionths of a nat, rise of the loss, 24 sequences of 128 tokens"
SHARING = "Half of the keys, a quarter of the cache less"
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


def shared_evenly(found: Any, calibration: Any, asked: Problem) -> Layers:
    """The paper's rule at three quarters of the full cache: half of all keys, clusters of k-means."""
    from gapless.torch.heads.measurement import measure_heads

    sharing = Sharing(measure_heads(found, calibration, ""), 0.25, "scores")
    medians = tuple(guessed(cost) for cost in sharing.cost)
    made = Baselines(sharing, medians, SharingParameters(), 0).elbow(sharing.most_kept)
    pairs = zip(asked.full, made.kept, made.representative, strict=True)
    return tuple(full.sharing(kept, tuple(row.tolist())) for full, kept, row in pairs)


def pool_keys(model: Any, dimension: int) -> None:
    """Two neighbours take the mean of their keys, as grouped queries are made of a model's heads; nothing is trained
    then (Ainslie et al., EMNLP 2023).
    """
    for module in model.modules():
        if hasattr(module, "k_proj"):
            pairs = module.k_proj.weight.data.unflatten(0, (-1, 2, dimension))
            pairs[:] = pairs.mean(dim=1, keepdim=True)


def made_by(method: str, asked: Problem) -> Layers:
    """A baseline's modes."""
    found = baseline(method, asked, Parameters(), 0)
    assert found is not None
    return found


def planned(asked: Problem) -> Layers:
    """The best modes by what the profile has, proven."""
    plan = solve(asked, SolveOptions())
    assert plan.solution.status is Status.OPTIMAL
    assert isinstance(plan.decision, CacheDecision)
    return plan.decision.layers


def millionths(nats: float) -> float:
    return float(f"{1e6 * nats:.3g}")


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
    profiled = FullModel(found, calibration, layout)
    base = Problem(profile, 1, tokens=TOKENS)

    def of_share(share: float) -> Problem:
        return replace(base, cache_bytes=int(share * base.full_bytes))

    asked = {each: replace(base, cache_bytes=base.bytes_of(made_by(each, of_share(1.0)))) for each in UNIFORM}
    table = tables.table("cache_quality", TITLE)
    for size, problem in (asked | {"30 %": of_share(0.3), "20 %": of_share(0.2)}).items():
        plan, row = planned(problem), dict[str, float]()
        if size in UNIFORM:
            row["one_format"] = millionths(full.measured(made_by(size, problem)).divergence)
        drawn = made_by("random", replace(problem, modes=("formats", "windows")))
        row["random"] = millionths(full.measured(drawn).divergence)
        made = full.measured(plan)
        row["plan"], row["predicted"] = millionths(made.divergence), millionths(problem.error(plan))
        row["same_text"] = millionths(profiled.measured(plan).divergence)
        saved, rise = 100 - 100 * base.bytes_of(plan) / base.full_bytes, made.loss - full.loss
        table.add(f"{name}, {size}", saved=round(saved, 1), **row, rise=round(rise, 4))
        assert row["plan"] <= 1.05 * min(row.get("one_format", math.inf), row["random"])
    table, halved = tables.table("cache_sharing", SHARING), shared_evenly(found, calibration, base)
    shared = {"share": made_by("share", of_share(0.75)), "elbow": halved}
    measured = {each: full.measured(modes) for each, modes in shared.items()}
    pool_keys(found.model, layout.dimension)
    for each, made in (measured | {"mean": full.measured(base.full)}).items():
        table.add(f"{name}, {each}", divergence=millionths(made.divergence), rise=round(made.loss - full.loss, 4))
