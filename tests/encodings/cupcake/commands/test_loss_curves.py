"""Losses against seconds: means over batches, and when a loss is reached."""

from __future__ import annotations

from dataclasses import asdict

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.encodings.cupcake.commands.loss_curves import Curve, TimesToLoss, curve_of, times_to_loss
from gapless.torch.ddp.comparison import Measured


def test_a_loss_is_the_mean_over_each_batch_once_and_its_time_the_sum_of_steps() -> None:
    losses, steps_s = (8.0, 0.0, 4.0, 4.0, 4.0, 0.0), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    curve = curve_of("plan", losses, steps_s, target=3.0)
    assert curve.losses == (8.0, 4.0, 4.0, 4.0, 3.0, 3.0)
    assert curve.seconds == (1.0, 3.0, 6.0, 10.0, 15.0, 21.0)
    assert (curve.reached_s, curve.steps) == (15.0, 5)


def test_a_few_good_batches_at_the_start_are_no_loss_that_is_reached() -> None:
    curve = curve_of("plan", (0.0, 0.0, 8.0, 8.0), (1.0,) * 4, target=3.0)
    assert (curve.reached_s, curve.steps) == (None, None)
    assert curve_of("short", (1.0, 1.0), (1.0, 1.0), target=3.0).reached_s == 2.0


def test_what_is_not_reached_says_so() -> None:
    text = TimesToLoss(3.0, "as asked for", (Curve("plan", (0.5,), (2.0,), 0.5, 1), Curve("all", (1.0,), (4.0,)))).text
    lines = text.splitlines()
    assert lines[0].startswith("to a loss of 3")
    assert "(as asked for)" in lines[0]
    assert lines[1].split() == ["plan", "1", "500", "ms", "2", "-", "-"]
    assert lines[2].split() == ["all", "-", "not", "reached", "4", "-", "-"]


def test_what_nobody_trains_on_stands_at_the_time_of_its_step() -> None:
    found = Measured(
        "plan", (1.0,), True, 1, 1, 0.0, 0.0, 0.0, losses=(4.0, 2.0, 1.0), train_s=(1.0, 2.0, 3.0),
        looked=(1, 3), held_out=(5.0, 3.0), accuracy=(0.25, 0.5),
    )  # fmt: skip
    (curve,) = times_to_loss([found], 1.5, batches=2).curves
    assert (curve.losses, curve.reached_s) == ((4.0, 3.0, 1.5), 6.0)
    assert (curve.looked_s, curve.held_out, curve.accuracy) == ((1.0, 6.0), (5.0, 3.0), (0.25, 0.5))
    assert TimesToLoss(1.5, "as asked for", (curve,)).text.splitlines()[1].split()[-3:] == ["3", "50.0", "%"]


@pytest.mark.parametrize("accuracy", [(0.25, 0.5), ()])
def test_a_picture_has_a_curve_for_each_fusion_and_accuracy_where_there_is_one(accuracy: tuple[float, ...]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; pip install '.[plot]' in a checkout")
    from gapless.encodings.cupcake.commands.pictures import draw_training

    curves = [Curve(name, (1.0, 2.0), (4.0, 3.0), 2.0, 2, (1.0, 2.0), (5.0, 4.0), accuracy) for name in ("plan", "all")]
    left, *right = draw_training({"time_to_loss": asdict(TimesToLoss(3.0, "", tuple(curves)))}).axes
    assert [line.get_label() for line in left.lines][:2] == ["plan", "all"]
    assert [list(axes.lines[1].get_ydata()) for axes in right] == ([[25.0, 50.0]] if accuracy else [])
