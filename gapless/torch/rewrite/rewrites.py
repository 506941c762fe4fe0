"""Rewrites of a joint graph: operators that are exactly eager's, operators with less to keep, and choices among them.

Batch norms are offered a gradient that is computed from their output. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gapless.torch.joint_graph import ATTENTION, LOSS, NORM, JointGraph
from gapless.torch.kernels import functions, norms, recurrent
from gapless.torch.library import Argument, Node, Tensor, torch
from gapless.torch.rewrite.attention import fuse_attention
from gapless.torch.rewrite.convolutions import split_convolutions
from gapless.torch.rewrite.loss import fuse_losses
from gapless.torch.rewrite.matching import Alternative, Lean, Rewrites, base, maker, part, readers, value_of

__all__ = ["rewrite"]


aten = torch.ops.aten


def rewrite(
    joint: JointGraph, close: Collection[str] = (), parameters: Mapping[str, Tensor] | None = None
) -> tuple[JointGraph, Rewrites]:
    """Rewrite a joint graph in place; the graph with its outputs as they are now, and what there is to choose.

    `close`: the kinds of implementations, of `CLOSE`, that are only close to eager's and wanted all the same.
    `parameters`: of the traced module, by name; those of batch norms are looked at.
    """
    rewrites = Rewrites()
    if ATTENTION in close:
        fuse_attention(joint, rewrites)
    if LOSS in close:
        fuse_losses(joint, rewrites)
    split_convolutions(joint, rewrites)  # before what is offered reads its gradients
    if NORM in close:
        _offer_outputs(joint, parameters or {}, rewrites)
    joint = replace(joint, outputs=tuple((rewrites.replaced.get(value, value), role) for value, role in joint.outputs))
    for node in list(joint.module.graph.nodes):
        if node.target is aten.native_dropout.default and _on_cpu(node.args[0]):
            _exact_dropout(node)
        elif node.target is aten.native_dropout_backward.default:
            _exact_dropout_backward(node, rewrites)
        elif node.target is aten.max_pool2d_with_indices.default:
            _offer_small_places(joint, node, rewrites)
        elif node.target is recurrent.LAYER:
            node.target = recurrent.layer
        elif node.target is aten.threshold_backward.default:
            _offer_bits(joint, node, rewrites)
    return joint, rewrites


def _on_cpu(node: Node) -> bool:
    return bool(node.meta["val"].device.type == "cpu")  # on a GPU, eager runs native_dropout itself


def _is_contiguous(node: Node) -> bool:
    return bool(node.meta["val"].is_contiguous())


def _exact_dropout(node: Node) -> None:
    tensor, share, is_training = node.args
    if is_training is not False and 0 < share < 1:
        node.target = functions.dropout
        node.args = (tensor, share, functions.dropout_factor(share, tensor.meta["val"].dtype))


def _exact_dropout_backward(node: Node, rewrites: Rewrites) -> None:
    gradient, mask, _ = node.args
    draw = maker(mask)
    if draw.target is functions.dropout:
        share, factor = draw.args[1:]
        node.target, node.args = functions.dropout_backward, (gradient, mask, factor)
        strides = list(draw.meta["val"][1].stride())
        options = (gradient, share, factor, strides)
        redrawn = Alternative("redrawn", functions.dropout_backward_redrawn, options, draw)
        rewrites.offer(node, redrawn)


def _offer_small_places(joint: JointGraph, node: Node, rewrites: Rewrites) -> None:
    """A max-pooling's gradient from places in a byte instead of eight, where windows are small."""
    tensor, kernel, *options = _pool_options(node)
    users = [user for part in node.users if part.args[1] == 1 for user in part.users]
    backward = aten.max_pool2d_with_indices_backward.default
    if kernel[0] * kernel[1] > 256 or not users or any(user.target is not backward for user in users):
        return
    if not _is_contiguous(tensor):  # the gradient's strides follow the input's, which wouldn't be known
        return
    node.args = (tensor, kernel, *options)
    rewrites.lean[node] = Lean(node.target, (small := value_of(joint.module.graph, node, 2),))
    node.target = functions.max_pool
    rest = (list(tensor.meta["val"].shape), kernel, *options)
    for user in users:
        gradient, place = user.args[0], user.args[-1]
        user.target, user.args = functions.max_pool_backward, (gradient, place, *rest)
        given = (gradient, small, *rest)
        rewrites.offer(user, Alternative("places in bytes", functions.max_pool_backward_from_bytes, given))


