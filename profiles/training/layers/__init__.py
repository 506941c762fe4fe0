"""The layers of networks: each function appends one layer to a `NetworkBuilder` and returns its output."""

from gapless.profiles.training.layers.elementwise import (
    batch_norm,
    dropout,
    gelu,
    group_norm,
    hardtanh,
    layer_norm,
    relu,
    softmax,
    tanh,
)
from gapless.profiles.training.layers.products import conv, conv_transpose, embedding, linear, matmul
from gapless.profiles.training.layers.shapes import (
    adaptive_avg_pool,
    add,
    avg_pool,
    cat,
    first_position,
    flatten,
    max_pool,
    upsample,
)

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
