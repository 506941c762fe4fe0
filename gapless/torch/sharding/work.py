"""What an op computes and moves, whole and on a shard. Needs the extra `torch`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.layouts import split_dimension
from gapless.torch.library import Node, Tensor, torch
from gapless.torch.sharding.joint import tensor_arguments, tensors_of
from gapless.torch.sharding.placements import local_shape
from gapless.torch.sharding.strategies import Strategy

__all__ = ["Work", "local_bytes"]

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)


def local_bytes(layout: str, tensor: Tensor, mesh: Sequence[int]) -> int:
    """Of each device's shard."""
    return math.prod(local_shape(layout, tensor.shape, mesh)) * int(tensor.element_size())


class Work:
    """Time of a node that computes, by strategy: a roofline of its floating-point operations and the bytes of shards.

    Operations are divided over each axis along which one of the tensors is split.
    """

    def __init__(self, node: Node, costs: MeshCosts) -> None:
        self.costs = costs
        self.inputs = [tensors_of(argument)[0] for argument in tensor_arguments(node)]
        self.outputs = tensors_of(node)
        self.flops = _flops(node)
        self.is_half = any(value is not None and value.dtype in _HALVES for value in self.outputs)

    def duration_s(self, strategy: Strategy) -> float:
        """On each device."""
        mesh = self.costs.shape
        layouts = (*strategy.inputs, *strategy.outputs)
        pairs = zip(layouts, (*self.inputs, *self.outputs), strict=True)
        moved = sum(local_bytes(layout, tensor, mesh) for layout, tensor in pairs if layout and tensor is not None)
        parts = zip(*(layout.split(",") for layout in layouts if layout), strict=True)
        shares = [
            devices
            for devices, along in zip(mesh, parts, strict=True)
            if any(split_dimension(part) is not None for part in along)
        ]
        return self.costs.kernel_s(self.flops / math.prod(shares), moved, self.is_half)


def _flops(node: Node) -> float:
    """Of the whole op; 0 for those whose time is that of the bytes."""
    values = torch.fx.node.map_arg((node.args, node.kwargs), lambda argument: tensors_of(argument)[0])
    arguments, options = values
    if node.target is _aten._scaled_dot_product_flash_attention_for_cpu.default:  # noqa: SLF001
        return float(sdpa_flop_count(*(each.shape for each in arguments[:3])))
    if node.target is _aten._scaled_dot_product_flash_attention_for_cpu_backward.default:  # noqa: SLF001
        return float(sdpa_backward_flop_count(*(each.shape for each in arguments[:4])))
    formula = flop_registry.get(node.target.overloadpacket)
    if formula is None:
        return 0.0
    return float(formula(*arguments, **options, out_val=node.meta["val"]))
