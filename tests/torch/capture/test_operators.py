"""Operators in place: the same bits, written over an argument.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch_closeness import same

from gapless.torch.capture.operators import COMMUTES, IN_PLACE


def arguments_of(target: Any) -> tuple[Any, ...]:
    """Arguments for an operator that can run in place."""
    a, b = torch.randn(40, 300), torch.randn(40, 300)
    name = target.__name__ if callable(target) and not hasattr(target, "_schema") else str(target)
    special = {
        "batch_norm": (a, *torch.rand(4, 300).add(0.1), True, 0.1, 1e-5),
        "dropout": (a, 0.3, 1.4),
        "dropout_backward": (a, b > 0, 1.4),
        "dropout_backward_redrawn": (a, 0.3, 1.4, [1, 40]),
        "aten.threshold_backward.default": (a, b.relu(), 0),
        "aten.sigmoid_backward.default": (a, b.sigmoid()),
        "aten.tanh_backward.default": (a, b.tanh()),
        "aten._softmax_backward_data.default": (a, b.softmax(1), 1, torch.float32),
        "aten._log_softmax_backward_data.default": (a, b.log_softmax(1), 1, torch.float32),
        "aten.mul.Scalar": (a, 0.7),
        "aten.div.Scalar": (a, 0.7),
    }
    binary = name.endswith((".Tensor", "_backward.default"))
    return special.get(name, (a, b) if binary else (a,))


@pytest.mark.parametrize("target", list(IN_PLACE), ids=lambda target: getattr(target, "__name__", str(target)))
def test_operator_in_place_equals_the_plain_one_and_writes_over_its_argument(target: Callable[..., Any]) -> None:
    first, *rest = arguments_of(target)
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        expected = target(first.clone(), *rest)
        torch.set_rng_state(state)
        found = IN_PLACE[target](first, *rest)
    if isinstance(expected, tuple):
        expected, found = expected[0], found[0]
    assert same(found, expected)
    assert found.data_ptr() == first.data_ptr()


@pytest.mark.parametrize("target", sorted(COMMUTES, key=str), ids=str)
def test_arguments_may_be_swapped(target: Callable[..., Any]) -> None:
    a, b = torch.randn(1000), torch.randn(1000)
    assert same(target(a, b), target(b, a))
