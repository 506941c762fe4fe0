"""What compressors of gradients spoil, measured on a model and a batch. Needs the extra `torch`.

Every error is the squared distance from the whole gradient of the batch, relative to its squared norm.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.torch.compression import HopCompressor
from gapless.torch.library import Marks, device_name, torch
from gapless.torch.pipeline.layers import LayeredModel
from gapless.torch.pipeline.reference import one_process, squared_error

__all__ = ["MODES", "measure_errors"]

MODES = ("rank 4", "rank 16", "top 1%", "float16", "bfloat16")
"""What is measured unless somebody says otherwise."""

_WARM_UP = 2


def measure_errors(
    model: LayeredModel, micro_batches: int = 1, modes: Sequence[str] = MODES, depths: int = 8, repeats: int = 9,
    report: Callable[[str], None] = lambda line: None,
) -> CompressionTable:  # fmt: skip
    """The table of a model: for each mode what hops and sums of gradients spoil, and what encoding and decoding take.

    `depths`: at how many boundaries between layers hops are measured, spread evenly; each micro-batch's gradient there
    is compressed by a new compressor, as the first one of a plan is: one that remembers the last gradient errs less.
    Sums are measured in every layer: those of matrices are compressed, vectors go plain but for casts. Raises
    `InputError` for a mode that sends no less than plain.
    """
    count = len(model.layers)
    if count < 2:
        raise InputError(f"model: must have two layers at least to have a boundary, got {count}")
    expected, _ = one_process(model, micro_batches)
    spread = np.linspace(1, count - 1, min(depths, count - 1)).round().astype(int)
    boundaries = sorted(set(spread.tolist()))
    middles = (np.arange(count) + 0.5) / count
    depth = np.unique(np.concatenate([np.array(boundaries) / count, middles]))
    sample = _gradient_at(model, micro_batches, boundaries[len(boundaries) // 2])
    found = []
    for mode in modes:
        report(f"measuring {mode} ...")
        hops = [squared_error(_with_hop(model, micro_batches, boundary, mode), expected) for boundary in boundaries]
        sums, sum_ratio = _sums(model, expected, mode)
        cost_s, hop_ratio = _costs(mode, sample, repeats)
        rank = HopCompressor(mode).method.rank
        ratio = sum_ratio if rank else hop_ratio
        found.append(CompressionMode(
            mode, ratio, rank, *cost_s,
            np.interp(depth, np.array(boundaries) / count, hops), np.interp(depth, middles, sums),
        ))  # fmt: skip
    source = f"measured on {device_name(sample.device)}, torch {torch.__version__}, {micro_batches} micro-batches"
    return CompressionTable(model.name, depth, tuple(found), source)


def _with_hop(model: LayeredModel, micro_batches: int, boundary: int, mode: str) -> dict[str, Any]:
    """All gradients where those between two layers are compressed."""

    def compressed(gradient: Any) -> Any:
        compressor = HopCompressor(mode)
        return compressor.decode(compressor.encode(gradient), gradient)

    return _with_hook(model, micro_batches, boundary, compressed)


def _gradient_at(model: LayeredModel, micro_batches: int, boundary: int) -> Any:
    """That of the first micro-batch between two layers."""
    seen: list[Any] = []
    _with_hook(model, micro_batches, boundary, lambda gradient: seen.append(gradient.clone()))
    return seen[0]


def _with_hook(model: LayeredModel, micro_batches: int, boundary: int, change: Callable[[Any], Any]) -> dict[str, Any]:
    layer = model.layers[boundary - 1][1]
    handle = layer.register_forward_hook(lambda module, inputs, output: output.register_hook(change) and None)
    try:
        return one_process(model, micro_batches)[0]
    finally:
        handle.remove()


def _sums(model: LayeredModel, expected: dict[str, Any], mode: str) -> tuple[list[float], float]:
    """For each layer what its compressed sums spoil, times the number of layers; and the share of bytes sent."""
    norm = sum(float(gradient.double().square().sum()) for gradient in expected.values() if gradient is not None)
    apart = dict.fromkeys((name for name, _ in model.layers), 0.0)
    sent = plain = 0
    for name, gradient in expected.items():
        if gradient is None:
            continue
        plain += gradient.numel() * gradient.element_size()
        compressor = HopCompressor(mode)
        if gradient.dim() < 2 and compressor.method.error != "rounded":
            sent += gradient.numel() * gradient.element_size()
            continue
        payload = compressor.encode(gradient)
        sent += payload.numel() * payload.element_size()
        lost = compressor.decode(payload, gradient).double() - gradient.double()
        apart[name.partition(".")[0]] += float(lost.square().sum())
    return [len(apart) * each / norm if norm else 0.0 for each in apart.values()], min(1.0, sent / max(plain, 1))


def _costs(mode: str, gradient: Any, repeats: int) -> tuple[tuple[float, float], float]:
    """Seconds a byte to encode and to decode a gradient, medians; and the share of its bytes that is sent."""
    compressor, size_bytes = HopCompressor(mode), gradient.numel() * gradient.element_size()
    times: list[list[float]] = []
    payload = compressor.encode(gradient)
    ratio = payload.numel() * payload.element_size() / size_bytes
    if ratio >= 1:
        shape = " x ".join(map(str, gradient.shape))
        raise InputError(f"modes: {mode!r} sends no less than the plain gradient of {shape}; leave it out")
    for _ in range(_WARM_UP + repeats):
        marks = Marks(gradient.device)
        marks.mark()
        payload = compressor.encode(gradient)
        marks.mark()
        compressor.decode(payload, gradient)
        marks.mark()
        times.append(marks.elapsed_s())
    encode_s = statistics.median(after - before for before, after, _ in times[_WARM_UP:])
    decode_s = statistics.median(after - before for _, before, after in times[_WARM_UP:])
    return (encode_s / size_bytes, decode_s / size_bytes), ratio
