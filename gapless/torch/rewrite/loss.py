"""A linear layer with cross entropy in a joint graph, replaced by operators that compute it in chunks of rows.

Needs the extra `torch`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.torch.joint_graph import LOSS, JointGraph
from gapless.torch.kernels import chunked_loss as functions
from gapless.torch.library import Node, torch
from gapless.torch.rewrite.matching import (
    Alternative,
    Lean,
    Rewrites,
    base,
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

__all__ = ["fuse_losses"]

aten = torch.ops.aten
log_softmax = aten._log_softmax.default  # noqa: SLF001
log_softmax_backward = aten._log_softmax_backward_data.default  # noqa: SLF001
_SUM, _MEAN = 2, 1


@dataclass(frozen=True)
class _Pattern:
    """The graph nodes of a linear layer with cross entropy: the layer's product, the loss, and its gradient; then those
    that make the gradients of what the layer is given, its weight and its bias (None without one)."""

    layer: Node
    loss: Node
    back: Node
    of_given: Node
    of_weight: Node
    of_bias: Node | None

    @property
    def arguments(self) -> tuple[Node, Node, Node | None]:
        """Given, weight and bias."""
        given, weight = self.layer.args[-2:]
        return given, weight, self.layer.args[0] if self.layer.target is aten.addmm.default else None


def fuse_losses(joint: JointGraph, rewrites: Rewrites) -> None:
    """Replace every linear layer with cross entropy in a joint graph, where it stands."""
    graph = joint.module.graph
    for pattern in matches(graph, (aten.nll_loss_forward.default,), _find):
        _replace(graph, pattern, rewrites)


def _find(loss: Node) -> _Pattern:
    scaled, _, weights, reduction, _ = loss.args
    softmax = base(scaled)
    require(weights is None and reduction in (_SUM, _MEAN) and softmax.target is log_softmax)
    require(softmax.meta["val"].dtype in (torch.float32, torch.float64))  # others can't count their rows
    require(softmax.meta["val"].dim() == 2 and softmax.args[1] in (1, -1) and softmax.args[2] is False)
    layer = _rows(softmax.args[0])
    require(layer.target in (aten.mm.default, aten.addmm.default) and not layer.kwargs)
    back = one([user for user in readers(softmax) if user.target is aten.nll_loss_backward.default])
    change = one([user for user in readers(softmax) if user.target is log_softmax_backward])
    require(len(readers(softmax)) == 3 and only(change.args[0]) is back)
    require(all(same(node, softmax) for node in (scaled, back.args[1], change.args[1])))
    total = part(loss, 1)  # the weight of all rows
    require(part(loss, 0) is not None and (total is None or list(total.users) == [back]))
    given, weight = layer.args[-2:]
    ends = readers(change)
    products = [end for end in ends if end.target is aten.mm.default]
    of_given = one([end for end in products if same(end.args[0], change) and same(end.args[1], weight, turns=1)])
    of_weight = one([end for end in products if end is not of_given])
    require(
        (same(of_weight.args[0], change, turns=1) and of_weight.args[1] is given)
        or (same(of_weight.args[1], change) and same(of_weight.args[0], given, turns=1))
    )
    of_bias = one([end for end in ends if end not in products], or_none=True)
    require((of_bias is not None) == (layer.target is aten.addmm.default))
    if of_bias is not None:
        require(of_bias.target is aten.sum.dim_IntList and of_bias.args[1] == [0] and same(of_bias.args[0], change))
        require(layer.args[0].meta["val"].dim() == 1)
    return _Pattern(layer, loss, back, of_given, of_weight, of_bias)


def _rows(node: Node) -> Node:
    """The product whose rows, in this order, a node shows; nobody else may look at them."""
    width = node.meta["val"].shape[-1]
    while is_reshape(node):
        require(len(node.users) == 1 and node.meta["val"].shape[-1] == width)
        node = node.args[0]
    require(len(node.users) == 1)
    return node


def _replace(graph: torch.fx.Graph, pattern: _Pattern, rewrites: Rewrites) -> None:
    label, ignored = pattern.loss.args[1], pattern.loss.args[4]
    is_turned = base(pattern.of_weight.args[1]) is base(pattern.arguments[0])
    arguments = (*pattern.arguments, label, ignored, pattern.loss.args[3] == _MEAN, is_turned)
    count = 2 if pattern.of_bias is None else 3
    forward, loss, *kept = put(graph, pattern.loss, functions.linear_cross_entropy_keeping, arguments, 1 + count)
    backward = functions.linear_cross_entropy_backward
    node, *gradients = put(graph, pattern.back, backward, (pattern.back.args[0], *arguments), count)
    node.meta["seq_nr"] = forward.meta["seq_nr"]
    rewrites.lean[forward] = Lean(functions.linear_cross_entropy, tuple(kept))
    scale = (pattern.back.args[0], *kept)
    rewrites.offer(
        node, Alternative("gradients with the loss", functions.linear_cross_entropy_scale, scale, close=LOSS)
    )
    rewrites.close[node] = LOSS
    wanted = {pattern.loss, pattern.back, pattern.layer, pattern.of_given, pattern.of_weight}
    rewrites.stand_in(part(pattern.loss, 0), loss)
    rewrites.stand_in(pattern.of_given, gradients[0])
    rewrites.stand_in(pattern.of_weight, gradients[1])
    if pattern.of_bias is not None:
        with graph.inserting_after(gradients[2]):
            shape = list(pattern.of_bias.meta["val"].shape)
            rewrites.stand_in(pattern.of_bias, graph.call_function(aten.view.default, (gradients[2], shape)))
        wanted.add(pattern.of_bias)
    wanted.update(node for node in graph.nodes if node.target in (log_softmax, log_softmax_backward) and not node.users)
    erase(graph, led_to([pattern.layer, pattern.back, pattern.loss], wanted))
