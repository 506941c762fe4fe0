"""Pipeline profiles by name, by a short formula, or from a file; those with names are transformers, from their shapes.

A rank of the pipeline is one tensor-parallel group of T devices, such as the eight of a node: times are those of the
group, bytes are those of all of its devices together.

For a micro-batch of B sequences of length S, hidden size H, vocabulary V:

- Operations of a layer: 24 B S H^2 + 4 B S^2 H forward (Narayanan et al., SC 2021); the gradient of the input doubles
  the products of attention, 24 B S H^2 + 8 B S^2 H, and that of the weights has none, 24 B S H^2 (Qi et al., Zero
  bubble pipeline parallelism, table 1). Of the head, 2 B S H V each.
- What a layer keeps of a micro-batch on each device: S B H (10 + 24 / T + 5 A S / (H T)) bytes, with A heads
  (Korthikanti et al., Reducing activation recomputation, equation 2); the head: its inputs and its logits in single
  precision; the embedding: the mask of its dropout.
- Element-wise kernels write and read each of these bytes once going forward, and their gradients going backward.
- Parameters: 12 H^2 + 13 H a layer; the head shares the embedding's. 16 bytes each of mixed-precision Adam (Rajbhandari
  et al., ZeRO: 2 for the weight, 2 for the gradient, 12 for the optimiser); gradients are summed in half precision.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import numpy as np

from gapless.errors import InputError
from gapless.profiles.devices import BANDWIDTH_EFFICIENCY, HALF_EFFICIENCY, Device, named_device
from gapless.profiles.pipelines.compression import CompressionTable, read_compression_table
from gapless.profiles.pipelines.llama import SHAPES, llama_profile
from gapless.profiles.pipelines.profile import PipelineProfile, read_pipeline_profile, uniform_profile
from gapless.question.fields import Number, Scaled, Whole
from gapless.units import parse_plain_seconds

__all__ = [
    "NAMED",
    "Transformer",
    "find_compression",
    "find_pipeline_profile",
    "pipeline_profile_names",
    "transformer_profile",
]

_UNIFORM, _SHAPED = "uniform:", "gpt:"
_TIME = Scaled(parse_plain_seconds, Number(0, maximum=1e6))
_SHARE = Number(0, maximum=1)


def pipeline_profile_names() -> list[str]:
    """The profiles that gapless ships."""

    return sorted(NAMED)


def find_pipeline_profile(profile: str | Path | PipelineProfile, ranks: int, chunks: int) -> PipelineProfile:
    """A profile by its name, from a file, or as it is; `uniform:f=10,b=12,w=8` has a layer for each of the
    `ranks` times `chunks` stages, and `uniform:f=10,b=12,w=8,kept=0.5` keeps half of what it
    stashes from b to w. `gpt:layers=80,hidden=3072,tensor_parallel=4` is such a model (see `Transformer`).
    Raises `InputError`.
    """
    if isinstance(profile, PipelineProfile):
        return profile
    text = str(profile)
    if text.startswith(_UNIFORM):
        return _uniform(text, ranks, chunks)
    if text.startswith(_SHAPED):
        return transformer_profile(_shape(text))
    if text in NAMED:
        return NAMED[text]()
    if not Path(text).suffix and not os.path.exists(text):
        known = ", ".join(pipeline_profile_names())
        shapes = "gpt:layers=24,hidden=1024 or uniform:f=10,b=12,w=8"
        close = get_close_matches(text, pipeline_profile_names(), n=1)
        rule = f"must be one of {known}, a shape such as {shapes}, or a file, got {text!r}"
        raise InputError(f"profile: {rule}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return read_pipeline_profile(text)


def _uniform(text: str, ranks: int, chunks: int) -> PipelineProfile:
    """That of `uniform:f=10ms,b=12ms,w=8ms`; numbers are seconds."""
    given = dict(part.partition("=")[::2] for part in text.removeprefix(_UNIFORM).split(","))
    rule = "profile: uniform needs the times f, b and w, such as uniform:f=10ms,b=12ms,w=8ms, and takes kept, a share"
    if not {"f", "b", "w"} <= given.keys() <= {"f", "b", "w", "kept"}:
        raise InputError(f"{rule}, got {text!r}")
    try:
        forward_s, backward_s, weight_s = (_TIME(given[name]) for name in ("f", "b", "w"))
        return uniform_profile(forward_s, backward_s, weight_s, ranks, chunks, text, _SHARE(given.get("kept", "1")))
    except InputError as error:
        raise InputError(f"{rule}, and each {error}") from None


def find_compression(table: str | Path | CompressionTable) -> CompressionTable:
    """A compression table from a file, or as it is. Raises `InputError`."""
    if isinstance(table, CompressionTable):
        return table

    return read_compression_table(table)


_HALF = 2
_STATE = 16
"""Bytes of a number in half precision, and of a parameter with its gradient and its optimiser."""

_HEAD_SIZE = 96
"""Of an attention head in Megatron-LM's GPT models (Shoeybi et al., 2019, table 1)."""


