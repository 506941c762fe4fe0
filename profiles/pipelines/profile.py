"""PipelineProfile: the layers of a model in order, and what one micro-batch costs in each; and its files.

JSON, format `gapless.pipeline-profile`, version 1; `//` comments are allowed::

    {"format": "gapless.pipeline-profile", "version": 1, "name": "tiny", "boundary_shape": [8, 4],
     "layers": [{"name": "embedding", "forward_s": 0.01, "backward_s": 0, "weight_s": 0.01, "parameter_bytes": 4096,
                 "state_bytes": 32768, "stash_bytes": 512, "boundary_bytes": 64},
                {"name": "head", "forward_s": 0.02, "backward_s": 0.03, "weight_s": 0.02, "parameter_bytes": 4096,
                 "state_bytes": 32768, "stash_bytes": 1024, "boundary_bytes": 0}]}

Layers stand in the order of the forward pass. Optional are `embedding_bytes`, `boundary_shape` and `source`.
`PipelineProfile` says what each field means.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.brief import Brief
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record

__all__ = [
    "PipelineProfile",
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


@dataclass(frozen=True, repr=False)
class PipelineProfile(Brief):
    """Layers in order, each of them whole on one rank; all columns have the shape (layers,).

    `forward_s`, `backward_s`, `weight_s`: float, seconds of one micro-batch: F, the gradient of the input (I), the
    gradient of the weights (W). `parameter_bytes`: int64, the gradients that data parallelism sums. `state_bytes`: what
    stays on the rank whatever happens: weights, gradients, optimiser. `stash_bytes`: what a micro-batch keeps from its
    forward to the gradient of the weights. `boundary_bytes`: the activation that goes on to the next layer, and the
    size of the gradient that comes back. `embedding_bytes`: gradients of weights that the first and the last layer
    share, 0 for none; they are among the parameter bytes of both. `boundary_shape`: rows and columns of the activation
    as a matrix, where it is known: compressors by rank need it. `source`: where the numbers are from. `is_uniform`:
    whether there are as many equal layers as a question has stages, made up for it.
    Raises `InputError` where lengths differ or a number is negative, not finite or too large.
    """

    name: str
    layer_names: tuple[str, ...]
    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    weight_s: NDArray[np.float64]
    parameter_bytes: NDArray[np.int64]
    state_bytes: NDArray[np.int64]
    stash_bytes: NDArray[np.int64]
    boundary_bytes: NDArray[np.int64]
    embedding_bytes: int = 0
    boundary_shape: tuple[int, int] | None = None
    source: str = ""
    is_uniform: bool = False

    def __post_init__(self) -> None:
        where, count = f"profile {self.name!r}", len(self.layer_names)
        if not count:
            raise InputError(f"{where}: layers must hold at least one, got none")
        for title in ("forward_s", "backward_s", "weight_s"):
            self._check_column(title, count, _LONGEST_S)
        for title in ("parameter_bytes", "state_bytes", "stash_bytes", "boundary_bytes"):
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


def uniform_profile(
    forward_s: float, backward_s: float, weight_s: float, ranks: int, chunks: int, name: str
) -> PipelineProfile:
    """As many equal layers as there are stages, for trials; the times are of one rank's part, of `chunks` layers.

    A micro-batch keeps 1 GB on each rank. No parameters: there is nothing to sum among replicas.
    """
    count = ranks * chunks
    none = np.zeros(count, dtype=np.int64)
    return PipelineProfile(
        name=name,
        layer_names=tuple(f"part{k}" for k in range(count)),
        forward_s=np.full(count, forward_s / chunks),
        backward_s=np.full(count, backward_s / chunks),
        weight_s=np.full(count, weight_s / chunks),
        parameter_bytes=none,
        state_bytes=none,
        stash_bytes=np.full(count, UNIFORM_STASH_BYTES // chunks, dtype=np.int64),
        boundary_bytes=np.full(count, UNIFORM_BOUNDARY_BYTES, dtype=np.int64),
        source="equal parts, made up for trials",
        is_uniform=True,
    )


_FORMAT = "gapless.pipeline-profile"
_VERSION = 1
_TIMES = ("forward_s", "backward_s", "weight_s")
_SIZES = ("parameter_bytes", "state_bytes", "stash_bytes", "boundary_bytes")


def read_pipeline_profile(path: str | Path) -> PipelineProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    record = load_record(path)
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    names: list[str] = []
    columns: dict[str, list[float]] = {title: [] for title in (*_TIMES, *_SIZES)}
    for layer in record.records("layers"):
        names.append(layer.text("name"))
        for title in _TIMES:
            columns[title].append(layer.number(title, 0))
        for title in _SIZES:
            columns[title].append(layer.integer(title, 0, _LARGEST_BYTES))
        layer.close()
    name, source = record.text("name"), record.text("source", default="")
    embedding_bytes = record.integer("embedding_bytes", 0, _LARGEST_BYTES, default=0)
    shape = _shape(record)
    record.close()
    arrays: dict[str, Any] = {title: np.array(columns[title], dtype=np.float64) for title in _TIMES}
    arrays.update({title: np.array(columns[title], dtype=np.int64) for title in _SIZES})
    try:
        return PipelineProfile(
            name,
            tuple(names),
            **arrays,
            embedding_bytes=embedding_bytes,
            boundary_shape=shape,
            source=source,
        )
    except InputError as error:  # the profile names the layer, not the file
        raise InputError(f"{path}: {error}") from None


def _shape(record: Record) -> tuple[int, int] | None:
    if "boundary_shape" not in record:
        return None
    shape = record.integers("boundary_shape", 1, 2**31)
    if len(shape) != 2:
        raise record.fail("boundary_shape", "[rows, columns]", list(shape))
    return shape[0], shape[1]


def write_pipeline_profile(path: str | Path, profile: PipelineProfile) -> None:
    """Write a profile, whole or not at all."""
    write_text(path, pipeline_profile_text(profile))


def pipeline_profile_text(profile: PipelineProfile) -> str:
    """A profile as JSON, one layer a line."""
    head: dict[str, object] = {"format": _FORMAT, "version": _VERSION, "name": profile.name}
    if profile.source:
        head["source"] = profile.source
    if profile.embedding_bytes:
        head["embedding_bytes"] = profile.embedding_bytes
    if profile.boundary_shape is not None:
        head["boundary_shape"] = list(profile.boundary_shape)
    titles = ("name", *_TIMES, *_SIZES)
    columns = [profile.layer_names, *(getattr(profile, title).tolist() for title in titles[1:])]
    layers = [json.dumps(dict(zip(titles, layer, strict=True))) for layer in zip(*columns, strict=True)]
    return f'{json.dumps(head)[:-1]},\n"layers": [\n' + ",\n".join(layers) + "]}\n"
