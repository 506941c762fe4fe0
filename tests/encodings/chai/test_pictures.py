"""Correlations, errors of clusters, memberships that change: the numbers behind the pictures."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.chai.commands.pictures import changes, cluster_errors, draw_changes, draw_profile
from gapless.errors import InputError
from gapless.profiles.heads.named import find_head_profile
from gapless.profiles.heads.profile import HeadProfile

pytest.importorskip("matplotlib")


def test_correlations_are_those_of_the_scores() -> None:
    """Of 3 tokens that attend to 1, 2 and 3 tokens."""
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.ones(seen), size=4) for seen in (1, 2, 3)]
    scores = np.concatenate(rows, axis=1)  # (heads, entries)
    apart = np.square(scores[:, None] - scores[None]).sum(axis=2) / 3
    zeros = np.zeros((1, 4, 4))
    profile = HeadProfile("drawn", apart[None], zeros, 4, 8, 1, 3, squares=np.square(scores).sum(axis=1)[None] / 3)
    found = profile.correlation(2.0)
    assert found is not None
    assert np.allclose(found[0], np.corrcoef(scores))
    assert HeadProfile("drawn", apart[None], zeros, 4, 8, 1, 3).correlation(2.0) is None
    with pytest.raises(InputError, match=r"squares must be \(1, 4\), layers and heads, and >= 0"):
        HeadProfile("drawn", apart[None], zeros, 4, 8, 1, 3, squares=np.zeros((1, 3)))


def test_errors_of_clusters_fall_to_none() -> None:
    errors = cluster_errors(find_head_profile("small-lm"))
    assert errors.shape == (4, 8)
    assert np.allclose(errors[:, 0], 1)
    assert np.allclose(errors[:, -1], 0)
    assert (errors[:, 3] < errors[:, 1]).all()


def test_only_heads_that_use_another_one_have_changed() -> None:
    def apart(groups: list[int]) -> np.ndarray:
        return np.not_equal.outer(groups, groups).astype(float)

    steady, moved = apart([0, 0, 1, 1]), apart([0, 1, 1, 1])
    distances = np.array([[[steady], [steady], [moved]], [[steady], [steady], [steady]]])
    found = changes(distances, [2], 4)
    assert found.shape == (2, 1)
    assert found[0, 0] == 0
    assert 0 < found[1, 0] <= 0.5


def test_pictures_have_a_line_for_each_layer() -> None:
    correlations = np.array([np.eye(4)] * 2)
    figure = draw_profile({"correlations": correlations.tolist(), "cluster_errors": [[1, 0.5, 0.2, 0]] * 2})
    assert [line.get_gid() for line in figure.axes[0].lines] == ["error-0", "error-1"]
    assert figure.axes[1].get_title() == "layer 0: 0.00"
    drawn = draw_changes({"changes": [[0.5, 0.25], [0.1, 0.0]], "first_tokens": 5})
    assert [line.get_gid() for line in drawn.axes[0].lines][:2] == ["changes-0", "changes-1"]
    assert drawn.axes[0].lines[0].get_xdata().tolist() == [2, 3]
