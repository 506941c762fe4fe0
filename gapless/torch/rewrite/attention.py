"""Attention in a joint graph, replaced by operators that compute it in pieces.

Wherever two batched products are found with a softmax between them, whatever the model calls it. Needs the extra
`torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gapless.torch.joint_graph import ATTENTION, JointGraph
from gapless.torch.kernels import attention as functions
from gapless.torch.kernels.functions import dropout_factor
from gapless.torch.library import Argument, Node, Tensor, torch
from gapless.torch.rewrite.matching import (
    Alternative,
    Lean,
    Rewrites,
    erase,
    is_reshape,
    led_to,
    matches,
    one,
    only,
    part,
    put,
    readers,
    require,
    same,
)

__all__ = ["fuse_attention"]

aten = torch.ops.aten
softmax = aten._softmax.default  # noqa: SLF001
safe_softmax = aten._safe_softmax.default  # noqa: SLF001
softmax_backward = aten._softmax_backward_data.default  # noqa: SLF001
_STEPS = {
    aten.mul.Tensor: "mul",
    aten.mul.Scalar: "mul",
    aten.div.Tensor: "div",
    aten.div.Scalar: "div",
    aten.add.Tensor: "add",
}


@dataclass(frozen=True)
class _Pattern:
    """The graph nodes of an attention: products, softmax and dropout (None without) of the forward pass, then those of
    the backward pass, which make the gradients of query, key and value."""

    scores: Node
    steps: functions.Steps
    softmax: Node
    dropout: Node | None
    product: Node
    gradient: Tensor
    of_query: Node
    of_key: Node
    of_value: Node


def fuse_attention(joint: JointGraph, rewrites: Rewrites) -> None:
    """Replace every attention in a joint graph, where it stands."""
    graph = joint.module.graph
    for pattern in matches(graph, (softmax, safe_softmax), _find):
        _replace(graph, pattern, rewrites)


# -- finding -----------------------------------------------------------------------------------------------------------


def _find(node: Node) -> _Pattern:
    value = node.meta["val"]
    require(value.dim() in (3, 4) and node.args[1] in (-1, value.dim() - 1) and value.is_contiguous())
    require(len(node.args) < 3 or not node.args[2])  # in the type that the scores have
    scores, steps = _steps(node)
    dropout = one([user for user in readers(node) if user.target is aten.native_dropout.default], or_none=True)
    copy = one([user for user in readers(node) if user.target is aten.clone.default], or_none=True)
    if dropout is not None:
        _require_dropout(dropout)
        dropped = part(dropout, 0)
    else:
        dropped = node if copy is None else copy  # which dropout of nothing makes
    require(dropped is not None and len(readers(node)) == (3 if dropped is node else 2))
    product = one(
        [user for user in readers(dropped) if user.target is aten.bmm.default and same(user.args[0], dropped)]
    )
    back = one([user for user in readers(node) if user.target is softmax_backward and same(user.args[1], node)])
    of_value = one([user for user in readers(dropped) if user is not product and user is not back])
    require(of_value.target is aten.bmm.default and same(of_value.args[0], dropped, turns=1))
    whole = scores.meta["val"].shape
    require(whole[-2:] == value.shape[-2:] and product.args[0].meta["val"].shape == whole)
    gradient = of_value.args[1]
    _find_change(back, dropout, gradient, product)
    of_query, of_key = _find_last(back, steps, scores)
    return _Pattern(scores, steps, node, dropout, product, gradient, of_query, of_key, of_value)


def _require_dropout(node: Node) -> None:
    is_on = node.args[2] is not False and 0 < node.args[1] < 1
    require(is_on and node.args[0].meta["val"].device.type == "cpu")  # a GPU draws in an order of its own


def _steps(node: Node) -> tuple[Node, functions.Steps]:
    """The product that a softmax's argument comes from, and what was done to it, first step first."""
    steps: list[tuple[str, Argument]] = []
    whole, node = node.meta["val"], node.args[0]
    while node.target is not aten.bmm.default:
        require(node.op == "call_function" and len(node.users) == 1)
        if is_reshape(node):
            node = node.args[0]
            continue
        require(node.target in _STEPS and not node.kwargs and len(node.args) == 2)
        require(node.meta["val"].shape == whole.shape and node.meta["val"].dtype == whole.dtype)
        name, (first, second) = _STEPS[node.target], node.args
        if name == "add" and not _comes_from_product(first):
            first, second = second, first
        require(isinstance(first, torch.fx.Node) and isinstance(second, torch.fx.Node) == (name == "add"))
        require(first.meta["val"].shape == whole.shape and first.meta["val"].dtype == whole.dtype)
        steps.append((name, second))
        node = first
    require(len(node.users) == 1)
    return node, tuple(reversed(steps))


def _comes_from_product(node: Node) -> bool:
    while isinstance(node, torch.fx.Node) and (is_reshape(node) or node.target in _STEPS):
        node = node.args[0]
    return isinstance(node, torch.fx.Node) and node.target is aten.bmm.default


