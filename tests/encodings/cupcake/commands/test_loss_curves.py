"""Losses against seconds: means over batches, and when a loss is reached."""

from __future__ import annotations

from gapless.encodings.cupcake.commands.loss_curves import Curve, TimesToLoss, curve_of


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
    assert lines[1].split() == ["plan", "1", "500", "ms", "2"]
    assert lines[2].split() == ["all", "-", "not", "reached", "4"]
