"""Shares of zeros are counted as the forward pass makes them, and plans are carried to another capture."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

import gapless
from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.encodings.monet.parameters import Encoding, Parameters
from gapless.torch.capture import capture, profile, share_of_zeros
from gapless.torch.run import plan, run

ONE = SolveOptions(threads=1, gap=0.5, time_limit_s=20)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU6(), nn.Dropout(0.5), nn.Conv2d(6, 1, 3))


def mean_square(found: torch.Tensor) -> torch.Tensor:
    return found.square().mean()


def test_zeros_are_counted_in_order_and_nothing_of_the_model_changes() -> None:
    model, image = network(), torch.randn(4, 3, 12, 12)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    shares = share_of_zeros(model, (image,))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    inner = model[1](model[0](image))
    first, second = (inner <= 0).double().mean(), (model[3](inner.relu()) <= 0).double().mean()
    assert shares == pytest.approx((float(first), float(second)))
    assert 0.4 < shares[0] < 0.6


def test_measured_zeros_decide_what_gist_keeps() -> None:
    model, image = network(), torch.randn(4, 3, 12, 12)
    graph, shares = capture(model, (image,), mean_square).graph, share_of_zeros(model, (image,))
    peaks = []
    for zeros in ((0.0,), shares, (1.0,)):
        result = gapless.solve(Problem(graph, 2**30, method="gist"), ONE, Parameters(encoding=Encoding(zeros=zeros)))
        assert result.valid
        peaks.append(result.report.peak_bytes[0])
    assert peaks[0] >= peaks[1] >= peaks[2]


@pytest.mark.thorough
def test_a_plan_runs_at_another_batch_with_eagers_bits() -> None:
    model = network()
    small, large = (
        profile(capture(model, (torch.randn(batch, 3, 12, 12),), mean_square), repeats=1) for batch in (2, 5)
    )
    first = gapless.solve(gapless.monet.problem(small.graph, budget="1.2x", method="lean"), ONE)
    planned = plan(large, gapless.monet.problem(large.graph, budget="1.2x", carry=first), ONE)
    assert planned.result.decision.kept == first.decision.kept
    train = run(planned, model, report=lambda _: None)
    train(torch.randn(5, 3, 12, 12))
    assert train.difference is not None
    assert train.difference.is_equal
