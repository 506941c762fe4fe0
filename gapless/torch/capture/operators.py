"""What a capture must know of the operators of joint graphs: which draw random numbers, which run in place.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gapless.torch.capture.program import Call
from gapless.torch.devices import random_state
from gapless.torch.kernels import attention, functions, norms
from gapless.torch.library import Argument, Made, Node, Tensor, torch

__all__ = ["COMMUTES", "IN_PLACE", "is_random", "op_name", "state_bytes", "written_over"]

aten = torch.ops.aten

_RANDOM = functions.RANDOM | {attention.dropped_attention, attention.dropped_attention_keeping}


def _first_over(function: Callable[..., Made], title: str) -> Callable[..., Made]:
    """An operator that writes what it returns into an argument of that title, given its first argument for that."""

    def call(first: Tensor, *rest: Argument, **options: Argument) -> Made:
        return function(first, *rest, **{title: first}, **options)

    call.__qualname__ = f"{function} over its first argument"  # which the cache of measured operators knows it by
    return call


_PLAIN = ("relu", "sigmoid", "tanh", "hardtanh", "silu", "leaky_relu", "gelu")
_GRADIENTS = (
    aten.threshold_backward, aten.gelu_backward, aten.silu_backward, aten.sigmoid_backward, aten.tanh_backward,
)  # fmt: skip
softmax_backward = aten._softmax_backward_data  # noqa: SLF001
log_softmax_backward = aten._log_softmax_backward_data  # noqa: SLF001

IN_PLACE: dict[Callable[..., Made], Callable[..., Made]] = {
    **{getattr(aten, name).default: getattr(aten, f"{name}_").default for name in _PLAIN},
    aten.add.Tensor: aten.add_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Scalar: aten.div_.Scalar,
    norms.batch_norm: norms.batch_norm_in_place,
    functions.dropout: functions.dropout_in_place,
    functions.dropout_backward: functions.dropout_backward_in_place,
    functions.dropout_backward_redrawn: functions.dropout_backward_redrawn_in_place,
    **{op.default: _first_over(op.grad_input, "grad_input") for op in _GRADIENTS},
    softmax_backward.default: _first_over(softmax_backward.out, "grad_input"),
    log_softmax_backward.default: _first_over(log_softmax_backward.out, "out"),
}
"""Operators that may write over their first argument, and how: by elements, or by rows once a row is read."""

COMMUTES = frozenset({aten.add.Tensor, aten.mul.Tensor})
"""Of these, those that may write over their second argument as well: swapped, they give the same bits."""


def written_over(call: Call) -> list[Call]:
    """The calls that compute the same and write it over their first argument."""
    function = IN_PLACE.get(call.function)
    if function is None:
        return []
    calls = [replace(call, function=function, in_place=True)]
    if call.function in COMMUTES and not call.options:
        first, second, *rest = call.arguments
        calls.append(replace(calls[0], arguments=(second, first, *rest)))
    return [written for written in calls if isinstance(written.arguments[0], torch.fx.Node)]


def is_random(node: Node) -> bool:
    """Whether an op draws random numbers."""
    if node.target in _RANDOM:
        return True
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    titles = [argument.name for argument in node.target._schema.arguments]  # noqa: SLF001
    given = {**dict(zip(titles, node.args, strict=False)), **node.kwargs}
    return bool(given.get("dropout_p") != 0.0)  # attention is tagged as random, and is not without dropout


def state_bytes(device: torch.device) -> int:
    """The bytes of a device's random state."""
    return int(random_state(device).numel())


def op_name(node: Node) -> str:
    """What a node runs, for people: `aten.mm.default`, or the name of one of our own functions."""
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(target.__name__)  # noqa: SLF001
