"""The layers of networks: each function appends one layer to a `NetworkBuilder` and returns its output."""

from gapless.profiles.training.layers.activations import dropout, gelu, hardtanh, relu, softmax, tanh
from gapless.profiles.training.layers.joining import add, cat, first_position, flatten
from gapless.profiles.training.layers.normalisations import batch_norm, group_norm, layer_norm
from gapless.profiles.training.layers.pooling import adaptive_avg_pool, avg_pool, max_pool, upsample
from gapless.profiles.training.layers.products import conv, conv_transpose, embedding, linear, matmul

__all__ = [
    "adaptive_avg_pool",
    "add",
    "avg_pool",
    "batch_norm",
    "cat",
    "conv",
    "conv_transpose",
    "dropout",
    "embedding",
    "first_position",
    "flatten",
    "gelu",
    "group_norm",
    "hardtanh",
    "layer_norm",
    "linear",
    "matmul",
    "max_pool",
    "relu",
    "softmax",
    "tanh",
    "upsample",
]
