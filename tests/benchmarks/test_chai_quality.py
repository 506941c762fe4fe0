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

import gapless
from gapless.encodings.chai.commands.profile import rises_of
from gapless.encodings.chai.commands.requests import execute_requests
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.methods import Baselines
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem, problem
from gapless.encodings.chai.question import RequestsQuestion
from gapless.encodings.chai.solve import solve
from gapless.methods.medians import guessed
from gapless.options import SolveOptions
from gapless.profiles.heads.profile import HeadProfile
from gapless.system import Session

TITLE = "Heads shared: rise of the validation loss of a small language model, 4 layers of 8 heads"
CLUSTERS = (24, 20, 16, 12, 8)
TRAINED = os.environ.get("GAPLESS_SMALL_LM")
"""A folder with a model that `tests/support/small_lm.py` has trained."""


REQUESTS = "Heads shared and dropped for each request: a language model of 4 layers of 8 heads, and one that copies"

DROPPED = ("values", "spatten", "dejavu")
RUNS: tuple[tuple[str, str, int, tuple[str, ...] | None, tuple[str, ...]], ...] = (
    ("", "loss", 5, DROPPED, ("full", "static", "request", "request-least", "hindsight", *DROPPED)),
    (", 32 tokens", "loss", 32, None, ("request",)),
    (", counts by scores", "scores", 5, None, ("static", "request", "hindsight")),
)
"""What is run: its name, the distance of the plan, the first tokens, what is served beside, and rows of the table."""


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is trained to repeat 8 to 32 bytes, whatever they are; calibrated on such texts."""
    from small_lm import train_copying

    folder = Path(TRAINED) / "copying" if TRAINED else tmp_path_factory.mktemp("copying")
    if not (folder / "config.json").exists():
        train_copying(folder)
    text = (folder / "calibration.txt").read_bytes()
    pieces = [text[first : first + 32] for first in range(0, len(text), 32)]
    (folder / "calibration.txt").write_bytes(b"".join(piece + piece for piece in pieces))
    return folder


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


def profiled(folder: Path, length: int) -> tuple[Any, HeadProfile]:
    """A model, and its heads and rises measured on 64 sequences."""
    from gapless.torch.heads.measurement import measure_heads
    from gapless.torch.heads.models import load_language_model, sequences_of

    model = load_language_model(str(folder))
    calibration = sequences_of(model.tokens(folder / "calibration.txt"), length, 64, "calibration")
    profile = measure_heads(model, calibration, "the benchmark")
    return model, replace(profile, rises=rises_of(model, profile, calibration, SolveOptions())[1])


@needs_transformers
@pytest.mark.parametrize(("task", "length"), [("text", 128), ("copy", 64)])
def test_no_choice_of_heads_has_less_error_than_hindsight(
    takes_minutes: None,
    tables: ResultTables,
    keep_tables: None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    task: str,
    length: int,
) -> None:
    folder = request.getfixturevalue("trained" if task == "text" else "copying")
    _, profile = profiled(folder, length)
    for clusters in (24, 16):
        for kind, distance, first, beside, rows in RUNS:
            plan = tmp_path / "plan.json"
            saving = 0.5 * (1 - clusters / (profile.layers * profile.key_heads))
            gapless.chai.solve(profile, kv_saving=saving, distance=distance).save(plan)
            question = RequestsQuestion(
                str(folder), str(plan), str(folder / "validation.txt"), new_tokens=1, task=task, sequence=length,
                sequences=64, first_tokens=first, beside=beside,
                calibration=str(folder / "calibration.txt") if beside else None,
            )  # fmt: skip
            answer = execute_requests(question, Session(SolveOptions(), print))
            assert answer.is_valid
            full = answer.data["maps"]["full"]
            for name in rows:
                each = answer.data["maps"][name]
                words = {} if task == "copy" else {"word": round(100 * each["word_accuracy"], 1)}
                error = {} if each["error"] is None else {"error": round(each["error"], 3)}
                tables.table("chai_requests", REQUESTS).add(
                    f"{task} {clusters} {name}{kind}", task=task, clusters=clusters, heads=name + kind,
                    loss=round(each["loss"], 4), token=round(100 * each["token_accuracy"], 1), **words, **error,
                    cache=round(100 * each["cache_bytes"] / full["cache_bytes"], 1),
                )  # fmt: skip
                assert name == "full" or each["loss"] > full["loss"]


@needs_transformers
def test_memberships_settle_with_tokens(
    takes_minutes: None, tables: ResultTables, tmp_path: Path, trained: Path
) -> None:
    plan, (_, profile) = str(tmp_path / "plan.json"), profiled(trained, 128)
    gapless.chai.solve(profile, kv_saving=0.125).save(plan)
    question = RequestsQuestion(
        str(trained), plan, str(trained / "validation.txt"), new_tokens=1, sequence=64, plot=str(tmp_path / "c.svg")
    )
    changed = [
        sum(row) / len(row) for row in execute_requests(question, Session(SolveOptions(), print)).data["changes"]
    ]
    table = tables.table("chai_changes", "Heads that use another one than a token before, by tokens of a request")
    for tokens in (2, 3, 5, 10, 24, 32):
        table.add(str(tokens), tokens=tokens, changed=round(100 * changed[tokens - 2], 1))
    assert max(changed[30:]) < changed[3] < changed[0]


@needs_transformers
def test_counts_by_measured_rises_lose_at_most_what_equal_counts_lose(
    takes_minutes: None, tables: ResultTables, trained: Path
) -> None:
    from gapless.torch.heads.models import mean_loss, sequences_of
    from gapless.torch.heads.sharing import sharing

    model, profile = profiled(trained, 128)
    validation = sequences_of(model.tokens(trained / "validation.txt"), 128, 64, "validation")
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
