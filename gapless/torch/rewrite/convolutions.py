"""Gradients of convolutions in two operators, of the parameters and of the input, so that the input can go in between.

`aten.convolution_backward` gives all three gradients at once. Asked for some of them, it gives the same bits on a CPU,
in the same time together. The gradient of the input alone is also the transposed convolution of the output's gradient,
which doesn't read the input at all. Needs the extra `torch`.
"""

from __future__ import annotations

import operator

from gapless.torch.joint_graph import JointGraph
from gapless.torch.kernels.functions import convolution_input_gradient
from gapless.torch.library import Node, Tensor, torch
from gapless.torch.rewrite.matching import Alternative, Rewrites, part

__all__ = ["split_convolutions"]

backward = torch.ops.aten.convolution_backward.default


def split_convolutions(joint: JointGraph, rewrites: Rewrites) -> None:
    """Split each convolution's backward operator on a CPU: first the parameters' gradients, then the input's."""
    graph = joint.module.graph
    for node in list(graph.nodes):
        if node.target is not backward or not node.args[-1][0] or node.args[1].meta["val"].device.type != "cpu":
            continue
        _, weight, bias = node.args[-1]
        of_input = node
        if weight or bias:
            _asked_for(graph, node, (False, weight, bias), rewrites)
            of_input = _asked_for(graph, node, (True, False, False), rewrites)
            graph.erase_node(node)
        if _is_transposable(of_input):
            shape = list(of_input.args[1].meta["val"].shape)
            given = (of_input.args[0], shape, of_input.args[2], *of_input.args[4:10])
            rewrites.offer(of_input, Alternative("from the gradient", convolution_input_gradient, given))


def _asked_for(graph: torch.fx.Graph, node: Node, mask: tuple[bool, bool, bool], rewrites: Rewrites) -> Node:
    """The same operator for some of its gradients, before the one for all, whose values it takes over."""
    with graph.inserting_before(node):
        call = graph.call_function(backward, (*node.args[:-1], list(mask)))
        call.meta.update(node.meta)
        for place, is_wanted in enumerate(mask):
            value = part(node, place) if is_wanted else None
            if value is not None:
                rewrites.stand_in(value, graph.call_function(operator.getitem, (call, place)))
                graph.erase_node(value)
    return call


def _is_transposable(node: Node) -> bool:
    """Whether the transposed convolution has the bits and the layout of the operator's own gradient of the input.

    It chooses its layout by the gradient, and in the last-channel layout it sums groups in another order.
    """
    gradient, given = (argument.meta.get("val") for argument in node.args[:2])
    if gradient is None:
        return False
    if _is_laid_out(gradient, given, torch.contiguous_format):
        return True
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(given.dim())
    return last is not None and node.args[9] == 1 and _is_laid_out(gradient, given, last)


def _is_laid_out(gradient: Tensor, given: Tensor, layout: torch.memory_format) -> bool:
    return bool(gradient.is_contiguous(memory_format=layout) and given.is_contiguous(memory_format=layout))
