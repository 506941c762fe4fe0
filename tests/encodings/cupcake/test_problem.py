"""The question in plain values: a profile at its own costs or a compressor's, what is wrong is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless.encodings.cupcake.commands.advice import compression
from gapless.encodings.cupcake.commands.what_if import FIGURES, what_if
from gapless.encodings.cupcake.parameters import Parameters
from gapless.encodings.cupcake.problem import problem
from gapless.errors import InputError
from gapless.profiles.gradients.named import load_fusion_profile
from gapless.profiles.gradients.profile_file import write_fusion_profile

RING = {"ranks": 16, "bandwidth": 1.25e9}


def test_a_profile_is_a_name_a_file_or_an_object(tmp_path: Path) -> None:
    profile = load_fusion_profile("vgg16")
    write_fusion_profile(tmp_path / "mine.json", profile)
    asked = [problem(given).description for given in ("vgg16", tmp_path / "mine.json", profile)]
    assert asked[0] == asked[1] == asked[2]


def test_a_ring_by_numbers_steps_in_10_us() -> None:
    default = problem("vgg16", compressor="fp16", **RING)
    said = problem("vgg16", compressor="fp16", **RING, latency=1e-5, device="v100")
    assert default.description == said.description


def test_answers_have_plain_values_and_a_text() -> None:
    advice = compression("vgg16", compressor=["fp16", "none"], **RING)
    assert [row["compressor"] for row in advice.data["rows"]] == ["none", "none", "fp16"]
    assert advice.text.splitlines()[-1].startswith("best: ")
    for figure in FIGURES:
        found = what_if("vgg16", figure=figure, **RING)
        assert len(found.text.splitlines()) >= 1 + len(found.data["rows"])


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"latency": 1e-5}, "latency: goes with compressor"),
        ({"device": "a100"}, "device: goes with compressor"),
        ({"compressor": "fp16"}, "ranks: must be given, or a topology"),
        ({"compressor": "fp16", "ranks": 4}, "bandwidth: must be given, or a topology"),
        ({"compressor": "fp16", "topology": "ndv2", "latency": 1e-5}, "latency: give it or topology, not both"),
        ({"compressor": "fp16", **RING, "nodes": 2}, "nodes: goes with topology"),
        ({"compressor": "fp17", **RING}, "compressor: must be one of .*; did you mean 'fp16'"),
        ({"method": "parto"}, "method: must be one of .*; did you mean 'pareto'"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        problem("vgg16", **options)
    with pytest.raises(InputError, match="profile: must be a text or a FusionProfile, got int"):
        problem(7)  # type: ignore[arg-type]


def test_parameters_check_themselves() -> None:
    with pytest.raises(InputError, match="most_labels: must be >= 1, got 0"):
        Parameters(most_labels=0)
    with pytest.raises(InputError, match="bucket_sizes_mb: must hold at least one size"):
        Parameters(bucket_sizes_mb=())
    with pytest.raises(InputError, match="grid_bins: must hold at least one number of steps"):
        Parameters(grid_bins=())
