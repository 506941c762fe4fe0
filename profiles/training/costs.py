"""From work to implementations: what an operator computes and moves, and what that costs on a device.

Of convolutions, the algorithms that apply, how long they take, and the workspace they need. All but one are dense
matrix products in disguise; they differ in the products they save and in the traffic they add:

- implicit-precomp-gemm: the product is formed on the fly from a table of offsets. The default.
- implicit-gemm: as that, with the offsets computed as it goes; no workspace.
- gemm: the patches are written out first (im2col).
- winograd: 2 x 2 outputs from 4 x 4 inputs with 16 products instead of 36, transformed on the fly.
- winograd-nonfused: 4 x 4 outputs from 6 x 6 inputs with 36 products instead of 144, transforms kept in memory.
- fft: tiles of 32 x 32 multiplied in the frequency domain, two tiles of an image at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gapless.profiles.devices import Device
from gapless.profiles.training.graph import Implementation

__all__ = [
    "FLOAT_BYTES",
    "Convolution",
    "Work",
    "convolution_implementations",
    "depthwise_implementation",
    "implementation_of",
    "parameter_gradient_implementations",
]

FLOAT_BYTES = 4
"""Networks are trained in single precision."""


@dataclass(frozen=True)
class Work:
    """One kernel: floating-point operations, bytes read and written, and its `speed` (see `Device.seconds`)."""

    flops: float = 0.0
    moved_bytes: float = 0.0
    speed: float = 1.0


def implementation_of(device: Device, *works: Work, workspace_bytes: int = 0, name: str = "") -> Implementation:
    """The implementation that runs kernels one after the other; the power draw is their mean. A view has none."""
    duration_s = math.fsum(device.seconds(work.flops, work.moved_bytes, work.speed) for work in works)
    power_w = device.watts(sum(work.flops for work in works), duration_s)
    return Implementation(duration_s, workspace_bytes, name, power_w)


IMPLICIT_SPEED = 0.6
"""Computing the offsets as it goes costs about a third of the rate of a product with precomputed ones."""

FUSED_WINOGRAD_SPEED = 0.8
"""The transforms share the arithmetic units with the products."""

DEPTHWISE_SPEED = 0.04
"""A depthwise convolution reuses no input across channels; frameworks' direct kernels reach a few per cent of peak."""

