"""Drift: old boundaries carry more load; how often new ones pay. Windows of steps for later ones."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.oktopk.drift import drift_of, renewal_steps
from gapless.encodings.oktopk.network import Network, flat_topology
from gapless.encodings.oktopk.search import windows_of
from gapless.profiles.sparsity.named import find_index_sets

NETWORK = Network(flat_topology(8, 1e9, 1e-6))


def test_load_grows_with_age_where_layers_drift() -> None:
    drift = drift_of(find_index_sets("drifting:elements=40000,steps=6,drift=0.3", 8, 0.02), NETWORK)
    exact = drift["exact"]
    assert exact[0] == pytest.approx(1.0, abs=0.02)
    assert exact[-1] > exact[1] > exact[0]
    assert all(ours <= theirs for ours, theirs in zip(exact[:1], drift["averaged"][:1], strict=True))


def test_renewal_weighs_what_boundaries_cost_and_what_old_ones_do() -> None:
    assert renewal_steps([1.0, 2.0, 3.0], 0.0) == 1
    assert renewal_steps([1.0, 1.0, 1.0], 0.5) == 3
    ratios, cost = [1.0, 1.02, 1.1, 1.2, 1.5], 0.1
    means = [(cost + sum(ratios[:steps])) / steps for steps in range(1, 6)]
    assert renewal_steps(ratios, cost) == int(np.argmin(means)) + 1


def test_windows_have_enough_entries_and_end_with_the_last_step() -> None:
    sets = find_index_sets("uniform:elements=2000,steps=7", 4, 0.02)  # 40 entries a rank
    assert windows_of(sets, 80) == [[1, 2], [3, 4], [5, 6]]
    assert windows_of(sets, 40) == [[step] for step in range(7)]
    assert windows_of(sets, 10**6) == [list(range(7))]
