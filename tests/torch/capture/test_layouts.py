"""Operators are traced with the strides that they have on a CPU, whatever those of their arguments are.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch._subclasses import FakeTensorMode

from gapless.torch.capture.layouts import real_layouts

aten = torch.ops.aten
Made = torch.Tensor | tuple[torch.Tensor | None, ...]

MADE: dict[str, Callable[[torch.Tensor, torch.Tensor], Made]] = {
    "hardtanh": lambda gradient, given: aten.hardtanh_backward(gradient, given, 0.0, 6.0),
    "elu": lambda gradient, given: aten.elu_backward(gradient, 1.0, 1.0, 1.0, False, given),
    "softplus": lambda gradient, given: aten.softplus_backward(gradient, given, 1.0, 20.0),
    "hardswish": aten.hardswish_backward,
    "hardsigmoid": aten.hardsigmoid_backward,
    "logit": aten.logit_backward,
    "dropout": lambda gradient, given: aten.native_dropout_backward(gradient, given > 0, 2.0),
    "log softmax": lambda gradient, given: torch._log_softmax_backward_data(gradient, given, 1, torch.float32),  # noqa: SLF001
    "squares": lambda gradient, given: aten.mse_loss_backward(gradient, given, given, 0),
    "smooth": lambda gradient, given: aten.smooth_l1_loss_backward(gradient, given, given, 0, 1.0),
    "huber": lambda gradient, given: aten.huber_loss_backward(gradient, given, given, 0, 1.0),
    "cross entropy": lambda gradient, given: aten.binary_cross_entropy_backward(
        gradient, given.sigmoid(), given.sigmoid(), None, 0
    ),
    "layer norm": lambda gradient, given: aten.native_layer_norm_backward(
        gradient, given, [20], torch.ones(8, 32, 1), torch.ones(8, 32, 1), None, None, [True, False, False]
    ),
    "group norm": lambda gradient, given: aten.native_group_norm_backward(
        gradient, given, torch.ones(8, 4), torch.ones(8, 4), None, 8, 32, 20, 4, [True, False, False]
    ),
}
LAID = {
    "dense": lambda: torch.randn(8, 32, 20),
    "permuted": lambda: torch.randn(20, 8, 32).permute(1, 2, 0),
    "transposed": lambda: torch.randn(8, 20, 32).transpose(1, 2),
}


def strides(made: Made) -> list[tuple[int, ...]]:
    return [part.stride() for part in (made if isinstance(made, tuple) else (made,)) if part is not None]


@pytest.mark.parametrize("name", MADE)
def test_traced_strides_are_those_of_a_run(name: str) -> None:
    for gradient in LAID.values():
        for given in LAID.values():
            one, other = gradient(), given()
            run = strides(MADE[name](one, other))
            with real_layouts(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
                assert strides(MADE[name](mode.from_tensor(one), mode.from_tensor(other))) == run