def _pool_options(node: Node) -> tuple[Argument, ...]:
    tensor, kernel, *rest = node.args
    given = dict(enumerate(rest))
    stride = given.get(0) or kernel
    options = [kernel, stride, given.get(1, [0]), given.get(2, [1])]
    return (
        tensor,
        *(2 * list(option) if len(option) == 1 else list(option) for option in options),
        bool(given.get(3, False)),
    )


def _offer_bits(joint: JointGraph, node: Node, rewrites: Rewrites) -> None:
    """A ReLU's gradient from one bit an element, where no other op of the backward pass reads its output."""
    gradient, output, threshold = node.args
    relu = maker(output)
    order = {other: number for number, other in enumerate(joint.module.graph.nodes)}
    last = max(order[maker(value)] for value, role in joint.outputs if role.kind == "output")
    others = [user for user in readers(relu) if user is not node and order[user] > last]
    if threshold != 0 or relu.target is not aten.relu.default or others:
        return
    if not (_is_contiguous(output) and _is_contiguous(gradient)):  # bits lie in this order
        return
    with joint.module.graph.inserting_after(relu):
        bits = joint.module.graph.call_function(functions.relu_bits, (relu,))
    rewrites.beside[bits] = relu
    rewrites.offer(node, Alternative("1-bit mask", functions.relu_bits_backward, (gradient, bits)))


_PRECISE = (torch.float32, torch.float64)


def _offer_outputs(joint: JointGraph, parameters: Mapping[str, Tensor], rewrites: Rewrites) -> None:
    """Offer a gradient from the output to every batch norm of a joint graph that has one in training."""
    for node in list(joint.module.graph.nodes):
        if node.target is aten.native_batch_norm_backward.default:
            norm = node.args[5].args[0] if isinstance(node.args[5], torch.fx.Node) else None
            if norm is not None and norm.target is norms.BATCH_NORM.default and _can(joint, norm, node, parameters):
                _offer(norm, node, rewrites)


def _can(joint: JointGraph, norm: Node, back: Node, parameters: Mapping[str, Tensor]) -> bool:
    gamma, beta = norm.args[1:3]
    roles = [role for role in map(joint.inputs.get, (gamma, beta)) if role is not None and role.kind == "parameter"]
    if len(roles) < 2:
        return False
    values = [parameters[role.name] for role in roles]
    is_precise = norm.args[0].meta["val"].dtype in _PRECISE and values[0].dtype in _PRECISE
    return back.args[7] is True and back.args[9][0] and is_precise and norms.is_invertible(*values)


def _offer(norm: Node, back: Node, rewrites: Rewrites) -> None:
    gamma, beta = norm.args[1:3]
    norm.target = norms.batch_norm  # which can run in place
    output = part(norm, 0)
    rest = (gamma, beta, back.args[6], back.args[8], back.args[9])
    uses = readers(output)
    activation = uses[0] if len(uses) == 1 else None
    if activation is not None and activation.target is aten.leaky_relu.default and _slope(activation) > 0:
        given: tuple[Argument, ...] = (back.args[0], activation, _slope(activation), *rest)
        function = norms.batch_norm_backward_from_activation
        rewrites.offer(back, Alternative("from activation", function, given, close=NORM))
        return
    given = (back.args[0], output, *rest)
    rewrites.offer(back, Alternative("from output", norms.batch_norm_backward_from_output, given, close=NORM))
    for user in uses:
        if user.target is aten.relu.default:
            _offer_input(user, output, rewrites)


def _slope(activation: Node) -> float:
    return float(activation.args[1]) if len(activation.args) > 1 else 0.01


def _offer_input(activation: Node, given: Node, rewrites: Rewrites) -> None:
    """A ReLU's gradient from its input, which has the sign of its output."""
    for node in readers(activation):
        if node.target is aten.threshold_backward.default and base(node.args[1]) is activation and node.args[2] == 0:
            other = Alternative("from input", aten.threshold_backward.default, (node.args[0], given, 0))
            rewrites.offer(node, other)
