"""Operators that stand in for PyTorch's own in captured steps: bit-equal to what eager runs, with less to keep.

All are plain functions of tensors that run without autograd. Needs the extra `torch`.
"""

from __future__ import annotations

from gapless.torch.library import Tensor, torch

__all__ = [
    "RANDOM",
    "convolution_input_gradient",
    "dropout",
    "dropout_backward",
    "dropout_backward_in_place",
    "dropout_backward_redrawn",
    "dropout_backward_redrawn_in_place",
    "dropout_factor",
    "dropout_in_place",
    "max_pool",
    "max_pool_backward",
    "max_pool_backward_from_bytes",
    "relu_bits",
    "relu_bits_backward",
]


def dropout(tensor: Tensor, share: float, factor: float) -> tuple[Tensor, Tensor]:
    """`tensor` without a `share` of its elements, the rest scaled up by `factor`; and the mask, a byte each."""
    mask = _mask(tensor, share)
    return tensor.mul(mask).mul_(factor), mask


def dropout_in_place(tensor: Tensor, share: float, factor: float) -> tuple[Tensor, Tensor]:
    """The same, written over `tensor`."""
    mask = _mask(tensor, share)
    return tensor.mul_(mask).mul_(factor), mask


def dropout_backward(gradient: Tensor, mask: Tensor, factor: float) -> Tensor:
    """The gradient of dropout's input, from the mask."""
    return gradient.mul(mask).mul_(factor)


def dropout_backward_in_place(gradient: Tensor, mask: Tensor, factor: float) -> Tensor:
    """The same, written over `gradient`."""
    return gradient.mul_(mask).mul_(factor)


def dropout_backward_redrawn(gradient: Tensor, share: float, factor: float, strides: list[int]) -> Tensor:
    """The same from the random state alone: to be called under the state that dropout drew with.

    `strides`: those of the mask that it drew, since elements are drawn in the order in which they lie.
    """
    return dropout_backward(gradient, _mask_again(gradient, share, strides), factor)


def dropout_backward_redrawn_in_place(gradient: Tensor, share: float, factor: float, strides: list[int]) -> Tensor:
    """The same, written over `gradient`."""
    return dropout_backward_in_place(gradient, _mask_again(gradient, share, strides), factor)


def _mask_again(gradient: Tensor, share: float, strides: list[int]) -> Tensor:
    mask = torch.empty_strided(gradient.shape, strides, dtype=torch.bool, device=gradient.device)
    return mask.bernoulli_(1 - share)


def _mask(tensor: Tensor, share: float) -> Tensor:
    return torch.empty_like(tensor, dtype=torch.bool).bernoulli_(1 - share)


def dropout_factor(share: float, dtype: Tensor) -> float:
    """1 / (1 - share) as eager rounds it: one in the tensor's own type, divided by a number.

    `native_dropout`, which tracing puts in the place of eager's dropout, divides in 64 bits, which differs in the last
    bit for some shares (0.04, 0.09, 0.15).
    """
    return float(torch.ones((), dtype=dtype).div_(1 - share)) if share < 1 else 0.0


def max_pool(
    tensor: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil_mode: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Max-pooling, the place of each maximum in the image, and in its window: a byte instead of PyTorch's eight."""
    found, place = torch.ops.aten.max_pool2d_with_indices(tensor, kernel, stride, padding, dilation, ceil_mode)
    return found, place, _window_places(place, tensor.shape, kernel, stride, padding, dilation)


def max_pool_backward(
    gradient: Tensor, place: Tensor, shape: list[int], kernel: list[int], stride: list[int], padding: list[int],
    dilation: list[int], ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """The gradient of max-pooling's input of that shape, from the places in the image: the input itself isn't read."""
    like = gradient.new_empty(1).expand(shape)  # only its shape is looked at
    return torch.ops.aten.max_pool2d_with_indices_backward(
        gradient, like, kernel, stride, padding, dilation, ceil_mode, place
    )


def max_pool_backward_from_bytes(
    gradient: Tensor, small: Tensor, shape: list[int], kernel: list[int], stride: list[int], padding: list[int],
    dilation: list[int], ceil_mode: bool,
) -> Tensor:  # fmt: skip
    """The same from the places in the windows."""
    place = _image_places(small, shape, kernel, stride, padding, dilation)
    return max_pool_backward(gradient, place, shape, kernel, stride, padding, dilation, ceil_mode)


def _corners(place: Tensor, stride: list[int], padding: list[int]) -> tuple[Tensor, Tensor]:
    """Row and column of each window's first element, in a shape that broadcasts over the places."""
    rows = torch.arange(place.shape[-2], device=place.device).mul_(stride[0]).sub_(padding[0])
    columns = torch.arange(place.shape[-1], device=place.device).mul_(stride[1]).sub_(padding[1])
    return rows[:, None], columns


def _window_places(
    place: Tensor, shape: list[int], kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    rows, columns = _corners(place, stride, padding)
    across = place.remainder(shape[-1]).sub_(columns).floor_divide_(dilation[1])
    down = place.floor_divide(shape[-1]).sub_(rows).floor_divide_(dilation[0])
    return down.mul_(kernel[1]).add_(across).to(torch.uint8)


def _image_places(
    small: Tensor, shape: list[int], kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    rows, columns = _corners(small, stride, padding)
    place = small.long()
    across = place.remainder(kernel[1]).mul_(dilation[1]).add_(columns)
    place = place.floor_divide_(kernel[1]).mul_(dilation[0]).add_(rows).mul_(shape[-1]).add_(across)
    return place.clamp_(0, shape[-2] * shape[-1] - 1)  # a place outside of the image would be written to unchecked


def relu_bits(found: Tensor) -> Tensor:
    """Which elements of a ReLU's output are above zero, eight in a byte; shape (ceil(n / 8),)."""
    flat = torch.empty(-(-found.numel() // 8) * 8, dtype=torch.bool, device=found.device)
    torch.gt(found.reshape(-1), 0, out=flat[: found.numel()])
    flat[found.numel() :] = False
    parts = flat.view(torch.uint8).view(-1, 8)
    bits = parts[:, 0].clone()
    for number in range(1, 8):
        bits.add_(parts[:, number], alpha=1 << number)
    return bits


def relu_bits_backward(gradient: Tensor, bits: Tensor) -> Tensor:
    """The gradient of a ReLU's input from the bits."""
    mask = torch.empty((bits.numel(), 8), dtype=torch.uint8, device=bits.device)
    for number in range(8):
        torch.bitwise_and(bits, 1 << number, out=mask[:, number])
    keep = mask.view(-1)[: gradient.numel()].view(gradient.shape)
    return torch.where(keep != 0, gradient, 0.0)


RANDOM = frozenset({dropout, dropout_in_place})
"""The operators that draw random numbers."""


def convolution_input_gradient(
    gradient: Tensor,
    shape: list[int],
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    is_transposed: bool,
    _: list[int],
    groups: int,
) -> tuple[Tensor, None, None]:
    """The gradient of a convolution's input of that shape, without the input: the transposed convolution of `gradient`.

    As `aten.convolution_backward` returns it. Its argument for the size of the output says nothing here.
    """
    beyond = [0] * len(stride)
    if not is_transposed:
        reached = [
            (size - 1) * step - 2 * pad + spread * (width - 1) + 1
            for size, step, pad, spread, width in zip(
                gradient.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
            )
        ]
        beyond = [size - reach for size, reach in zip(shape[2:], reached, strict=True)]
    convolution = torch.ops.aten.convolution.default
    found = convolution(gradient, weight, None, stride, padding, dilation, not is_transposed, beyond, groups)
    return found, None, None
