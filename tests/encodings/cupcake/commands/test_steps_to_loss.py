"""Steps to a loss: what is held is what a training takes, and every compressor has one."""

from __future__ import annotations

import math

import pytest
from extras import needs_torch

from gapless.encodings.cupcake.commands.steps_to_loss import STEPS, steps_to_loss
from gapless.profiles.compressors.grammar import sent_names


def test_every_compressor_as_it_is_sent_was_measured() -> None:
    assert not [mode for mode in sent_names() if steps_to_loss(mode) is None]
    assert steps_to_loss("topk:0.3") is None


def test_spellings_do_not_matter_and_no_mode_takes_fewer_steps_than_plain() -> None:
    assert steps_to_loss("top-k") == steps_to_loss("topk:0.01") == STEPS["topk:0.01"]
    assert steps_to_loss("none") == steps_to_loss("dgc") == 1.0
    assert steps_to_loss("signsgd") == math.inf


@needs_torch
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("mode", ["topk:0.01", "rand-k:0.01"])
def test_what_is_held_is_what_a_training_takes(mode: str) -> None:
    from virtual_ranks import steps_beside_plain

    assert steps_beside_plain(mode) == pytest.approx(STEPS[mode], rel=0.05)
