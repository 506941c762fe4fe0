"""The picture of a controller's run: epochs are the darker the more layers are sent as in a critical phase."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed; pip install '.[plot]' in a checkout")

from gapless.encodings.ranks.training.pictures import draw_regimes

LOW, HIGH = "powersgd:4", "powersgd:1"


def test_phases_are_shaded_by_the_share_of_layers_and_norms_are_shares_of_their_largest() -> None:
    modes = [[LOW, LOW], [LOW, HIGH], [HIGH, HIGH]]
    row = {"name": "accordion", "modes": modes, "norms": [[4.0, 0.0], [2.0, 0.0], [1.0, 0.0]]}
    data = {"rows": [{"name": "plan"}, row], "modes": [HIGH, LOW], "learning_rates": [0.1, 0.1, 0.01]}
    (ax,) = draw_regimes(data).axes
    shades = {patch.get_gid(): patch.get_alpha() for patch in ax.patches}
    assert shades == {"critical-0": 0.4, "critical-1": 0.2, "critical-2": 0.0}
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines["a layer"] == lines["the whole model"] == [1.0, 0.5, 0.25]
    (decay,) = [line for line in ax.lines if line.get_label() == "the learning rate falls"]
    assert list(decay.get_xdata()) == [1.5, 1.5]
