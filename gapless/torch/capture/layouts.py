"""What operators return on a CPU, where PyTorch traces other strides or sizes; `joint.py` says what is relied on.

Strides decide the order of sums, and with it the bits of what comes after. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from gapless.torch.kernels import recurrent
from gapless.torch.library import Argument, Made, Tensor, torch

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["entries", "real_layouts"]

Key = TypeVar("Key")
Value = TypeVar("Value")
Layout = Callable[[Tensor, Tensor], Tensor]

aten = torch.ops.aten

_NORMS = {
    aten.native_batch_norm.default: 0,
    aten._native_batch_norm_legit.default: 0,  # noqa: SLF001
    aten._native_batch_norm_legit.no_stats: 0,  # noqa: SLF001
    aten._native_batch_norm_legit_functional.default: 0,  # noqa: SLF001
    aten.native_batch_norm_backward.default: 1,
}
"""Operators whose first output has the layout that an argument suggests, and the place of that argument."""
_WEIGHTS = {
    aten.native_batch_norm.default: 1,
    aten._native_batch_norm_legit.default: 1,  # noqa: SLF001
    aten._native_batch_norm_legit_functional.default: 1,  # noqa: SLF001
    aten.native_layer_norm.default: 2,
    aten.native_group_norm.default: 1,
}
"""Operators whose second and third output, their statistics, have the type of the weight, and its place."""


def _by_elements(gradient: Tensor, given: Tensor) -> Tensor:
    """As a loop over both, where the first decides."""
    shape = torch.broadcast_shapes(gradient.shape, given.shape)
    strides = torch._prims_common.compute_elementwise_output_strides(gradient.expand(shape), given.expand(shape))  # noqa: SLF001
    return gradient.new_empty_strided(shape, strides)


def _dense(gradient: Tensor, given: Tensor) -> Tensor:
    return given.new_empty(given.shape)


def _like_given(gradient: Tensor, given: Tensor) -> Tensor:
    return torch.empty_like(given)


_GRADIENTS: dict[OpOverload, tuple[Layout, int]] = {
    aten.hardtanh_backward.default: (_by_elements, 1),
    aten.elu_backward.default: (_by_elements, 5),
    aten.softplus_backward.default: (_by_elements, 1),
    aten.hardswish_backward.default: (_by_elements, 1),
    aten.hardsigmoid_backward.default: (_by_elements, 1),
    aten.logit_backward.default: (_by_elements, 1),
    aten.native_dropout_backward.default: (_by_elements, 1),
    aten._log_softmax_backward_data.default: (_dense, 1),  # noqa: SLF001
    aten.mse_loss_backward.default: (_dense, 1),
    aten.smooth_l1_loss_backward.default: (_dense, 1),
    aten.huber_loss_backward.default: (_dense, 1),
    aten.binary_cross_entropy_backward.default: (_like_given, 1),
}
"""Gradients of one tensor: how they lie for the gradient that comes in and another argument, and its place."""


@contextlib.contextmanager
def entries(table: dict[Key, Value], values: Mapping[Key, Value], forget: Callable[[], object]) -> Iterator[None]:
    """Let a table have other entries; `forget`: what was cached of it, before and after."""
    before = {key: table[key] for key in values if key in table}
    table.update(values)
    forget()
    try:
        yield
    finally:
        for key in values:
            del table[key]
        table.update(before)
        forget()


@contextlib.contextmanager
def real_layouts() -> Iterator[None]:
    """Let operators be traced with what they return on a CPU."""
    from torch._decomp import decomposition_table
    from torch._subclasses import fake_impls
    from torch._subclasses.fake_tensor import FakeTensorMode

    made = {
        **{op: functools.partial(_gradient, *how) for op, how in _GRADIENTS.items()},
        aten.native_layer_norm_backward.default: functools.partial(_norm_gradients, 5),
        aten.native_group_norm_backward.default: functools.partial(_norm_gradients, 4),
    }
    traced = {op: decomposition_table[op] for op in (*_NORMS, *_WEIGHTS, *made) if op in decomposition_table}
    first = {  # of the two tables, PyTorch looks into this one first
        op: functools.wraps(function)(made[op]) if op in made else _laid_out(function, _NORMS.get(op), _WEIGHTS.get(op))
        for op, function in traced.items()
    }
    known: dict[OpOverload, Callable[..., Made]] = {**made, **{op: first[op] for op in _WEIGHTS if op in first}}
    own = {recurrent.LAYER: _recurrent, **{op: _within(function) for op, function in known.items()}}
    with (
        entries(decomposition_table, first, FakeTensorMode.cache_clear),
        entries(fake_impls.op_implementations_dict, own, FakeTensorMode.cache_clear),
    ):
        yield


def _within(function: Callable[..., Made]) -> Callable[..., Made]:
    def call(mode: FakeTensorMode, op: OpOverload, *arguments: Argument, **options: Argument) -> Made:
        with mode:
            return function(*arguments, **options)

    return call


def _laid_out(traced: Callable[..., Made], place: int | None, weight_place: int | None) -> Callable[..., Made]:
    @functools.wraps(traced)
    def call(*arguments: Argument, **options: Argument) -> Made:
        first, *rest = traced(*arguments, **options)
        given = arguments[place or 0]
        if first is None or given.device.type != "cpu":
            return (first, *rest)
        if place is not None:
            first = first.contiguous(memory_format=torch._prims_common.suggest_memory_format(given))  # noqa: SLF001
        if weight_place is not None and arguments[weight_place] is not None:
            rest[:2] = [part.to(arguments[weight_place].dtype) for part in rest[:2]]
        return (first, *rest)

    return call


def _gradient(layout: Layout, place: int, *arguments: Argument, **options: Argument) -> Made:
    return layout(arguments[0], arguments[place])


def _norm_gradients(weight_place: int, *arguments: Argument, **options: Argument) -> Made:
    """Of the input, of the weight and of the bias, where they are wanted."""
    given, weight, wanted = arguments[1], arguments[weight_place], arguments[-1]
    layout = torch._prims_common.suggest_memory_format(given)  # noqa: SLF001
    kept = given.new_empty(given.shape).contiguous(memory_format=layout) if wanted[0] else None
    parts = [None if weight is None or not is_wanted else torch.empty_like(weight) for is_wanted in wanted[1:]]
    return (kept, *parts)


def _recurrent(mode: FakeTensorMode, op: OpOverload, *arguments: Argument, **options: Argument) -> Made:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch._C._DisableTorchDispatch():  # noqa: SLF001
        found = recurrent.layouts(*arguments)
    with mode:
        return tuple(torch.empty_strided(size, strides, dtype=dtype) for size, strides, dtype in found)
