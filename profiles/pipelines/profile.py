"""PipelineProfile: the layers of a model in order, and what one micro-batch costs in each; and its files.

JSON, format `gapless.pipeline-profile`, version 1; `//` comments are allowed::

    {"format": "gapless.pipeline-profile", "version": 1, "name": "tiny", "boundary_shape": [8, 4],
     "layers": [{"name": "embedding", "forward_s": 0.01, "backward_s": 0, "weight_s": 0.01, "parameter_bytes": 4096,
                 "state_bytes": 32768, "stash_bytes": 512, "boundary_bytes": 64},
                {"name": "head", "forward_s": 0.02, "backward_s": 0.03, "weight_s": 0.02, "parameter_bytes": 4096,
                 "state_bytes": 32768, "stash_bytes": 1024, "boundary_bytes": 0}]}

Layers stand in the order of the forward pass. Optional are `embedding_bytes`, `boundary_shape` and `source`, and of a
layer `weight_stash_bytes`, `whole_backward_s`, and `policies` of recomputation::

    "policies": [{"name": "attention-again", "kept_bytes": 400, "again_s": 0.002, "working_bytes": 512}]

`PipelineProfile` says what each field means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.typed import Stored, located, read_file, text_of
from gapless.report.short_repr import Brief

__all__ = [
    "INPUT",
    "KEEP",
    "PipelineProfile",
    "Policy",
    "pipeline_profile_text",
    "read_pipeline_profile",
    "uniform_profile",
    "write_pipeline_profile",
]

_LARGEST_BYTES = 2**53  # up to which sums of sizes are exact in floating point
_LONGEST_S = 1e9
"""A layer's longest time, thirty years: sums over micro-batches stay far within floating point."""

UNIFORM_STASH_BYTES, UNIFORM_BOUNDARY_BYTES = 10**9, 10**6
"""Of a rank's part of a uniform profile: memory there is counted in micro-batches, and messages are small beside it."""


KEEP, INPUT = "keep", "input"
"""The policies that every layer has: it keeps all of its stash, or its input alone."""
_POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Policy:
    """A policy of recomputation of a layer: `kept_bytes`, of a micro-batch from its forward to its backward, which
    takes `again_s` longer for what it runs again, and holds `working_bytes` of activations at most.
    """

    name: str
    kept_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]
    again_s: Annotated[float, Stored(0, _LONGEST_S)]
    working_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]


