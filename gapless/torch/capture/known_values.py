"""Values that a model may look into while it is traced: they depend on no argument, parameter or buffer.

Models of `transformers` ask whether positions that they have just counted are packed. Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gapless.torch.library import torch

__all__ = ["known_values"]

aten = torch.ops.aten
_COUNTS = (aten.arange.default, aten.arange.start, aten.arange.start_step)
_MOST_ENTRIES = 2**16
"""What is larger is traced without its values, as PyTorch does with all but scalars."""


@contextlib.contextmanager
def known_values() -> Iterator[None]:
    """Let tensors that are counted, and what is computed of them alone, have their values while they are traced."""
    from torch._subclasses import fake_impls, fake_tensor

    impls, limit = fake_impls.op_implementations_dict, fake_tensor.CONSTANT_NUMEL_LIMIT
    before = {op: impls.get(op) for op in _COUNTS}
    impls.update(dict.fromkeys(_COUNTS, _counted))
    fake_tensor.CONSTANT_NUMEL_LIMIT = _MOST_ENTRIES
    fake_tensor.FakeTensorMode.cache_clear()
    try:
        yield
    finally:
        fake_tensor.CONSTANT_NUMEL_LIMIT = limit
        for op, impl in before.items():
            impls.pop(op)
            if impl is not None:
                impls[op] = impl
        fake_tensor.FakeTensorMode.cache_clear()


def _counted(mode: Any, op: Any, *arguments: Any, **options: Any) -> Any:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch._C._DisableTorchDispatch():  # noqa: SLF001
        real = op(*arguments, **options)
    if real.numel() > _MOST_ENTRIES:
        return mode.from_tensor(real)
    return mode.fake_tensor_converter.from_real_tensor(mode, real, make_constant=True)
