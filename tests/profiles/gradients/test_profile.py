"""Gradients in pieces: of whole rows, ready together, and never a slower step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fusion_instances import KINDS, mixed_instance, random_instance

from gapless.encodings.cupcake.solve import best_fusion
from gapless.errors import InputError
from gapless.profiles.gradients.named import load_fusion_profile
from gapless.profiles.gradients.profile import in_pieces


def test_a_large_gradient_is_cut_into_whole_rows_that_are_ready_together() -> None:
    profile, most_bytes = load_fusion_profile("vgg16"), 2**24
    cut = in_pieces(profile, most_bytes)
    place = cut.tensor_names.index("classifier.0.weight[0]")
    pieces = slice(place, place + 25)  # 411 MB
    assert cut.tensor_names[pieces][-1] == "classifier.0.weight[24]"
    assert {shape[1] for shape in cut.shapes[pieces]} == {25088}
    assert sum(shape[0] for shape in cut.shapes[pieces]) == 4096
    assert cut.backward_s[pieces].tolist() == [profile.backward_s[5], *[0.0] * 24]
    assert cut.total_bytes == profile.total_bytes
    assert all(size == 4 * np.prod(shape) for size, shape in zip(cut.size_bytes, cut.shapes, strict=True))
    assert cut.size_bytes.max() < 1.01 * most_bytes


def test_sizes_without_shapes_add_up() -> None:
    profile = random_instance(np.random.default_rng(0), "points", 12, 12)
    cut = in_pieces(profile, 10**4)
    assert cut.total_bytes == profile.total_bytes
    assert cut.size_bytes.max() <= 10**4
    assert cut.compute_s == pytest.approx(profile.compute_s)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_that_may_be_sent_alone_never_make_a_step_slower(kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        profile = random_instance(rng, kind, 6, 3)
        most_bytes = int(profile.size_bytes.max()) // 2 + 1
        assert best_fusion(in_pieces(profile, most_bytes)).iteration_s <= best_fusion(profile).iteration_s * (1 + 1e-9)


def test_what_cannot_be_cut_is_refused() -> None:
    profile = mixed_instance(np.random.default_rng(2), "affine")
    with pytest.raises(InputError, match="pieces: mode 'low-rank' has vectors of its own"):
        in_pieces(profile, 10)
    with pytest.raises(InputError, match="pieces: must leave at most 100,000 of them, got pieces of 1 B"):
        in_pieces(load_fusion_profile("vgg16"), 1)
    with pytest.raises(InputError, match="pieces: must be at least 1 B, got 0"):
        in_pieces(replace(profile, modes=profile.modes[:1]), 0)
