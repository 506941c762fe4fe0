"""A hook that a controller drives: norms are those of mean gradients, modes follow, saved runs go on, ranks agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from hook_training import reloaded

from gapless.profiles.compression.control import Accordion, Detection, EpochLook, Setting, critical_epochs
from gapless.profiles.compressors.grammar import sent_bytes
from gapless.torch.ddp.controlled import ControlledState
from gapless.torch.ddp.layer_modes import reduce_layers
from gapless.torch.ddp.training import Control, Recipe, Variant, examples_of, train
from gapless.torch.run.workload import load_named

SMALL = "train:net,layers=2,width=8,batch=40,size=8,classes=6"
EVERY = Detection(interval=1)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 10))


def bucket_of(layers: torch.nn.Module, scale: float) -> Any:
    """All gradients of a model in one bucket, each filled with a number."""
    parameters = list(layers.parameters())[::-1]
    gradients = [torch.full(each.shape, scale) for each in parameters]
    buffer = torch.cat([each.reshape(-1) for each in gradients])
    return SimpleNamespace(
        parameters=lambda: parameters, gradients=lambda: gradients, index=lambda: 0, is_last=lambda: True,
        buffer=lambda: buffer,
    )  # fmt: skip


def controlled(layers: torch.nn.Module, controller: Any = None, **others: Any) -> ControlledState:
    return ControlledState(layers, controller or Accordion("plain", "powersgd:1", EVERY), 0.1, **others)


def test_norms_are_of_the_mean_of_an_epoch_s_gradients() -> None:
    layers = model()
    state = controlled(layers)
    for scale in (1.0, 2.0, 6.0):
        reduce_layers(state, bucket_of(layers, scale))
    state.end_epoch(0.1)
    for name, parameter in layers.named_parameters():
        assert state.norms[name] == pytest.approx(3.0 * parameter.numel() ** 0.5, rel=1e-6)


def test_modes_follow_norms_and_decays() -> None:
    layers = model()
    state, found = controlled(layers), []
    for scale, rate in ((8.0, 0.1), (4.0, 0.1), (3.9, 0.1), (3.9, 0.01), (3.9, 0.01)):
        found.append(set(state.modes.values()))
        reduce_layers(state, bucket_of(layers, scale))
        state.end_epoch(rate)
    found.append(set(state.modes.values()))
    critical, over = {"plain"}, {"powersgd:1"}
    assert found == [critical, critical, critical, over, critical, over]


def test_an_overflowed_step_does_not_count() -> None:
    layers = model()
    state = controlled(layers)
    for scale in (3.0, float("inf"), 3.0, float("nan")):
        reduce_layers(state, bucket_of(layers, scale))
    state.end_epoch(0.1)
    assert state.norms["0.bias"] == pytest.approx(3.0 * 30**0.5)


def test_norms_are_without_the_scale_of_a_scaler() -> None:
    layers = model()
    state = controlled(layers, scaler=SimpleNamespace(get_scale=lambda: 1024.0))
    reduce_layers(state, bucket_of(layers, 2048.0))
    state.end_epoch(0.1)
    assert state.norms["2.bias"] == pytest.approx(2.0 * 10**0.5)


def test_a_saved_run_goes_on_in_the_middle_of_an_epoch() -> None:
    layers = model()
    whole, first, second = (controlled(layers) for _ in range(3))
    scales = [8.0, 7.0, 3.0, 3.0, 1.0, 1.0]

    def steps(state: ControlledState, numbers: range) -> list[dict[str, str]]:
        found = []
        for number in numbers:
            reduce_layers(state, bucket_of(layers, scales[number]))
            if number % 2:
                state.end_epoch(0.1)
            found.append(dict(state.modes))
        return found

    expected = steps(whole, range(6))
    steps(first, range(3))
    second.load_state_dict(reloaded(first.state_dict()))
    assert steps(second, range(3, 6)) == expected[3:]
    assert second.norms == whole.norms
    assert second.sent_bytes == whole.sent_bytes


class Looking:
    """Goes by what two modes spoil, seen at every second step; keeps what it saw."""

    measured = ("powersgd:1", "topk:0.5")

    def __init__(self) -> None:
        self.seen: list[EpochLook] = []

    def start(self, layers: Any) -> Setting:
        return Setting(("plain",) * len(layers))

    def is_looked_at(self, step: int) -> bool:
        return step % 2 == 1

    def after(self, look: EpochLook) -> Setting:
        self.seen.append(look)
        return self.start(look.norms)


def test_errors_are_measured_at_the_steps_that_are_looked_at_and_their_sends_count() -> None:
    layers, looking = model(), Looking()
    state, total = controlled(layers, looking), sum(each.numel() for each in layers.parameters())
    for scale in (1.0, 2.0, 3.0, 4.0):
        reduce_layers(state, bucket_of(layers, scale))
    state.end_epoch(0.1)
    assert state.looked_bytes == 2 * 4 * total
    assert state.sent_bytes == 6 * 4 * total
    errors = looking.seen[0].errors
    assert errors is not None
    assert errors[:, 0] == pytest.approx(0.0, abs=1e-6)  # a constant matrix has rank 1
    half = [each.numel() - round(0.5 * each.numel()) for each in layers.parameters()]
    assert errors[:, 1].tolist() == pytest.approx([count * (4 + 16) / 2 for count in half])
    state.end_epoch(0.1)
    assert looking.seen[1].errors is None


def recipe(**others: Any) -> Recipe:
    asked = {"model": SMALL, "seed": 3, "batch": 4, "learning_rate": (0.05, 0.05, 0.05, 0.005), "momentum": 0.9,
             "held_out": 0.2, "workers": 2, "wait_s": 60.0}  # fmt: skip
    return Recipe(**{**asked, **others})


def control(name: str, **options: Any) -> Control:
    return Control(f"gapless.encodings.ranks.training.variants:{name}", json.dumps(options))


@pytest.mark.thorough
def test_two_workers_decide_by_their_norms_alike_and_send_what_their_modes_say(tmp_path: Path) -> None:
    asked, work = recipe(), load_named(SMALL, 3)
    names = tuple(name for name, _ in work.model.named_parameters())
    shapes = [tuple(each.shape) for each in work.model.parameters()]
    detection = {"threshold": 0.3, "interval": 1, "warm_up": 1}
    plain = (("plain",) * len(names),) * 4
    variants = [
        Variant("plain", names, plain, ("powersgd:1",)),
        Variant("both plain", names, plain, control=control("accordion", low="plain", high="plain", detection={})),
        Variant("accordion", names, plain,
                control=control("accordion", low="powersgd:2", high="powersgd:1", detection=detection)),
        Variant("batches", names, plain, control=control("accordion_batches", low=4, high=8, detection=detection)),
    ]  # fmt: skip
    trace, both, accordion, batches = train(asked, variants)
    steps = examples_of(asked).steps
    # The norms that the hook sees in plain modes are those that a trace records of gradients, by steps.
    np.testing.assert_allclose(np.array(both.norms) * steps, trace.record["norm"], rtol=1e-4)
    assert both.loss == trace.loss
    found = critical_epochs(np.array(accordion.norms), np.array(asked.learning_rate), Detection(**detection))
    assert accordion.modes == tuple(tuple("powersgd:2" if is_low else "powersgd:1" for is_low in row) for row in found)
    assert found[3].all()  # after the decay
    assert not found.all()
    sent = sum(
        steps * sum(sent_bytes(mode, shape) for mode, shape in zip(row, shapes, strict=True)) for row in accordion.modes
    )
    assert set(accordion.sent_bytes) == {sent}
    assert set(batches.steps) == {steps, steps // 2}
    floats = sum(torch.Size(shape).numel() for shape in shapes)
    assert set(batches.sent_bytes) == {4 * floats * sum(batches.steps)}


@pytest.mark.thorough
def test_a_batch_that_the_data_do_not_fill_is_one_line(tmp_path: Path) -> None:
    names = tuple(name for name, _ in load_named(SMALL, 3).model.named_parameters())
    options = control("accordion_batches", low=4, high=64, detection={"interval": 1, "warm_up": 0})
    variant = Variant("batches", names, (("plain",) * len(names),) * 2, control=options)
    with pytest.raises(Exception, match="2 workers x 64 need more than 32 examples"):
        train(replace(recipe(), learning_rate=(0.05, 0.05)), [variant])
