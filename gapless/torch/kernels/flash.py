"""Attention without dropout by PyTorch's flash kernel for CPUs, between batched products as `torch_attention` has them.

The kernel keeps the output and the logarithm of each row's sum of exponentials, from which its gradient computes the
probabilities again, block by block. Equal to the products and the softmax up to rounding. All run without autograd.
Needs the extra `torch`.
"""

from __future__ import annotations

from typing import Any

from gapless.torch.kernels.attention import Steps, attention_keeping, log_sums
from gapless.torch.library import torch

__all__ = ["can_flash", "flash_attention", "flash_attention_backward", "flash_attention_keeping"]

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001


def can_flash(query: Any, value: Any, steps: Steps, shape: list[int]) -> bool:
    """Whether the kernel can stand in: heads of one width in four dimensions, and factors before masks."""
    names = [name for name, _ in steps]
    masks = names.index("add") if "add" in names else len(names)
    is_known = query.device.type == "cpu" and query.dtype in (torch.float32, torch.float64)
    return is_known and len(shape) == 4 and query.shape[2] == value.shape[2] and set(names[masks:]) <= {"add"}


def flash_attention(query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool) -> tuple[Any, Any]:
    """Attention, and the logarithm of the sum of exponentials of each row of scores."""
    parts = _parts(shape, query, key.transpose(1, 2), value)
    found, sums = _flash(*parts, 0.0, False, attn_mask=_mask(steps, shape), scale=_scale(steps))
    return found.reshape(query.shape), sums


def flash_attention_keeping(query: Any, key: Any, value: Any, steps: Steps, shape: list[int], is_safe: bool) -> Any:
    """The same by products and softmax, with the probabilities."""
    found, probability = attention_keeping(query, key, value, steps, shape, is_safe)
    return found, log_sums(query, key, steps, shape), probability


def flash_attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, found: Any, sums: Any, steps: Steps, shape: list[int]
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value."""
    turned = key.transpose(1, 2)
    parts = _parts(shape, gradient, query, turned, value, found)
    of_query, of_key, of_value = _flash_backward(
        *parts, sums, 0.0, False, attn_mask=_mask(steps, shape), scale=_scale(steps)
    )
    of_key = of_key.reshape(turned.shape).transpose(1, 2).contiguous()
    return of_query.reshape(query.shape).contiguous(), of_key, of_value.reshape(value.shape).contiguous()


def _parts(shape: list[int], *tensors: Any) -> list[Any]:
    """Batch and heads apart; the kernel reads the last dimension as if it were contiguous."""
    return [tensor.contiguous().view(*shape[:2], *tensor.shape[1:]) for tensor in tensors]


def _scale(steps: Steps) -> float:
    scale = 1.0
    for name, operand in steps:
        if name != "add":
            scale = scale * operand if name == "mul" else scale / operand
    return scale


def _mask(steps: Steps, shape: list[int]) -> Any:
    """All masks in one, in two or four dimensions."""
    masks = [operand for name, operand in steps if name == "add"]
    if not masks:
        return None
    whole = sum(masks[1:], masks[0])
    return whole if whole.dim() in (2, 4) else whole.expand([1] * (4 - whole.dim()) + list(whole.shape))
