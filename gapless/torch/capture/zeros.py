"""The share of zeros in what each ReLU of a model makes, measured: what sparse storage of them would save.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gapless.torch.library import Argument, Made, named_tensors, torch

from torch.utils._python_dispatch import TorchDispatchMode  # isort: skip  (after the line that names the extra)

__all__ = ["share_of_zeros"]

aten = torch.ops.aten
_CLIPPING = frozenset({aten.relu.default, aten.relu_.default, aten.hardtanh.default, aten.hardtanh_.default})


class _Counting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Looks at what ReLUs return."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Made],
        types: Sequence[type],
        args: Sequence[Argument] = (),
        kwargs: Mapping[str, Argument] | None = None,
    ) -> Made:
        made = func(*args, **(kwargs or {}))
        if func in _CLIPPING and isinstance(made, torch.Tensor):
            self.shares.append(1.0 - float(made.count_nonzero()) / max(1, made.numel()))
        return made


def share_of_zeros(
    model: torch.nn.Module, example_inputs: Sequence[object] | Mapping[str, object]
) -> tuple[float, ...]:
    """The share of zeros in what each ReLU, ReLU6 or hardtanh of a model makes, in the order of its forward pass.

    `example_inputs`: arguments of the model, positional or by name. It runs on them once; buffers and random states are
    as before. Parameters that ask for shares of zeros, such as `encoding.zeros`, take them as they are.
    """
    buffers = named_tensors(model)["buffer"]
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    counting = _Counting()
    try:
        with torch.no_grad(), torch.random.fork_rng(), counting:
            if isinstance(example_inputs, Mapping):
                model(**example_inputs)
            else:
                model(*example_inputs)
    finally:
        with torch.no_grad():
            for name, buffer in buffers.items():
                buffer.copy_(before[name])
    return tuple(counting.shares)
