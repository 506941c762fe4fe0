"""Layers sent in modes of their own: exact where those are, errors and modes by layer, floats as planned."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import sent_bytes, sent_names
from gapless.torch.compression import left_behind
from gapless.torch.ddp.layer_modes import LayerState, reduce_layers
from gapless.torch.ddp.training import Recipe, Variant, examples_of, train
from gapless.torch.run.workload import load_named

SMALL = "train:net,layers=2,width=8,batch=40,size=8,classes=6"
ALL = [mode for mode in sent_names() if mode != "none"]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 10))


def bucket_of(layers: torch.nn.Module, seed: int = 1) -> Any:
    """All gradients of a model in one bucket, as DDP passes it to a hook."""
    generator = torch.Generator().manual_seed(seed)
    parameters = list(layers.parameters())[::-1]
    gradients = [torch.randn(each.shape, generator=generator) for each in parameters]
    return SimpleNamespace(
        parameters=lambda: parameters, gradients=lambda: gradients, index=lambda: 0, is_last=lambda: True
    )


def state_of(layers: torch.nn.Module, mode: str, **others: Any) -> LayerState:
    return LayerState(layers, {name: mode for name, _ in layers.named_parameters()}, **others)


def flat(bucket: Any) -> torch.Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in bucket.gradients()])


def test_plain_layers_are_the_gradient_and_leave_nothing() -> None:
    layers = model()
    state = state_of(layers, "plain")
    for seed in range(3):
        bucket = bucket_of(layers, seed)
        assert torch.equal(reduce_layers(state, bucket).wait(), flat(bucket))


@pytest.mark.parametrize("mode", ALL)
def test_what_is_sent_is_what_the_shapes_say(mode: str) -> None:
    layers = model()
    state = state_of(layers, mode)
    state.reduce(bucket_of(layers))
    assert state.sent_bytes == sum(sent_bytes(mode, tuple(each.shape)) for each in layers.parameters())


def test_what_was_not_sent_is_sent_later_by_layer_and_through_a_change_of_modes() -> None:
    layers = model()
    state, bucket = state_of(layers, "powersgd:1"), bucket_of(layers)
    received = sum(reduce_layers(state, bucket).wait() for _ in range(3))
    state.set_modes({name: "plain" for name, _ in layers.named_parameters()})
    received = received + reduce_layers(state, bucket).wait()
    torch.testing.assert_close(received, 4 * flat(bucket), rtol=1e-4, atol=1e-4)


def test_without_feedback_nothing_is_kept() -> None:
    layers = model()
    state, bucket = state_of(layers, "topk:0.1", error_feedback=False), bucket_of(layers)
    first, second = (reduce_layers(state, bucket).wait() for _ in range(2))
    assert torch.equal(first, second)


def test_a_rank_that_changes_keeps_the_factors_that_fit() -> None:
    gradient, memory = torch.randn(20, 30), {}
    left = [left_behind(f"powersgd:{rank}", gradient, memory) for rank in (2, 4, 4, 4, 4, 4, 4, 4, 1, 2)]
    best = torch.linalg.svdvals(gradient.double()).square().flip(0).cumsum(0).flip(0)
    assert left[0] > left[7] >= float(best[4]) * (1 - 1e-6)
    assert memory["rights"][0].shape == (30, 2)
    assert left[9] >= float(best[2]) * (1 - 1e-6)


def test_modes_must_be_of_the_model_s_parameters() -> None:
    layers = model()
    with pytest.raises(InputError, match=r"parameter '2\.bias': must have a mode"):
        LayerState(layers, {name: "plain" for name, _ in layers.named_parameters() if name != "2.bias"})
    with pytest.raises(InputError, match="parameter 'other': must be in the model"):
        LayerState(layers, {"other": "plain"})
    with pytest.raises(InputError, match="mode: must be one of"):
        state_of(layers, "rank:4")


def recipe(**others: Any) -> Recipe:
    asked = {"model": SMALL, "seed": 3, "batch": 4, "learning_rate": (0.05, 0.05), "momentum": 0.9, "held_out": 0.2,
             "workers": 2, "wait_s": 60.0, "samples": 2}  # fmt: skip
    return Recipe(**{**asked, **others})


def by_hand(asked: Recipe) -> float:
    """The last epoch's mean loss of the same training in one process, whose gradient is the mean of the workers'."""
    examples = examples_of(asked)
    layers = copy.deepcopy(examples.work.model)
    optimizer = torch.optim.SGD(layers.parameters(), lr=asked.learning_rate[0], momentum=asked.momentum)
    for epoch in range(len(asked.learning_rate)):
        losses = []
        for batches in zip(*(examples.batches(asked, epoch, rank) for rank in range(asked.workers)), strict=True):
            optimizer.zero_grad()
            loss = sum(work.loss_of(layers) for work in batches) / asked.workers
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


def test_workers_train_as_one_process_does_send_what_is_planned_and_record_what_modes_spoil() -> None:
    asked, work = recipe(), load_named(SMALL, 3)
    names = tuple(name for name, _ in work.model.named_parameters())
    shapes = [tuple(each.shape) for each in work.model.parameters()]
    recorded = ("powersgd:1", "powersgd:2", "topk:0.5", "plain")
    plain, mixed = (("plain",) * len(names),) * 2, (("powersgd:1",) * len(names), ("powersgd:2",) * len(names))
    runs = train(
        asked, [Variant("plain", names, plain, recorded, ("topk:0.5", "plain")), Variant("mixed", names, mixed)]
    )
    assert runs[0].train_loss == pytest.approx(by_hand(asked), rel=1e-5)
    steps = examples_of(asked).steps
    assert [set(run.sent_bytes) for run in runs] == [
        {2 * steps * 4 * sum(map(math.prod, shapes))},
        {steps * sum(sent_bytes(mode, shape) for shape in shapes for mode in ("powersgd:1", "powersgd:2"))},
    ]
    error = torch.tensor(runs[0].record["error"])
    assert error.shape == (2, len(names), 4)
    assert (error[:, :, 1] <= error[:, :, 0]).all()
    assert (error[:, :, 3] == 0).all()
    assert (torch.tensor(runs[0].record["norm"]) > 0).all()
    assert runs[0].loss[-1] < 2 * math.log(6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 40}, r"batch: 32 of 40 examples are trained on, 2 workers x batch 40 need more"),
        ({"model": "train:gpt,micro_batches=2", "batch": 1, "held_out": 0.1}, "batch: 2 of 2 examples"),
    ],
)
def test_data_that_are_too_few_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        examples_of(recipe(**changes))


def test_a_variant_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="must be in the model and in the plan"):
        train(recipe(), [Variant("plan", ("other",), (("plain",),) * 2)])
