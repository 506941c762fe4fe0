"""Fusion profiles from the measured gradients of five networks on a V100, with measured compression overheads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gapless.profiles.gradients.cost_functions import AffineCost, CostFunction, PointsCost
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile

DATA = Path(__file__).parents[3] / "shared" / "data" / "cupcake" / "espresso_profiles.json"
NETWORKS = ("resnet50", "resnet101", "bert", "gpt2", "vgg16")
COMPRESSORS = {"random": 50.0, "dgc": 50.0, "efsignsgd": 32.0, "onebit": 32.0}
"""The ratio of each: 1 % of the values with their indices; one bit of 32."""

_S_PER_US = 1e-6
_FLAT_BYTES = 4.0 * 2**20
"""Overheads are constant up to 2^20 elements, then in proportion."""
_RANKS, _BYTES_PER_S, _LATENCY_S = 8, 2e9, 10e-6
"""Eight GPUs behind PCIe 3.0 x16: at this rate ResNet-50 without compression leaves the 56 ms exposed of section 3."""


def fusion_profile(network: str, compressor: str, affine: bool) -> FusionProfile:
    """One worker's step, plain or compressed; `affine`: by the line through the ends of the flat part and of the model.

    Compressed gradients are gathered (one-level overheads), uncompressed ones reduced around a ring. The forward pass
    isn't in the data: half of the backward time stands for it.
    """
    data = json.loads(DATA.read_text(encoding="utf-8"))
    model = data["models"][network]
    encode_us, decode_us, _ = data["compression_overheads_us"][f"{compressor}_comp_overhead"]
    size_bytes = np.array([4 * tensor["numel"] for tensor in model["tensors"]], dtype=np.int64)
    backward_s = np.array(model["bp_gap_us"], dtype=np.float64) * _S_PER_US
    encode, decode = (
        _overhead(_S_PER_US * flat_us, float(size_bytes.sum()), affine) for flat_us in (encode_us[2], decode_us[2])
    )
    gather_s = (_RANKS - 1) / _BYTES_PER_S / COMPRESSORS[compressor]
    reduce_s = 2 * (_RANKS - 1) / _RANKS / _BYTES_PER_S
    return FusionProfile(
        name=f"{network} {compressor}",
        forward_s=float(backward_s.sum()) / 2,
        tensor_names=tuple(tensor["name"] for tensor in model["tensors"]),
        size_bytes=size_bytes,
        backward_s=backward_s,
        modes=(
            plain_mode(AffineCost(2 * (_RANKS - 1) * _LATENCY_S, reduce_s)),
            Mode(compressor, AffineCost((_RANKS - 1) * _LATENCY_S, gather_s), encode, decode, "feedback"),
        ),
        source="gradients measured on a V100",
    )


def _overhead(flat_s: float, total_bytes: float, affine: bool) -> CostFunction:
    if affine:
        return AffineCost(flat_s, flat_s / _FLAT_BYTES * (1 - _FLAT_BYTES / total_bytes))
    return PointsCost(((_FLAT_BYTES, flat_s), (2 * _FLAT_BYTES, 2 * flat_s)))
