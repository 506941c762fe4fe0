"""Rewrites of a joint graph: operators that are exactly eager's, operators with less to keep, and choices among them.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gapless.torch.capture.joint import JointGraph
from gapless.torch.capture.program import Call
from gapless.torch.close_kinds import ATTENTION, LOSS, NORM
from gapless.torch.kernels import attention, functions
from gapless.torch.library import torch
from gapless.torch.rewrite.attention import fuse_attention
from gapless.torch.rewrite.loss import fuse_losses
from gapless.torch.rewrite.matching import Alternative, Rewrites, maker, readers
from gapless.torch.rewrite.norms import batch_norm, batch_norm_in_place, offer_outputs

__all__ = [
    "COMMUTES",
    "IN_PLACE",
    "is_random",
    "op_name",
    "rewrite",
    "state_bytes",
    "written_over",
]

aten = torch.ops.aten

_RANDOM = functions.RANDOM | {attention.dropped_attention, attention.dropped_attention_keeping}


def rewrite(
    joint: JointGraph, close: Collection[str] = (), parameters: Mapping[str, Any] | None = None
) -> tuple[JointGraph, Rewrites]:
    """Rewrite a joint graph where it stands, and tell what stands for its outputs now.

    `close`: the kinds of implementations, of `CLOSE`, that are only close to eager's and wanted all the same.
    `parameters`: of the traced module, by name; those of batch norms are looked at.
    """
    found = Rewrites()
    if ATTENTION in close:
        fuse_attention(joint, found)
    if LOSS in close:
        fuse_losses(joint, found)
    if NORM in close:
        offer_outputs(joint, parameters or {}, found)
    joint = replace(joint, outputs=tuple((found.replaced.get(value, value), role) for value, role in joint.outputs))
    for node in list(joint.module.graph.nodes):
        if node.target is aten.native_dropout.default and _on_cpu(node.args[0]):
            _exact_dropout(node)
        elif node.target is aten.native_dropout_backward.default:
            _exact_dropout_backward(node, found)
        elif node.target is aten.max_pool2d_with_indices.default:
            _small_max_pool(node)
        elif node.target is aten.threshold_backward.default:
            _offer_bits(joint, node, found)
    return joint, found


def _on_cpu(node: Any) -> bool:
    return bool(node.meta["val"].device.type == "cpu")  # on a GPU, eager runs native_dropout itself


def _is_contiguous(node: Any) -> bool:
    return bool(node.meta["val"].is_contiguous())


def _exact_dropout(node: Any) -> None:
    tensor, share, is_training = node.args
    if is_training is not False and 0 < share < 1:
        node.target = functions.dropout
        node.args = (tensor, share, functions.dropout_factor(share, tensor.meta["val"].dtype))


def _exact_dropout_backward(node: Any, found: Rewrites) -> None:
    gradient, mask, _ = node.args
    draw = maker(mask)
    if draw.target is functions.dropout:
        share, factor = draw.args[1:]
        node.target, node.args = functions.dropout_backward, (gradient, mask, factor)
        strides = list(draw.meta["val"][1].stride())
        options = (gradient, share, factor, strides)
        redrawn = Alternative("redrawn", functions.dropout_backward_redrawn, options, draw)
        found.offer(node, redrawn)


def _small_max_pool(node: Any) -> None:
    """Places in a byte instead of eight, where only the backward pass reads them and windows are small."""
    tensor, kernel, stride, padding, dilation, ceil_mode = _pool_options(node)
    readers = [user for part in node.users if part.args[1] == 1 for user in part.users]
    backward = aten.max_pool2d_with_indices_backward.default
    if kernel[0] * kernel[1] > 256 or not readers or any(user.target is not backward for user in readers):
        return
    if not _is_contiguous(tensor):  # the gradient's strides follow the input's, which wouldn't be known
        return
    node.target, node.args = functions.max_pool, (tensor, kernel, stride, padding, dilation, ceil_mode)
    shape = list(tensor.meta["val"].shape)
    for user in readers:
        user.target = functions.max_pool_backward
        user.args = (user.args[0], user.args[-1], shape, kernel, stride, padding, dilation, ceil_mode)


def _pool_options(node: Any) -> tuple[Any, ...]:
    tensor, kernel, *rest = node.args
    given = dict(enumerate(rest))
    stride = given.get(0) or kernel
    options = [kernel, stride, given.get(1, [0]), given.get(2, [1])]
    return tensor, *(2 * list(its) if len(its) == 1 else list(its) for its in options), bool(given.get(3, False))


def _offer_bits(joint: JointGraph, node: Any, found: Rewrites) -> None:
    """A ReLU's gradient from one bit an element, where no other op of the backward pass reads its output."""
    gradient, output, threshold = node.args
    relu = maker(output)
    loss = _loss_maker(joint)
    order = {its: number for number, its in enumerate(joint.module.graph.nodes)}
    others = [user for user in readers(relu) if user is not node and order[user] > order[loss]]
    if threshold != 0 or relu.target is not aten.relu.default or others:
        return
    if not (_is_contiguous(output) and _is_contiguous(gradient)):  # bits lie in this order
        return
    with joint.module.graph.inserting_after(relu):
        bits = joint.module.graph.call_function(functions.relu_bits, (relu,))
    found.beside[bits] = relu
    found.offer(node, Alternative("1-bit mask", functions.relu_bits_backward, (gradient, bits)))