_OFFSET_BYTES = 8
_TILE = 32
_TILE_BYTES = _TILE * (_TILE // 2 + 1) * 8  # the half spectrum of a real tile, in complex numbers
_COMPLEX_FLOPS = 8


@dataclass(frozen=True)
class Convolution:
    """The shape of a convolution over any number of axes; extents are per axis."""

    batch: int
    channels_in: int
    channels_out: int
    extent_in: tuple[int, ...]
    extent_out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    groups: int

    @property
    def depthwise(self) -> bool:
        """Whether each channel is convolved alone."""
        return self.groups > 1 and self.groups == self.channels_in == self.channels_out

    @property
    def input_bytes(self) -> int:
        """Bytes of the input."""
        return FLOAT_BYTES * self.batch * self.channels_in * math.prod(self.extent_in)

    @property
    def output_bytes(self) -> int:
        """Bytes of the output."""
        return FLOAT_BYTES * self.batch * self.channels_out * math.prod(self.extent_out)

    @property
    def weights(self) -> int:
        """Number of weights, without the bias."""
        return self.channels_in // self.groups * self.channels_out * math.prod(self.kernel)

    @property
    def flops(self) -> float:
        """Multiplications and additions of the direct computation."""
        return 2.0 * self.weights * self.batch * math.prod(self.extent_out)

    @property
    def moved_bytes(self) -> float:
        """Input, output and weights, each moved once."""
        return float(self.input_bytes + self.output_bytes + FLOAT_BYTES * self.weights)


def convolution_implementations(shape: Convolution, device: Device) -> tuple[Implementation, ...]:
    """The algorithms for the output, or for the gradient of the input; the default first."""
    impls = [*_direct(shape, device), _gemm(shape, device)]
    if _is_plain_plane(shape) and shape.kernel == (3, 3):
        impls += [_winograd(shape, device), _winograd_nonfused(shape, device)]
    if _is_plain_plane(shape) and 1 < max(shape.kernel) <= _TILE // 2:
        impls.append(_fft(shape, device))
    return tuple(impls)


def parameter_gradient_implementations(shape: Convolution, device: Device) -> tuple[Implementation, ...]:
    """The algorithms for the gradient of the weights; the default first."""
    impls = list(_direct(shape, device))
    if _is_plain_plane(shape) and shape.kernel == (3, 3):
        impls.append(_winograd_nonfused(shape, device))
    if _is_plain_plane(shape) and 1 < max(shape.kernel) <= _TILE // 2:
        impls.append(_fft(shape, device))
    return tuple(impls)


def depthwise_implementation(shape: Convolution, device: Device, passes: int = 1) -> Implementation:
    """The direct kernel; `passes`: 2 where it computes two gradients."""
    work = Work(shape.flops * passes, shape.moved_bytes * passes, DEPTHWISE_SPEED)
    return implementation_of(device, work, name="direct")


def _is_plain_plane(shape: Convolution) -> bool:
    """Transforms pay off and are offered for images, without strides and groups."""
    return len(shape.kernel) == 2 and shape.stride == (1, 1) and shape.groups == 1


def _direct(shape: Convolution, device: Device) -> tuple[Implementation, Implementation]:
    offsets_bytes = _OFFSET_BYTES * math.prod(shape.extent_out)
    precomputed, implicit = (Work(shape.flops, shape.moved_bytes, speed) for speed in (1.0, IMPLICIT_SPEED))
    return (
        implementation_of(device, precomputed, workspace_bytes=offsets_bytes, name="implicit-precomp-gemm"),
        implementation_of(device, implicit, name="implicit-gemm"),
    )


def _gemm(shape: Convolution, device: Device) -> Implementation:
    patches = shape.batch * shape.channels_in * math.prod(shape.kernel) * math.prod(shape.extent_out)
    patch_bytes = FLOAT_BYTES * patches
    write = Work(moved_bytes=shape.input_bytes + patch_bytes)
    multiply = Work(shape.flops, patch_bytes + shape.output_bytes)
    return implementation_of(device, write, multiply, workspace_bytes=patch_bytes, name="gemm")


def _winograd(shape: Convolution, device: Device) -> Implementation:
    tiles = shape.batch * math.prod(-(-size // 2) for size in shape.extent_out)
    flops = 2.0 * 16 * tiles * shape.channels_in * shape.channels_out
    filter_bytes = FLOAT_BYTES * 16 * shape.channels_in * shape.channels_out
    work = Work(flops, shape.moved_bytes + filter_bytes, FUSED_WINOGRAD_SPEED)
    return implementation_of(device, work, workspace_bytes=filter_bytes, name="winograd")


def _winograd_nonfused(shape: Convolution, device: Device) -> Implementation:
    tiles = shape.batch * math.prod(-(-size // 4) for size in shape.extent_out)
    image_bytes = FLOAT_BYTES * 36 * tiles * (shape.channels_in + shape.channels_out)
    filter_bytes = FLOAT_BYTES * 36 * shape.channels_in * shape.channels_out
    transforms = Work(moved_bytes=shape.moved_bytes + image_bytes + filter_bytes)
    multiply = Work(2.0 * 36 * tiles * shape.channels_in * shape.channels_out, image_bytes + filter_bytes)
    workspace_bytes = image_bytes + filter_bytes
    return implementation_of(device, transforms, multiply, workspace_bytes=workspace_bytes, name="winograd-nonfused")


def _fft(shape: Convolution, device: Device) -> Implementation:
    per_image = math.prod(
        -(-size // (_TILE - width + 1)) for size, width in zip(shape.extent_out, shape.kernel, strict=True)
    )
    image_bytes = _TILE_BYTES * shape.batch * (shape.channels_in + shape.channels_out)
    filter_bytes = _TILE_BYTES * shape.channels_in * shape.channels_out
    transforms = Work(moved_bytes=shape.moved_bytes + image_bytes * per_image + filter_bytes)
    products = shape.batch * per_image * shape.channels_in * shape.channels_out * _TILE_BYTES / 8
    multiply = Work(_COMPLEX_FLOPS * products, image_bytes * per_image + filter_bytes)
    workspace_bytes = image_bytes * min(per_image, 2) + filter_bytes
    return implementation_of(device, transforms, multiply, workspace_bytes=workspace_bytes, name="fft")