@dataclass(frozen=True, repr=False)
class PipelineProfile(Brief):
    """Layers in order, each of them whole on one rank; all columns have the shape (layers,).

    `forward_s`, `backward_s`, `weight_s`: float, seconds of one micro-batch: F, the gradient of the input (I), the
    gradient of the weights (W). `parameter_bytes`: int64, the gradients that data parallelism sums. `state_bytes`: what
    stays on the rank whatever happens: weights, gradients, optimiser. `stash_bytes`: what a micro-batch keeps from its
    forward on. `weight_stash_bytes`: what it keeps between the gradient of the input and that of the weights; None
    where that isn't known, so that all of the stash counts. `boundary_bytes`: the activation that goes on to the next
    layer, and the size of the gradient that comes back. `embedding_bytes`: gradients of weights that the first and the
    last layer share, 0 for none; they are among the parameter bytes of both. `boundary_shape`: rows and columns of the
    activation as a matrix, where it is known: compressors by rank need it. `source`: where the numbers are from.
    `is_uniform`: whether there are as many equal layers as a question has stages, made up for it. `whole_backward_s`:
    of both gradients as one op, where that was measured; None for I and W after each other. `policies`: of each layer
    those of recomputation that are known, besides to keep all and to keep its input; none where no layer has any.
    Raises `InputError` where lengths differ or a number is negative, not finite or too large.
    """

    name: str
    layer_names: tuple[str, ...]
    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    parameter_bytes: Ints
    state_bytes: Ints
    stash_bytes: Ints
    boundary_bytes: Ints
    embedding_bytes: int = 0
    boundary_shape: tuple[int, int] | None = None
    source: str = ""
    is_uniform: bool = False
    weight_stash_bytes: Ints | None = None
    whole_backward_s: Floats | None = None
    policies: tuple[tuple[Policy, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        where, count = f"profile {self.name!r}", len(self.layer_names)
        if not count:
            raise InputError(f"{where}: layers must hold at least one, got none")
        whole = () if self.whole_backward_s is None else ("whole_backward_s",)
        for title in ("forward_s", "backward_s", "weight_s", *whole):
            self._check_column(title, count, _LONGEST_S)
        weight_stash = () if self.weight_stash_bytes is None else ("weight_stash_bytes",)
        for title in ("parameter_bytes", "state_bytes", "stash_bytes", "boundary_bytes", *weight_stash):
            self._check_column(title, count, _LARGEST_BYTES)
            total = sum(getattr(self, title).tolist())
            if total > _LARGEST_BYTES:
                raise InputError(f"{where}: {title} must sum to at most 2^53, got {total}")
        for layer in np.flatnonzero(self.state_bytes < self.parameter_bytes).tolist():
            got = f"{self.state_bytes[layer]} of {self.parameter_bytes[layer]}"
            raise InputError(f"layer {self.layer_names[layer]!r}: state_bytes must be >= parameter_bytes, got {got}")
        most = int(min(self.parameter_bytes[0], self.parameter_bytes[-1]))
        if not 0 <= self.embedding_bytes <= most:
            rule = f"must be in 0..{most}, the first and the last layer's parameter_bytes"
            raise InputError(f"{where}: embedding_bytes {rule}, got {self.embedding_bytes}")
        self._check_policies(count)

    def _check_policies(self, count: int) -> None:
        if self.policies and len(self.policies) != count:
            raise InputError(f"profile {self.name!r}: policies must have one entry for each of {count} layers")
        for layer, found in enumerate(self.policies):
            where, stash = f"layer {self.layer_names[layer]!r}: policies", int(self.stash_bytes[layer])
            names = [each.name for each in found]
            for each in found:
                if not _POLICY_NAME.fullmatch(each.name) or each.name in (KEEP, INPUT) or names.count(each.name) > 1:
                    rule = f"name must be one word, once, other than {KEEP} and {INPUT}"
                    raise InputError(f"{where}: {rule}, got {each.name!r}")
                if not 0 <= each.kept_bytes <= min(stash, each.working_bytes):
                    rule = "kept_bytes must be at most stash_bytes and working_bytes"
                    raise InputError(f"{where}: {each.name}: {rule}, got {each.kept_bytes}")

    def _check_column(self, title: str, count: int, most: float) -> None:
        column = getattr(self, title)
        if column.shape != (count,):
            raise InputError(f"profile {self.name!r}: {title} must have one entry for each of {count} layers")
        wrong = ~(np.isfinite(column) & (column >= 0) & (column <= most))
        if wrong.any():
            first = int(wrong.argmax())
            rule = f"{title} must be in 0..{most:g}"
            raise InputError(f"layer {self.layer_names[first]!r}: {rule}, got {column[first]}")

    @property
    def layer_count(self) -> int:
        """The number of layers."""
        return len(self.layer_names)

    def backwards_s(self, splits: bool) -> tuple[Floats, Floats]:
        """Seconds of I and of W; where they aren't split, of both as one op, and 0. Float of shape (layers,) each."""
        if splits:
            return self.backward_s, self.weight_s
        both_s = self.backward_s + self.weight_s if self.whole_backward_s is None else self.whole_backward_s
        return both_s, np.zeros_like(both_s)

    @property
    def deferred_bytes(self) -> Ints:
        """What a micro-batch keeps between its two gradients, as far as that is known; int64 of shape (layers,)."""
        return self.stash_bytes if self.weight_stash_bytes is None else self.weight_stash_bytes


def uniform_profile(
    forward_s: float, backward_s: float, weight_s: float, ranks: int, chunks: int, name: str, kept: float = 1.0
) -> PipelineProfile:
    """As many equal layers as there are stages, for trials; the times are of one rank's part, of `chunks` layers.

    A micro-batch keeps 1 GB on each rank, and the share `kept` of it from the gradient of the input to that of the
    weights. No parameters: there is nothing to sum among replicas.
    """
    count = ranks * chunks
    stash_bytes = np.full(count, UNIFORM_STASH_BYTES // chunks, dtype=np.int64)
    none = np.zeros(count, dtype=np.int64)
    return PipelineProfile(
        name=name,
        layer_names=tuple(f"part{k}" for k in range(count)),
        forward_s=np.full(count, forward_s / chunks),
        backward_s=np.full(count, backward_s / chunks),
        weight_s=np.full(count, weight_s / chunks),
        parameter_bytes=none,
        state_bytes=none,
        stash_bytes=stash_bytes,
        boundary_bytes=np.full(count, UNIFORM_BOUNDARY_BYTES, dtype=np.int64),
        source="equal parts, made up for trials",
        is_uniform=True,
        weight_stash_bytes=None if kept == 1 else np.rint(kept * stash_bytes).astype(np.int64),
    )


_FORMAT = "gapless.pipeline-profile"
_VERSION = 1


@dataclass(frozen=True)
class _Layer:
    name: str
    forward_s: Annotated[float, Stored(0)]
    backward_s: Annotated[float, Stored(0)]
    weight_s: Annotated[float, Stored(0)]
    parameter_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]
    state_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]
    stash_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]
    boundary_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]
    weight_stash_bytes: Annotated[int | None, Stored(0, _LARGEST_BYTES)] = None
    whole_backward_s: Annotated[float | None, Stored(0)] = None
    policies: tuple[Policy, ...] = ()


