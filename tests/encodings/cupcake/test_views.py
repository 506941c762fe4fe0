"""Fusion plans as DDP buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.encodings.cupcake import Problem
from gapless.encodings.cupcake.views import export_ddp_buckets, to_ddp_buckets
from gapless.errors import InputError
from gapless.io.ddp_buckets import read_ddp_buckets
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile

ASKED = {"profile": "tiny", "tensor_names": ["c", "b", "a"], "tensor_bytes": [60, 20, 144], "forward_s": 0.0}


def test_solved_plan_becomes_a_bucket_for_each_group(tmp_path: Path) -> None:
    sizes = np.array([4096, 64, 1 << 20, 256, 1 << 18, 12], dtype=np.int64)
    profile = FusionProfile(
        "six", 0.01, tuple("fedcba"), sizes, np.full(6, 1e-3),
        (Mode("topk", AffineCost(1e-4, 2e-9), AffineCost(2e-4, 1e-10)),),
    )  # fmt: skip
    result = gapless.solve(Problem(profile))
    buckets = export_ddp_buckets(tmp_path / "buckets.json", Problem(profile).description, result.details)
    assert [list(group) for group in buckets.groups] == result.details["groups"]
    assert list(buckets.modes) == result.details["modes"]
    assert len(buckets.groups) > 1
    assert sum(buckets.bucket_bytes) == profile.total_bytes
    assert buckets.parameter_names == profile.tensor_names
    assert read_ddp_buckets(tmp_path / "buckets.json") == buckets


@pytest.mark.parametrize(
    ("asked", "found", "message"),
    [
        ({}, {"groups": [[0, 1]]}, "plan: groups: must be at least one, and end with parameter 2, got 1"),
        ({}, {"groups": [[0, 1.0], [2, 2]]}, r"plan: details: groups\[0\]: must be \[first, last\] in whole numbers"),
        ({}, {}, "plan: details: field 'groups' is missing"),
        ({"tensor_bytes": [1, 2]}, {"groups": [[0, 2]]}, "plan: parameter_bytes: must have one entry for each of 3"),
        ({"tensor_bytes": [60, 20, -1]}, {"groups": [[0, 2]]}, r"tensor_bytes\[2\]: must be a whole number >= 0"),
        ({}, {"groups": [[0, 2]], "modes": [1]}, r"plan: details: modes\[0\]: must be the name of a mode, got 1"),
        ({}, {"groups": [[0, 2]], "modes": ["plain", "topk"]}, "plan: modes: must be one for each of 1 buckets, got 2"),
        ({"pieces_bytes": 99}, {"groups": [[0, 2]]}, "plan: problem: pieces_bytes: DDP keeps every gradient whole"),
        ({"tensor_names": ["c", 1, "a"]}, {"groups": [[0, 2]]}, r"tensor_names\[1\]: must be a string, got 1"),
        ({"tensor_bytes": [60, 20, 0]}, {"groups": [[0, 2]]}, r"plan: groups\[0\]: DDP would make \[0, 1\]"),
    ],
)
def test_plan_without_usable_groups_is_refused(asked: dict[str, Any], found: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_ddp_buckets({**ASKED, **asked}, found)
