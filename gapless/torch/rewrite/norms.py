"""Batch norms in a joint graph, offered a gradient that is computed from their output. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.torch.close_kinds import NORM
from gapless.torch.kernels import norms as functions
from gapless.torch.library import torch
from gapless.torch.rewrite.matching import Alternative, Rewrites, base, part, readers

__all__ = ["offer_outputs"]

aten = torch.ops.aten
_PRECISE = (torch.float32, torch.float64)


def offer_outputs(joint: Any, parameters: Mapping[str, Any], rewrites: Rewrites) -> None:
    """Offer a gradient from the output to every batch norm of a joint graph that has one in training."""
    for node in list(joint.module.graph.nodes):
        if node.target is aten.native_batch_norm_backward.default:
            norm = node.args[5].args[0] if isinstance(node.args[5], torch.fx.Node) else None
            if norm is not None and norm.target is functions.BATCH_NORM.default and _can(joint, norm, node, parameters):
                _offer(norm, node, rewrites)


def _can(joint: Any, norm: Any, back: Any, parameters: Mapping[str, Any]) -> bool:
    gamma, beta = norm.args[1:3]
    roles = [joint.inputs.get(node) for node in (gamma, beta)]
    if any(role is None or role.kind != "parameter" for role in roles):
        return False
    values = [parameters[role.name] for role in roles]
    is_precise = norm.args[0].meta["val"].dtype in _PRECISE and values[0].dtype in _PRECISE
    return back.args[7] is True and back.args[9][0] and is_precise and functions.is_invertible(*values)


def _offer(norm: Any, back: Any, rewrites: Rewrites) -> None:
    gamma, beta = norm.args[1:3]
    norm.target = functions.batch_norm  # which can run in place
    output = part(norm, 0)
    rest = (gamma, beta, back.args[6], back.args[8], back.args[9])
    uses = readers(output)
    activation = uses[0] if len(uses) == 1 else None
    if activation is not None and activation.target is aten.leaky_relu.default and _slope(activation) > 0:
        given: tuple[Any, ...] = (back.args[0], activation, _slope(activation), *rest)
        function = functions.batch_norm_backward_from_activation
        rewrites.offer(back, Alternative("from activation", function, given, close=NORM))
        return
    given = (back.args[0], output, *rest)
    rewrites.offer(back, Alternative("from output", functions.batch_norm_backward_from_output, given, close=NORM))
    for user in uses:
        if user.target is aten.relu.default:
            _offer_input(user, output, rewrites)


def _slope(activation: Any) -> float:
    return float(activation.args[1]) if len(activation.args) > 1 else 0.01


def _offer_input(activation: Any, given: Any, rewrites: Rewrites) -> None:
    """A ReLU's gradient from its input, which has the sign of its output."""
    for node in readers(activation):
        if node.target is aten.threshold_backward.default and base(node.args[1]) is activation and node.args[2] == 0:
            other = Alternative("from input", aten.threshold_backward.default, (node.args[0], given, 0))
            rewrites.offer(node, other)
