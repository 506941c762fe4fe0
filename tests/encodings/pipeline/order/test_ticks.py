"""Ticks: exact where durations have a common unit, else rounded down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_pipelines import trial

from gapless.encodings.pipeline.order.ticks import in_ticks


def test_a_common_unit_loses_nothing() -> None:
    _, stages = trial(4, 8, 5)
    ticked = in_ticks(stages, 286.0)
    assert ticked.is_exact
    assert ticked.tick_s == pytest.approx(2.0)
    assert ticked.stages.forward_s.tolist() == [5.0] * 4
    assert ticked.stages.hop_s.tolist() == [[1.0] * 3]


def test_without_one_durations_are_rounded_down() -> None:
    _, stages = trial(4, 8, 5)
    odd = replace(stages, forward_s=stages.forward_s * np.sqrt(2), embedding_s=float(np.pi))
    ticked = in_ticks(odd, 400.0)
    assert not ticked.is_exact
    assert (ticked.stages.forward_s == np.floor(ticked.stages.forward_s)).all()
    assert (ticked.stages.forward_s * ticked.tick_s <= odd.forward_s * (1 + 1e-8)).all()
    np.testing.assert_allclose(ticked.stages.forward_s * ticked.tick_s, odd.forward_s, rtol=1e-5)
    assert ticked.stages.embedding_s * ticked.tick_s == pytest.approx(np.pi, rel=1e-5)


def test_nothing_but_zeros_is_a_step_of_no_ticks() -> None:
    _, stages = trial(2, 1, 1, profile="uniform:f=0,b=0,w=0", hop=0.0)
    assert in_ticks(stages, 0.0).stages.forward_s.tolist() == [0.0, 0.0]
