"""Data-parallel training: gradients measured into fusion profiles, fusion plans applied to DistributedDataParallel."""

from gapless.torch.ddp.buckets import actual_buckets, distribute, measure
from gapless.torch.ddp.compression import (
    CompressionState,
    Compressor,
    TopK,
    communication_cost,
    compressed_average,
    compression_cost,
)

__all__ = [
    "CompressionState",
    "Compressor",
    "TopK",
    "actual_buckets",
    "communication_cost",
    "compressed_average",
    "compression_cost",
    "distribute",
    "measure",
]
