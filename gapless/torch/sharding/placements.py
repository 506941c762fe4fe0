"""Layouts as DTensor has them: parts of a layout to placements and back, and shapes of shards.

Needs the extra `torch`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from gapless.profiles.layouts.layouts import split_dimension
from gapless.torch.library import Tensor, torch

__all__ = [
    "MASK",
    "Meta",
    "fits",
    "local_shape",
    "mesh_of",
    "meta_of",
    "part_of",
    "placement_of",
    "placements_of",
    "spec_of",
]

Meta: TypeAlias = TensorMeta
MASK = "P(mask)"
_PLAIN: dict[str, Placement] = {"R": Replicate(), "P": Partial("sum"), "P(avg)": Partial("avg")}


def part_of(placement: object) -> str | None:
    """The part of a layout that stands for a placement; None for those that layouts don't have."""
    if isinstance(placement, Shard) and type(placement) is Shard:
        return f"S{placement.dim}"
    if type(placement) in (Replicate, Partial):
        return {str(each): part for part, each in _PLAIN.items()}.get(str(placement))
    return MASK if type(placement).__name__ in ("MaskPartial", "_MaskPartial") else None


def placement_of(part: str) -> Placement:
    """The placement of a part, other than that of an embedding's rows, which only the embedding itself can make."""
    dimension = split_dimension(part)
    return _PLAIN[part] if dimension is None else Shard(dimension)


def placements_of(layout: str) -> tuple[Placement, ...]:
    """The placements of a layout, one an axis."""
    return tuple(placement_of(part) for part in layout.split(","))


@functools.cache
def mesh_of(shape: tuple[int, ...]) -> DeviceMesh:
    """A mesh to ask rules about: it has no processes behind it."""
    return DeviceMesh("cpu", torch.arange(math.prod(shape)).view(shape), _init_backend=False, _rank=0)


def meta_of(tensor: Tensor) -> Meta:
    """What rules know of a tensor."""
    return TensorMeta(torch.Size(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def spec_of(mesh: DeviceMesh, placements: Sequence[Placement], meta: Meta) -> DTensorSpec:
    """What DTensor calls a layout of a tensor."""
    return DTensorSpec(mesh, tuple(placements), tensor_meta=meta)


def fits(layout: str, shape: Sequence[int], mesh: Sequence[int]) -> bool:
    """Whether every device has a shard of the same size, and not an empty one."""
    pieces: dict[int, int] = {}
    for part, devices in zip(layout.split(","), mesh, strict=True):
        dimension = split_dimension(part)
        if dimension is not None:
            pieces[dimension] = pieces.get(dimension, 1) * devices
    return all(d < len(shape) and shape[d] > 0 and shape[d] % count == 0 for d, count in pieces.items())


def local_shape(layout: str, shape: Sequence[int], mesh: Sequence[int]) -> tuple[int, ...]:
    """Of each device's shard, where the layout fits."""
    sizes = list(shape)
    for part, devices in zip(layout.split(","), mesh, strict=True):
        dimension = split_dimension(part)
        if dimension is not None:
            sizes[dimension] //= devices
    return tuple(sizes)
