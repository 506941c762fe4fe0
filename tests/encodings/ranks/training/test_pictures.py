"""The picture of controllers' runs: critical phases stand behind the norms, and as dots over the modes used."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed; pip install '.[plot]' in a checkout")

from gapless.encodings.ranks.training.pictures import draw_regimes

LOW, HIGH = "powersgd:4", "powersgd:1"
NORMS = [[4.0, 0.0], [2.0, 0.0], [1.0, 0.0]]
RUN: dict[str, Any] = {
    "name": "accordion", "modes": [[LOW, LOW], [LOW, HIGH], [HIGH, HIGH]], "norms": NORMS,
    "critical": [[True, True], [True, False], [False, False]], "steps": [4, 4, 4],
}  # fmt: skip
BATCHES = {**RUN, "name": "accordion-batches", "critical": [[True], [False], [False]], "steps": [4, 4, 1]}
DATA: dict[str, Any] = {"rows": [{"name": "plan", "norms": []}, RUN, BATCHES], "modes": [HIGH, LOW],
                        "learning_rates": [0.1, 0.1, 0.01]}  # fmt: skip


def test_phases_are_shaded_by_the_share_of_layers_and_norms_are_shares_of_their_largest() -> None:
    above = draw_regimes(DATA).axes[0]
    shades = {patch.get_gid(): patch.get_alpha() for patch in above.patches}
    assert shades == {"critical-0": 0.4, "critical-1": 0.2, "critical-2": 0.0}
    lines = {line.get_label(): list(line.get_ydata()) for line in above.lines}
    assert lines["a layer"] == lines["the whole model"] == [1.0, 0.5, 0.25]
    (decay,) = [line for line in above.lines if line.get_label() == "the learning rate falls"]
    assert list(decay.get_xdata()) == [1.5, 1.5]


def test_dots_are_where_the_rule_is_critical_over_what_was_sent() -> None:
    *_, modes, batches = draw_regimes(DATA).axes
    (image,), (dots,) = modes.images, modes.lines
    assert image.get_array().tolist() == [[1, 1, 0], [1, 0, 0]]
    assert list(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == [(0, 0), (0, 1), (1, 0)]
    assert batches.images[0].get_array().tolist() == [[1, 1, 0]]
    assert list(batches.lines[0].get_xdata()) == [0]