@dataclass(frozen=True)
class Transformer:
    """The shape of a GPT. `micro_batch`: sequences. `tensor_parallel`: devices of a rank."""

    name: str
    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    micro_batch: int
    tensor_parallel: int
    heads: int

    def __post_init__(self) -> None:
        for title, value in vars(self).items():
            if title != "name" and value < 1:
                raise InputError(f"transformer {self.name!r}: {title} must be >= 1, got {value}")

    @property
    def _of_layer(self) -> int:
        return 12 * self.hidden**2 + 13 * self.hidden

    @property
    def _of_embedding(self) -> int:
        return (self.vocabulary + self.sequence) * self.hidden

    @property
    def boundary(self) -> int:
        """Numbers in the activation that goes from layer to layer."""
        return self.micro_batch * self.sequence * self.hidden

    def parameter_columns(self) -> list[int]:
        """Of the embedding, each layer, and the head."""
        head = self.vocabulary * self.hidden + 2 * self.hidden
        return [self._of_embedding, *([self._of_layer] * self.layers), head]

    def stash_columns(self) -> list[int]:
        """Bytes of a micro-batch on all devices of the rank."""
        devices, scores = self.tensor_parallel, 5 * self.heads * self.sequence * self.micro_batch * self.sequence
        layer = self.boundary * (10 * devices + 24) + scores
        logits = self.micro_batch * self.sequence * self.vocabulary
        return [self.boundary * devices, *([layer] * self.layers), 4 * self.boundary * devices + 4 * logits]

    def flop_columns(self) -> list[tuple[float, float, float]]:
        """Of the forward, the gradient of the input, and that of the weights."""
        products = 24.0 * self.boundary * self.hidden
        attention = 4.0 * self.boundary * self.sequence
        head = 2.0 * self.boundary * self.vocabulary
        layer = (products + attention, products + 2 * attention, products)
        return [(0.0, 0.0, 0.0), *([layer] * self.layers), (head, head, head)]


def transformer_profile(shape: Transformer, device: str | Device = "a100", source: str = "") -> PipelineProfile:
    """What the layers of a transformer cost on a group of devices. Raises `InputError` for an unknown device, or one
    whose half-precision rate is not known.
    """
    device = named_device(device) if isinstance(device, str) else device
    if device.half_flops_per_s <= 0:
        raise InputError(f"device {device.name!r}: half_flops_per_s must be > 0, got {device.half_flops_per_s}")
    count, devices = shape.layers + 2, shape.tensor_parallel
    rate = HALF_EFFICIENCY * device.half_flops_per_s * devices
    stash_bytes = np.array(shape.stash_columns(), dtype=np.int64)
    traffic_s = 2 * stash_bytes / (BANDWIDTH_EFFICIENCY * device.bytes_per_s * devices)
    forward_s, backward_s, weight_s = np.array(shape.flop_columns()).T / rate
    parameters = np.array(shape.parameter_columns(), dtype=np.int64)
    boundary_bytes = np.full(count, _HALF * shape.boundary, dtype=np.int64)
    boundary_bytes[-1] = 0
    none = np.zeros(count)
    none[1:] = 1.0  # nothing goes back beyond the embedding: its gradients are those of weights
    return PipelineProfile(
        name=shape.name,
        layer_names=("embedding", *(f"layer{number}" for number in range(shape.layers)), "head"),
        forward_s=forward_s + traffic_s,
        backward_s=backward_s + none * traffic_s,
        weight_s=weight_s + (1 - none) * traffic_s,
        parameter_bytes=_HALF * parameters,
        state_bytes=_STATE * parameters,
        stash_bytes=stash_bytes,
        boundary_bytes=boundary_bytes,
        embedding_bytes=_HALF * shape.vocabulary * shape.hidden,
        boundary_shape=(shape.micro_batch * shape.sequence, shape.hidden),
        source=source or f"shapes and the data sheet of {devices} x {device.name}",
    )


_OTHERWISE = {"sequence": 1024, "vocabulary": 51200, "micro_batch": 8, "tensor_parallel": 8}
"""Of Optimus-CC's table 1: micro-batches of 8 sequences on the 8 A100 of a node."""


def _shape(text: str) -> Transformer:
    """Of `gpt:layers=80,hidden=3072`, and what else differs from Optimus-CC's table 1."""
    given = dict(part.partition("=")[::2] for part in text.removeprefix(_SHAPED).split(","))
    known = [name for name in Transformer.__dataclass_fields__ if name != "name"]
    rule = f"profile: gpt needs layers and hidden, and takes {', '.join(known[2:])}"
    if not {"layers", "hidden"} <= given.keys() <= set(known):
        raise InputError(f"{rule}, got {text!r}")
    try:
        sizes = {name: int(Whole(1, 2**24)(value)) for name, value in given.items()}
    except InputError as error:
        raise InputError(f"{rule}, and each {error}") from None
    return _transformer(text, **sizes)


def _transformer(name: str, layers: int, hidden: int, **sizes: int) -> Transformer:
    return Transformer(
        name, layers, hidden, **{**_OTHERWISE, "heads": max(1, hidden // _HEAD_SIZE), **sizes}
    )  # fmt: skip


def _gpt(name: str, layers: int, hidden: int) -> Callable[[], PipelineProfile]:
    """A model of Optimus-CC's table 1."""
    shape = _transformer(name, layers, hidden)
    source = "shapes of Optimus-CC's table 1 and the data sheet of 8 x a100; not fitted to its times"
    return lambda: transformer_profile(shape, "a100", source)


NAMED: dict[str, Callable[[], PipelineProfile]] = {
    "gpt-2.5b": _gpt("gpt-2.5b", 52, 1920),
    "gpt-8.3b": _gpt("gpt-8.3b", 72, 3072),
    **{shape.name: partial(llama_profile, shape) for shape in SHAPES},
}
"""The models of Optimus-CC (Song et al., ASPLOS 2023), on one rank of its pipeline: a node of eight A100; and models
that people train today, on one H100."""
