"""What shared heads cost a language model that is trained here, by distance and beside equal counts; and speed at
32 layers of 32 heads.

`pytest tests/benchmarks/test_chai_quality.py` trains for some minutes of processor time, unless GAPLESS_SMALL_LM names
a folder that `tests/support/small_lm.py` has written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from extras import needs_transformers
from result_tables import ResultTables

from gapless.encodings.chai.commands.profile import rises_of
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.medians import guessed
from gapless.encodings.chai.methods import Baselines
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem, problem
from gapless.encodings.chai.solve import solve
from gapless.options import SolveOptions
from gapless.profiles.heads.profile import HeadProfile

TITLE = "Heads shared: rise of the validation loss of a small language model, 4 layers of 8 heads"
CLUSTERS = (24, 20, 16, 12, 8)
TRAINED = os.environ.get("GAPLESS_SMALL_LM")
"""A folder with a model that `tests/support/small_lm.py` has trained."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from small_lm import train

    if TRAINED:
        return Path(TRAINED)
    folder = tmp_path_factory.mktemp("lm")
    train(folder, 900)
    return folder


def exact(profile: HeadProfile, clusters: int, distance: str) -> HeadMap:
    saving = 0.5 * (1 - clusters / (profile.layers * profile.key_heads))
    asked = Problem(profile, saving, distance)
    details = solve(asked, SolveOptions()).details
    assert details["kept_heads"] <= clusters
    return HeadMap.of(details["kept"], profile, asked.heads_by)


def maps(profile: HeadProfile, clusters: int, seed: int = 0) -> dict[str, HeadMap]:
    """Each method's map with so many clusters."""
    found: dict[str, HeadMap] = {}
    for distance in ("scores", "output"):
        asked = Problem(profile, 0.0, distance)
        medians = tuple(guessed(cost) for cost in asked.cost)
        beside = Baselines(asked, medians, Parameters(), seed).within(clusters)
        found[f"uniform, {distance}"] = beside["uniform"]
        found[f"optimal, {distance}"] = exact(profile, clusters, distance)
    found["optimal, loss"] = exact(profile, clusters, "loss")
    return found | {name: beside[name] for name in ("elbow", "random")}


@needs_transformers
def test_counts_by_measured_rises_lose_at_most_what_equal_counts_lose(
    takes_minutes: None, tables: ResultTables, trained: Path
) -> None:
    from gapless.torch.heads.attention import sharing
    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.models import load_language_model, mean_loss, sequences_of

    model = load_language_model(str(trained))
    calibration, validation = (
        sequences_of(model.tokens(trained / f"{name}.txt"), 128, 64, name) for name in ("calibration", "validation")
    )
    profile = measure_heads(model, calibration, "the benchmark")
    profile = replace(profile, rises=rises_of(model, profile, calibration, SolveOptions())[1])
    base = mean_loss(model.model, validation)
    for clusters in CLUSTERS:
        rises: dict[str, Any] = {}
        for name, each in maps(profile, clusters).items():
            with sharing(model, each.kept, each.representative):
                rises[name] = round(mean_loss(model.model, validation) - base, 4)
        tables.table("chai_quality", f"{TITLE}, {base:.4f} with all").add(str(clusters), clusters=clusters, **rises)
        assert rises["optimal, loss"] <= min(rises["uniform, scores"], rises["uniform, output"])


def test_32_layers_of_32_heads_are_planned_in_a_minute_of_processor_time(sized: Callable[[int, int], int]) -> None:
    asked = problem(f"synthetic:layers={sized(32, 2)},heads=32", 0.214)
    begin_s = time.process_time()
    plan = solve(asked, SolveOptions(threads=1))
    spent_s = time.process_time() - begin_s
    assert plan.solution.status.value == "optimal"
    assert spent_s < 60
