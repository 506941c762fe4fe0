"""Files of pipeline profiles: what is written is read back, and what is broken is refused in one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.pipelines.named import NAMED
from gapless.profiles.pipelines.profile import pipeline_profile_text, read_pipeline_profile, write_pipeline_profile

LAYER = {
    "name": "embedding", "forward_s": 0.01, "backward_s": 0, "weight_s": 0.02, "parameter_bytes": 40,
    "state_bytes": 320, "stash_bytes": 512, "boundary_bytes": 64,
}  # fmt: skip
PROFILE: dict[str, Any] = {
    "format": "gapless.pipeline-profile", "version": 1, "name": "tiny", "embedding_bytes": 8, "boundary_shape": [8, 4],
    "layers": [LAYER, {**LAYER, "name": "head", "backward_s": 0.03}], "source": "made up",
}  # fmt: skip


def write(folder: Path, data: object) -> Path:
    path = folder / "profile.json"
    path.write_text(json.dumps(data))
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    profile = read_pipeline_profile(write(tmp_path, PROFILE))
    assert (profile.name, profile.source, profile.layer_names) == ("tiny", "made up", ("embedding", "head"))
    assert (profile.embedding_bytes, profile.boundary_shape) == (8, (8, 4))
    assert profile.forward_s.tolist() == [0.01, 0.01]
    assert profile.backward_s.tolist() == [0.0, 0.03]
    assert profile.weight_s.tolist() == [0.02, 0.02]
    assert profile.parameter_bytes.tolist() == [40, 40]
    assert profile.state_bytes.tolist() == [320, 320]
    assert profile.stash_bytes.tolist() == [512, 512]
    assert profile.boundary_bytes.tolist() == [64, 64]


def test_what_only_some_layers_have_is_filled_in(tmp_path: Path) -> None:
    first, second = PROFILE["layers"]
    data = {**PROFILE, "layers": [{**first, "whole_backward_s": 0.015}, {**second, "weight_stash_bytes": 100}]}
    profile = read_pipeline_profile(write(tmp_path, data))
    assert profile.whole_backward_s is not None
    assert profile.whole_backward_s.tolist() == [0.015, 0.05], "I and W after each other"
    assert profile.deferred_bytes.tolist() == [512, 100]
    write_pipeline_profile(tmp_path / "again.json", profile)
    again = read_pipeline_profile(tmp_path / "again.json")
    assert again.whole_backward_s is not None
    assert again.whole_backward_s.tolist() == [0.015, 0.05]
    assert [column.tolist() for column in again.backwards_s(splits=False)] == [[0.015, 0.05], [0.0, 0.0]]
    assert [column.tolist() for column in again.backwards_s(splits=True)] == [[0.0, 0.03], [0.02, 0.02]]


@pytest.mark.parametrize("name", NAMED)
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    profile, path = NAMED[name](), tmp_path / "profile.json"
    write_pipeline_profile(path, profile)
    again = read_pipeline_profile(path)
    assert pipeline_profile_text(again) == path.read_text()
    for title, column in vars(profile).items():
        np.testing.assert_array_equal(getattr(again, title), column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["layers"][1].update(weight_s=-1), r"layers\[1\]: weight_s: must be a number >= 0, got -1"),
        (lambda d: d["layers"][0].update(forward_s="1"), r"layers\[0\]: forward_s: must be a number >= 0, got \"1\""),
        (lambda d: d["layers"][0].update(stash_bytes=1.5), r"layers\[0\]: stash_bytes: must be a whole number"),
        (lambda d: d["layers"][0].pop("backward_s"), r"layers\[0\]: field 'backward_s' is missing"),
        (lambda d: d["layers"][1].update(state_bytes=3), "layer 'head': state_bytes must be >= parameter_bytes, got 3"),
        (lambda d: d["layers"][1].update(forward_s=1e10), r"layer 'head': forward_s must be in 0..1e\+09, got 1000"),
        (
            lambda d: d["layers"][1].update(whole_backward_s=1e10),
            r"layer 'head': whole_backward_s must be in 0..1e\+09",
        ),
        (lambda d: d.update(layers=[]), "layers must hold at least one, got none"),
        (lambda d: d.update(embedding_bytes=41), "embedding_bytes must be in 0..40, .* got 41"),
        (lambda d: d.update(boundary_shape=[3]), r"boundary_shape: must be \[rows, columns\], got \[3\]"),
        (lambda d: d.update(format="gapless.sweep"), "format: must be gapless.pipeline-profile, .* which sweep takes"),
        (lambda d: d.update(colour=1), "field 'colour' is unknown"),
    ],
)  # fmt: skip
def test_broken_profiles_are_refused_in_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = copy.deepcopy(PROFILE)
    change(data)
    path = write(tmp_path, data)
    with pytest.raises(InputError, match=message) as caught:
        read_pipeline_profile(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
