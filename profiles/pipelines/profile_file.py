"""Files of pipeline profiles.

JSON, format `gapless.pipeline-profile`, version 1; `//` comments are allowed::

    {"format": "gapless.pipeline-profile", "version": 1, "name": "tiny", "boundary_shape": [8, 4],
     "layers": [{"name": "embedding", "forward_s": 0.01, "backward_s": 0, "weight_s": 0.01, "parameter_bytes": 4096,
                 "state_bytes": 32768, "stash_bytes": 512, "boundary_bytes": 64},
                {"name": "head", "forward_s": 0.02, "backward_s": 0.03, "weight_s": 0.02, "parameter_bytes": 4096,
                 "state_bytes": 32768, "stash_bytes": 1024, "boundary_bytes": 0}]}

Layers stand in the order of the forward pass. Optional are `embedding_bytes`, `boundary_shape` and `source`.
`gapless.profiles.pipelines.profile` says what each field means.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record
from gapless.profiles.pipelines.profile import PipelineProfile

__all__ = ["pipeline_profile_text", "read_pipeline_profile", "write_pipeline_profile"]

_FORMAT = "gapless.pipeline-profile"
_VERSION = 1
_LARGEST_BYTES = 2**53
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
