"""Profiles of Llama-like models from their shapes: grouped queries, gated feed-forward layers, routed experts.

For a micro-batch of n tokens in sequences of length S, hidden size H, keys and values of size K each, feed-forward size
F, of E experts each token goes through A:

- Parameters of a layer: 2 H^2 + 2 H K + 3 H F E, and norms and router; embedding and head have V H each.
- Operations of a layer: 2 n (2 H^2 + 2 H K + 3 H F A) forward, and 2 n S H of causal attention; the gradients of inputs
  take as many products and 2.5 times the attention (it is computed again), those of weights the products alone.
- What a layer keeps of a token, bytes: 10 H + 4 K + 6 F A: inputs of norms and products in half precision, without
  attention scores. Element-wise kernels write and read each byte once going forward, and once going backward.
- Two bytes a parameter and its gradient, sixteen with the states of Adam.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.profiles.devices import BANDWIDTH_EFFICIENCY, HALF_EFFICIENCY, named_device
from gapless.profiles.pipelines.profile import PipelineProfile

__all__ = ["SHAPES", "Llama", "llama_profile"]

_HALF, _STATE = 2, 16
"""Bytes of a number in half precision, and of a parameter with its gradient and its optimiser."""


@dataclass(frozen=True)
class Llama:
    """The shape of a model, and its micro-batch: sequences of `sequence` tokens. `key_values`: size of all keys of a
    token. `experts`: of which each token goes through `active`."""

    name: str
    layers: int
    hidden: int
    feed_forward: int
    key_values: int
    vocabulary: int
    sequence: int = 8192
    micro_batch: int = 1
    experts: int = 1
    active: int = 1

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.sequence * self.micro_batch

    def parameters_of(self, experts: int) -> int:
        """Of a layer's products, with so many experts."""
        return 2 * self.hidden * (self.hidden + self.key_values) + 3 * self.hidden * self.feed_forward * experts

    def parameter_columns(self) -> list[int]:
        """Of the embedding, each layer, and the head."""
        rest = 2 * self.hidden + (self.hidden * self.experts if self.experts > 1 else 0)
        layer, table = self.parameters_of(self.experts) + rest, self.vocabulary * self.hidden
        return [table, *([layer] * self.layers), table + self.hidden]

    def stash_columns(self) -> list[int]:
        """Bytes of a micro-batch."""
        layer = 10 * self.hidden + 4 * self.key_values + 6 * self.feed_forward * self.active
        head = 4 * self.hidden + 4 * self.vocabulary
        return [0, *([layer * self.tokens] * self.layers), head * self.tokens]

    def flop_columns(self) -> list[tuple[float, float, float]]:
        """Of the forward, the gradient of the input, and that of the weights."""
        products = 2.0 * self.tokens * self.parameters_of(self.active)
        attention = 2.0 * self.tokens * self.sequence * self.hidden
        head = 2.0 * self.tokens * self.vocabulary * self.hidden
        layer = (products + attention, products + 2.5 * attention, products)
        return [(0.0, 0.0, 0.0), *([layer] * self.layers), (head, head, head)]


SHAPES = (
    Llama("llama-8b", 32, 4096, 14336, 1024, 128256),
    Llama("llama-70b", 80, 8192, 28672, 1024, 128256),
    Llama("mixtral-8x7b", 32, 4096, 14336, 1024, 32000, experts=8, active=2),
)
"""Models that people know, by the shapes that their authors published."""


def llama_profile(shape: Llama, device: str = "h100") -> PipelineProfile:
    """What the layers cost on one device. Raises `InputError` for an unknown device."""
    known = named_device(device)
    rate = HALF_EFFICIENCY * known.half_flops_per_s
    stash_bytes = np.array(shape.stash_columns(), dtype=np.int64)
    traffic_s = 2 * stash_bytes / (BANDWIDTH_EFFICIENCY * known.bytes_per_s)
    forward_s, backward_s, weight_s = np.array(shape.flop_columns()).T / rate
    parameters = np.array(shape.parameter_columns(), dtype=np.int64)
    boundary_bytes = np.full(len(parameters), _HALF * shape.tokens * shape.hidden, dtype=np.int64)
    boundary_bytes[-1] = 0
    return PipelineProfile(
        name=shape.name,
        layer_names=("embedding", *(f"layer{number}" for number in range(shape.layers)), "head"),
        forward_s=forward_s + traffic_s,
        backward_s=backward_s + traffic_s,
        weight_s=weight_s,
        parameter_bytes=_HALF * parameters,
        state_bytes=_STATE * parameters,
        stash_bytes=stash_bytes,
        boundary_bytes=boundary_bytes,
        boundary_shape=(shape.tokens, shape.hidden),
        source=f"published shapes, {shape.tokens} tokens, and the data sheet of {known.name}",
    )
