"""The picture of a training: a curve for each run, and the errors where they were looked at."""

from __future__ import annotations

from dataclasses import asdict

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed; pip install '.[plot]'")
pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.encodings.pipeline.programs.curves import draw_training
from gapless.errors import InputError
from gapless.torch.pipeline.observed import HopErrors
from gapless.torch.pipeline.training import Trained


def row(run: Trained) -> dict[str, object]:
    return {**asdict(run), "last_loss": run.losses[-1]}


def test_each_run_of_ranks_has_a_curve_and_errors_stand_beside() -> None:
    errors = tuple(HopErrors(step, 0, (0.1,) * 3, *[(0.1 * step, 0.2)] * 5, 0.5 + step, 0.0, 0.0) for step in (0, 2))
    alone, plain = Trained("one process", (5.0, 4.0)), Trained("plain", (5.0, 4.0), (1,))
    runs = [alone, plain, Trained("cb", (5.0, 4.5), (1,), errors=errors)]
    losses, cosines = draw_training({"runs": [row(each) for each in runs]}).axes
    assert [line.get_label() for line in losses.lines] == ["plain: 4.000", "cb: 4.500"]
    assert losses.lines[1].get_ydata()[1] == pytest.approx(4.75)
    assert list(cosines.lines[3].get_ydata()) == [0.5, 2.5], "weights off"
    assert cosines.lines[0].get_ydata()[1] == pytest.approx(0.2)
    assert len(draw_training({"runs": [row(runs[1])]}).axes) == 1


def test_a_training_that_diverges_has_a_curve_that_ends() -> None:
    diverged = {**row(Trained("cb", (5.0, 4.5), (1,))), "losses": [5.0, None], "last_loss": None}
    (line,) = draw_training({"runs": [diverged]}).axes[0].lines
    assert line.get_label() == "cb: diverged"
    assert [str(loss) for loss in line.get_ydata()] == ["5.0", "nan"]


def test_a_single_step_has_no_picture() -> None:
    with pytest.raises(InputError, match="plot: draws a training"):
        draw_training({"gradients": 3})