def _find_change(back: Node, dropout: Node | None, gradient: Tensor, product: Node) -> None:
    """The gradient of the probabilities must be that of the product, through dropout."""
    change = only(back.args[0])
    if dropout is not None:
        mask = part(dropout, 1)
        require(change.target is aten.native_dropout_backward.default and change.args[1] is mask)
        require(mask is not None and len(mask.users) == 1)
        change = only(change.args[0])
    require(change.target is aten.bmm.default and change.args[0] is gradient)
    require(same(change.args[1], product.args[1], turns=1))


def _find_last(back: Node, steps: functions.Steps, scores: Node) -> tuple[Node, Node]:
    """The products that make the gradients of query and key, after the same factors as forward."""
    change, factors = back, [step for step in reversed(steps) if step[0] != "add"]
    while factors or len(readers(change)) == 1:
        user = one(readers(change))
        require(bool(factors) and user.target in _STEPS and same(user.args[0], change))
        require((_STEPS[user.target], user.args[1]) == factors.pop(0))
        change = user
    ends = readers(change)
    require(len(ends) == 2 and all(end.target is aten.bmm.default for end in ends))
    of_key = one([end for end in ends if same(end.args[1], change)])
    of_query = one([end for end in ends if same(end.args[0], change)])
    require(same(of_key.args[0], scores.args[0], turns=1) and same(of_query.args[1], scores.args[1], turns=1))
    return of_query, of_key


# -- replacing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Functions:
    """What stands for an attention: forward with all intermediates and without those that not all gradients need; then
    the gradient, with the number of intermediates that it reads; then the one that reads what was kept for it."""

    keeping: Callable[..., tuple[Tensor, ...]]
    lean: Callable[..., tuple[Tensor, ...]]
    backward: Callable[..., tuple[Tensor, ...]]
    from_kept: Callable[..., tuple[Tensor, ...]]


_PLAIN = _Functions(
    functions.attention_keeping, functions.attention, functions.attention_backward,
    functions.attention_backward_from_probabilities,
)  # fmt: skip
_DROPPED = _Functions(
    functions.dropped_attention_keeping, functions.dropped_attention, functions.dropped_attention_backward,
    functions.dropped_attention_backward_from_probabilities,
)  # fmt: skip
_FLASH = _Functions(
    functions.flash_attention_keeping, functions.flash_attention, functions.flash_attention_backward,
    functions.attention_backward_from_probabilities,
)  # fmt: skip


def _replace(graph: torch.fx.Graph, pattern: _Pattern, rewrites: Rewrites) -> None:
    inputs = (*pattern.scores.args, pattern.product.args[1])
    steps, value = pattern.steps, pattern.softmax.meta["val"]
    shape = list(value.shape)
    whole: tuple[Argument, ...] = (steps, shape, pattern.softmax.target is safe_softmax)
    used, extra_count = _PLAIN, 1
    if pattern.dropout is not None:
        share = pattern.dropout.args[1]
        used, extra_count = _DROPPED, 2
        whole = (*whole, share, dropout_factor(share, value.dtype))
    elif functions.can_flash(inputs[0].meta["val"], inputs[2].meta["val"], steps, shape):
        used = _FLASH
    others = 2 if used is _FLASH else 1
    forward, output, *made = put(graph, pattern.product, used.keeping, (*inputs, *whole), others + extra_count)
    extra = made[others - 1 :]
    needs = (pattern.gradient, *inputs)
    arguments = (*needs, output, made[0], steps, shape) if used is _FLASH else (*needs, *whole)
    node, *gradients = put(graph, _first_back(graph, pattern), used.backward, arguments, 3)
    node.meta["seq_nr"] = forward.meta["seq_nr"]
    rewrites.lean[forward] = Lean(used.lean, tuple(extra))
    if used is _FLASH:
        rewrites.offer(node, Alternative("in pieces", functions.attention_backward, (*needs, *whole), close=ATTENTION))
    from_kept = (*needs, *extra, steps, shape, *whole[4:])
    rewrites.offer(node, Alternative("from probabilities", used.from_kept, from_kept, close=ATTENTION))
    rewrites.close[node] = ATTENTION
    if used is _DROPPED:
        rewrites.draws[node] = forward
    rewrites.stand_in(pattern.product, output)
    for other, gradient in zip((pattern.of_query, pattern.of_key, pattern.of_value), gradients, strict=True):
        rewrites.stand_in(other, gradient)
    products = {pattern.product, pattern.of_query, pattern.of_key, pattern.of_value}
    unread = led_to([pattern.softmax, pattern.scores], {*products, pattern.softmax, pattern.scores})
    unread.update(user for user in pattern.gradient.users if user.target is aten.bmm.default)
    erase(graph, unread)


def _first_back(graph: torch.fx.Graph, pattern: _Pattern) -> Node:
    """The first of the nodes that read the product's gradient."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    return min((node for node in readers(pattern.gradient) if node in order), key=lambda node: order[node])