_OPTIONAL = ("weight_stash_bytes", "whole_backward_s")
_COLUMNS = {
    each.name: np.int64 if each.name.endswith("_bytes") else np.float64
    for each in fields(_Layer)[1:]
    if each.name not in (*_OPTIONAL, "policies")
}
"""One of each layer, with their types."""


@dataclass(frozen=True)
class _File:
    name: str
    layers: tuple[_Layer, ...]
    source: str = ""
    embedding_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)] = 0
    boundary_shape: Annotated[tuple[int, int] | None, Stored(1, 2**31, each="[rows, columns]")] = None


def read_pipeline_profile(path: str | Path) -> PipelineProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    read = read_file(_File, path, _FORMAT, _VERSION)
    columns: dict[str, Any] = {
        name: np.array([getattr(layer, name) for layer in read.layers], kind) for name, kind in _COLUMNS.items()
    }
    otherwise = (columns["stash_bytes"], columns["backward_s"] + columns["weight_s"])
    for name, column in zip(_OPTIONAL, otherwise, strict=True):
        own = [getattr(layer, name) for layer in read.layers]
        filled = [other if each is None else each for each, other in zip(own, column.tolist(), strict=True)]
        columns[name] = None if own.count(None) == len(own) else np.array(filled, column.dtype)
    policies = tuple(layer.policies for layer in read.layers)
    with located(str(path)):
        return PipelineProfile(
            read.name, tuple(layer.name for layer in read.layers), **columns, source=read.source,
            embedding_bytes=read.embedding_bytes, boundary_shape=read.boundary_shape,
            policies=policies if any(policies) else (),
        )  # fmt: skip


def write_pipeline_profile(path: str | Path, profile: PipelineProfile) -> None:
    """Write a profile, whole or not at all."""
    write_text(path, pipeline_profile_text(profile))


def pipeline_profile_text(profile: PipelineProfile) -> str:
    """A profile as JSON, one layer a line."""
    columns = [getattr(profile, name).tolist() for name in _COLUMNS]
    for name in _OPTIONAL:
        column = getattr(profile, name)
        columns.append([None] * profile.layer_count if column is None else column.tolist())
    columns.append(list(profile.policies) or [()] * profile.layer_count)
    layers = tuple(_Layer(*layer) for layer in zip(profile.layer_names, *columns, strict=True))
    file = _File(profile.name, layers, profile.source, profile.embedding_bytes, profile.boundary_shape)
    return text_of(file, _FORMAT, _VERSION, ["layers"])
