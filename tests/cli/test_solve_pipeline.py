"""`gapless solve pipeline`: bad questions are refused in one line; memory for no plan is infeasible, with the least."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calls import run

from gapless.profiles.pipelines.profile import PipelineProfile, pipeline_profile_text


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Four layers that keep 10 bytes and hold 8."""
    ones, sizes = np.ones(4), np.full(4, 4)
    found = PipelineProfile("four", tuple("abcd"), ones, ones, ones, sizes, 2 * sizes, sizes + 6, sizes)
    path = tmp_path / "four.json"
    path.write_text(pipeline_profile_text(found))
    return path


def test_negative_times_name_file_layer_and_field(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(profile.read_text())
    data["layers"][2]["weight_s"] = -1
    profile.write_text(json.dumps(data))
    code, out, err = run(capsys, "solve", "pipeline", "--profile", str(profile), "--ranks", "2", "--micro-batches", "2")
    assert (code, out) == (2, "")
    assert err == f"gapless: error: {profile}: layers[2]: weight_s: must be a number >= 0, got -1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "2", "--cut", "4"], "cut: must be 1 first layers that grow, in 1..3, got 4"),
        (["--ranks", "5"], "ranks: 5 ranks need as many layers, profile 'four' has 4"),
        (["--ranks", "2", "--error-budget", "1"], "--error-budget: needs compression, a table of measured errors"),
    ],
)
def test_what_goes_beyond_the_layers_or_the_tables_is_refused(
    profile: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, "solve", "pipeline", "--profile", str(profile), "--micro-batches", "2", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_memory_for_no_plan_is_infeasible_and_the_least_is_enough(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank of two layers: 16 bytes of states, 20 of a micro-batch, a message of 4."""
    command = ["solve", "pipeline", "--profile", str(profile), "--ranks", "2", "--micro-batches", "2", "--json"]
    code, out, err = run(capsys, *command, "--memory", "39B")
    data = json.loads(out)
    assert (code, data["status"], data["least_memory_bytes"]) == (3, "infeasible", 40)
    assert err.splitlines()[1:] == ["gapless: every plan needs at least 40 B of memory a rank"]
    code, out, _ = run(capsys, *command, "--memory", "40B")
    assert (code, json.loads(out)["valid"]) == (0, True)
