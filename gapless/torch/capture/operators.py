"""What a capture must know of the operators of joint graphs: which draw random numbers, run in place, read tables.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gapless.torch.capture.program import Call
from gapless.torch.capture.storages import Storages, tensors_in
from gapless.torch.devices import random_state
from gapless.torch.kernels import attention, functions, norms
from gapless.torch.library import Argument, Made, Node, Tensor, torch

__all__ = ["COMMUTES", "IN_PLACE", "is_random", "op_name", "state_bytes", "table_rows", "written_over"]

aten = torch.ops.aten

_RANDOM = functions.RANDOM | {attention.dropped_attention, attention.dropped_attention_keeping}

_COPIES = (aten.clone.default, aten._to_copy.default)  # noqa: SLF001
_TABLES = {
    aten.embedding.default: (1, 0, 0),
    aten.embedding_dense_backward.default: (1, 2, None),
    aten._embedding_bag.default: (1, 0, 0),  # noqa: SLF001
    aten._embedding_bag_backward.default: (1, 6, None),  # noqa: SLF001
    aten.nll_loss_forward.default: (1, 0, 1),
    aten.nll_loss_backward.default: (2, 1, 1),
    aten.nll_loss2d_forward.default: (1, 0, 1),
    aten.nll_loss2d_backward.default: (2, 1, 1),
}
"""Operators that take places in a table: which argument has the places, which one the table, and along what dimension;
None where that argument is the number of its rows."""


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


def table_rows(node: Node, storages: Storages) -> int:
    """How many rows the tables have that an argument's places are in; 1 for what isn't places alone.

    `node`: the argument, or what views or copies it.
    """
    while node.all_input_nodes and (node.target in _COPIES or storages.is_view(node)):
        node = node.all_input_nodes[0]
    is_whole = not any(tensor.dtype.is_floating_point for tensor in tensors_in(storages.fake[node]))
    return _rows(node, storages) if node.op == "placeholder" and is_whole else 1


def _rows(node: Node, storages: Storages) -> int:
    found = []
    for user in node.users:
        if user.target in _TABLES:
            places, table, dimension = _TABLES[user.target]
            of = user.args[table]
            rows = of if dimension is None else storages.fake[of].shape[dimension]
            found.append(int(rows) if user.args[places] is node else 1)
        elif user.target in _COPIES or storages.is_view(user):
            found.append(_rows(user, storages))
        elif user.op != "output":
            found.append(1)
    return min(found, default=1)
