"""Layouts of what operators return, traced as a CPU's operators really return them.

PyTorch traces batch norm as if its output had the strides of its input. A CPU's is contiguous, or has channels last:
all that follows has other views and other arithmetic then. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from gapless.torch.library import torch

__all__ = ["real_layouts"]

aten = torch.ops.aten
_NORMS = {
    aten.native_batch_norm.default: 0,
    aten._native_batch_norm_legit.default: 0,  # noqa: SLF001
    aten._native_batch_norm_legit.no_stats: 0,  # noqa: SLF001
    aten._native_batch_norm_legit_functional.default: 0,  # noqa: SLF001
    aten.native_batch_norm_backward.default: 1,
}
"""Operators whose first output has the layout that an argument suggests, and the place of that argument."""


@contextlib.contextmanager
def real_layouts() -> Iterator[None]:
    """Let batch norms be traced with the layouts that they have on a CPU."""
    from torch._decomp import decomposition_table
    from torch._subclasses.fake_tensor import FakeTensorMode

    before = {op: decomposition_table[op] for op in _NORMS if op in decomposition_table}
    decomposition_table.update({op: _laid_out(traced, _NORMS[op]) for op, traced in before.items()})
    FakeTensorMode.cache_clear()
    try:
        yield
    finally:
        decomposition_table.update(before)
        FakeTensorMode.cache_clear()


def _laid_out(traced: Callable[..., Any], place: int) -> Callable[..., Any]:
    @functools.wraps(traced)
    def call(*arguments: Any, **options: Any) -> Any:
        first, *rest = traced(*arguments, **options)
        given = arguments[place]
        if first is not None and given.device.type == "cpu":
            first = first.contiguous(memory_format=torch._prims_common.suggest_memory_format(given))  # noqa: SLF001
        return (first, *rest)

    return call
