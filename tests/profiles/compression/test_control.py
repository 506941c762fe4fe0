"""Accordion's rule while a training runs: looks, decays and warm-up, modes by layer, batches by the whole model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.compression.control import (
    Accordion,
    AccordionBatches,
    Detection,
    EpochLook,
    critical_epochs,
)

LOW, HIGH = "powersgd:4", "powersgd:1"


def modes_of(norms: list[list[float]], decays: set[int], detection: Detection) -> list[str]:
    """A letter a layer, L or H, an epoch a word; epochs begin with a decay where their number is in `decays`."""
    controller = Accordion(LOW, HIGH, detection)
    settings = [controller.start([f"layer{layer}" for layer in range(len(norms[0]))])]
    for epoch, row in enumerate(norms[:-1], start=1):
        settings.append(controller.after(EpochLook(np.array(row), epoch in decays)))
    return ["".join("L" if mode == LOW else "H" for mode in setting.modes) for setting in settings]


def test_layers_switch_apart_by_their_own_norms() -> None:
    norms = [[8.0, 8.0], [4.0, 7.0], [3.9, 3.0], [3.8, 2.9], [3.8, 2.9]]
    # Before epoch 2 the first comparison: 8 -> 4 is half, 8 -> 7 isn't; before epoch 3 it is the other way round.
    assert modes_of(norms, set(), Detection(interval=1)) == ["LL", "LL", "LH", "HL", "HH"]


def test_a_decay_lasts_until_the_next_look() -> None:
    norms = [[1.0]] * 10
    assert modes_of(norms, {5}, Detection(interval=3, warm_up=0)) == ["H"] * 5 + ["L"] + ["H"] * 4
    assert modes_of(norms, {4}, Detection(interval=3, warm_up=0)) == ["H"] * 4 + ["L"] * 2 + ["H"] * 4


@pytest.mark.parametrize(("warm_up", "critical"), [(0, 0), (1, 1), (3, 3), (None, 4), (7, 7)])
def test_the_warm_up_is_critical_whatever_norms_say(warm_up: int | None, critical: int) -> None:
    found = modes_of([[1.0]] * 9, set(), Detection(interval=2, warm_up=warm_up))
    assert found == ["L"] * critical + ["H"] * (9 - critical)


def test_the_threshold_is_a_share_of_the_older_norm() -> None:
    norms = [[10.0], [8.0], [10.5], [10.5]]
    assert modes_of(norms, set(), Detection(threshold=0.3, interval=1)) == ["L", "L", "H", "L"]
    assert modes_of(norms, set(), Detection(threshold=0.1, interval=1)) == ["L", "L", "L", "L"]


@pytest.mark.parametrize("seed", range(5))
def test_a_controller_decides_as_the_rule_does_on_a_trace_of_the_same_norms(seed: int) -> None:
    generator = np.random.default_rng(seed)
    norm, rate = generator.random((30, 4)), np.where(np.arange(30) < 17, 0.1, 0.01)
    detection = Detection(0.4, int(generator.integers(1, 5)), int(generator.integers(0, 9)))
    expected = ["".join("L" if is_low else "H" for is_low in row) for row in critical_epochs(norm, rate, detection)]
    assert modes_of(norm.tolist(), {17}, detection) == expected


def test_a_controller_goes_on_from_what_was_saved() -> None:
    generator = np.random.default_rng(3)
    looks = [EpochLook(generator.random(3), bool(generator.random() < 0.1)) for _ in range(20)]
    detection, layers = Detection(interval=2), ["a", "b", "c"]
    whole, first, second = (Accordion(LOW, HIGH, detection) for _ in range(3))
    whole.start(layers)
    expected = [whole.after(look) for look in looks]
    first.start(layers)
    for look in looks[:7]:
        first.after(look)
    second.start(layers)
    assert second.load_state_dict(json.loads(json.dumps(first.state_dict()))) == expected[6]
    assert [second.after(look) for look in looks[7:]] == expected[7:]


def test_batches_go_by_the_norm_of_the_whole_model_with_the_learning_rate() -> None:
    controller = AccordionBatches(512, 4096, Detection(interval=1))
    settings = [controller.start(["a", "b"])]
    # The norm of both is 5, 5, 2.4: the layers trade places, which isn't a change of the model's, then it falls.
    for row in ([3.0, 4.0], [4.0, 3.0], [2.4, 0.0]):
        settings.append(controller.after(EpochLook(np.array(row), False)))
    assert [(each.batch, each.rate_factor) for each in settings] == [(512, 1), (512, 1), (4096, 8), (512, 1)]
    assert {each.modes for each in settings} == {("plain", "plain")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "threshold: must be > 0, got 0"),
        ({"interval": 0}, "interval: must be >= 1, got 0"),
        ({"warm_up": -1}, "warm_up: must be >= 0, got -1"),
    ],
)
def test_detections_that_cannot_be_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Detection(**options)  # type: ignore[arg-type]


def test_controllers_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="mode"):
        Accordion("rank:4", HIGH)
    with pytest.raises(InputError, match="batches: must be 1 <= low < high, got 8 and 8"):
        AccordionBatches(8, 8)
