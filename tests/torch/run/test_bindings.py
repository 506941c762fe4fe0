"""Python bindings in the place of operators: taken only where they ask for the same overload with the same arguments.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.torch.kernels import functions
from gapless.torch.run.bindings import Bindings

aten = torch.ops.aten
graph = torch.fx.Graph()
one, other = graph.placeholder("one"), graph.placeholder("other")
FAKE = {one: torch.empty(3, 4, device="meta"), other: torch.empty(3, 4, device="meta")}


@pytest.mark.parametrize(
    ("operator", "arguments", "options", "binding"),
    [
        (aten.mul.Tensor, (one, other), {}, torch.mul),
        (aten.mul.Tensor, (one, 2.0), {}, torch.mul),
        (aten.view.default, (one, [12]), {}, torch.Tensor.view),
        (aten.add_.Tensor, (one, other), {"alpha": 2}, torch.Tensor.add_),
        (aten.sum.dim_IntList, (one, [0], True), {}, torch.sum),
    ],
)
def test_binding_that_asks_for_the_operator_is_taken(
    operator: Any, arguments: tuple[Any, ...], options: dict[str, Any], binding: Callable[..., Any]
) -> None:
    assert Bindings(FAKE).of(operator, arguments, options) == binding


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten.mul.Scalar, (one, 2.0)),  # torch.mul makes a tensor of the number
        (aten.threshold_backward.default, (one, other, 0)),  # has no binding
        (aten._softmax.default, (one, -1, False, 3)),  # noqa: SLF001  (takes no such arguments)
    ],
)
def test_operator_that_no_binding_asks_for_is_called_itself(operator: Any, arguments: tuple[Any, ...]) -> None:
    assert Bindings(FAKE).of(operator, arguments, {}) is operator._op  # noqa: SLF001


def test_other_functions_stay_as_they_are() -> None:
    assert Bindings(FAKE).of(functions.relu_bits, (one,), {}) is functions.relu_bits