def _loss_maker(joint: JointGraph) -> Any:
    (loss,) = [value for value, role in joint.outputs if role.kind == "loss"]
    return maker(loss)


def _first_over(function: Any, title: str) -> Any:
    """An operator that writes what it returns into an argument of that title, given its first argument for that."""

    def call(first: Any, *rest: Any, **options: Any) -> Any:
        return function(first, *rest, **{title: first}, **options)

    call.__qualname__ = f"{function} over its first argument"  # which the cache of measured operators knows it by
    return call


softmax_backward = aten._softmax_backward_data  # noqa: SLF001
log_softmax_backward = aten._log_softmax_backward_data  # noqa: SLF001

IN_PLACE: dict[Any, Any] = {
    aten.relu.default: aten.relu_.default,
    aten.add.Tensor: aten.add_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Scalar: aten.div_.Scalar,
    aten.sigmoid.default: aten.sigmoid_.default,
    aten.tanh.default: aten.tanh_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.silu.default: aten.silu_.default,
    aten.leaky_relu.default: aten.leaky_relu_.default,
    aten.gelu.default: aten.gelu_.default,
    batch_norm: batch_norm_in_place,
    functions.dropout: functions.dropout_in_place,
    functions.dropout_backward: functions.dropout_backward_in_place,
    functions.dropout_backward_redrawn: functions.dropout_backward_redrawn_in_place,
    aten.threshold_backward.default: _first_over(aten.threshold_backward.grad_input, "grad_input"),
    aten.gelu_backward.default: _first_over(aten.gelu_backward.grad_input, "grad_input"),
    aten.silu_backward.default: _first_over(aten.silu_backward.grad_input, "grad_input"),
    aten.sigmoid_backward.default: _first_over(aten.sigmoid_backward.grad_input, "grad_input"),
    aten.tanh_backward.default: _first_over(aten.tanh_backward.grad_input, "grad_input"),
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
    return [its for its in calls if isinstance(its.arguments[0], torch.fx.Node)]


def is_random(node: Any) -> bool:
    """Whether an op draws random numbers."""
    if node.target in _RANDOM:
        return True
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    titles = [its.name for its in node.target._schema.arguments]  # noqa: SLF001
    given = {**dict(zip(titles, node.args, strict=False)), **node.kwargs}
    return bool(given.get("dropout_p") != 0.0)  # attention is tagged as random, and is not without dropout


def state_bytes(device: Any) -> int:
    """The bytes of a device's random state."""
    state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    return int(state.numel())


def op_name(node: Any) -> str:
    """What a node runs, for people: `aten.mm.default`, or the name of one of our own functions."""
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(target.__name__)  # noqa: SLF001
