"""Fusion profile files.

JSON, format `gapless.fusion-profile`, version 1; `//` comments are allowed::

    {"format": "gapless.fusion-profile", "version": 1, "name": "tiny", "forward_s": 0.02,
     "tensors": [{"name": "fc.weight", "size_bytes": 4096, "backward_s": 0.001},
                 {"name": "conv.weight", "size_bytes": 1024, "backward_s": 0.003}],
     "compression": {"kind": "affine", "alpha_s": 0.0003, "beta_s_per_byte": 1e-10},
     "communication": {"kind": "points", "points": [[4096, 0.0001], [1048576, 0.0009]]}}

Tensors stand in the order in which their gradients become ready. Optional are `uncompressed_communication`, a cost as
the others, `batch` and `source`. `gapless.profiles.gradients.profile` says what each field means.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record
from gapless.profiles.gradients.cost_functions import AffineCost, CostFunction, PointsCost
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["fusion_profile_text", "read_fusion_profile", "write_fusion_profile"]

_FORMAT = "gapless.fusion-profile"
_VERSION = 1
_LARGEST_BYTES = 2**53


def read_fusion_profile(path: str | Path) -> FusionProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    record = load_record(path)
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    names, sizes, backward_s = [], [], []
    for entry in record.records("tensors"):
        names.append(entry.text("name"))
        sizes.append(entry.integer("size_bytes", 0, _LARGEST_BYTES))
        backward_s.append(entry.number("backward_s", 0))
        entry.close()
    optional = "uncompressed_communication"
    profile = _naming_file(path, lambda: FusionProfile(
        name=record.text("name"),
        forward_s=record.number("forward_s", 0),
        tensor_names=tuple(names),
        size_bytes=np.array(sizes, dtype=np.int64),
        backward_s=np.array(backward_s, dtype=np.float64),
        compression=_cost(record, "compression"),
        communication=_cost(record, "communication"),
        uncompressed_communication=_cost(record, optional) if optional in record else None,
        source=record.text("source", default=""),
        batch=record.integer("batch", 1, _LARGEST_BYTES) if "batch" in record else 0,
    ))  # fmt: skip
    record.close()
    return profile


def _naming_file(path: str | Path, build: Callable[[], FusionProfile]) -> FusionProfile:
    try:
        return build()
    except InputError as error:  # the profile names the tensor, not the file
        message = str(error)
        raise InputError(message if message.startswith(f"{path}: ") else f"{path}: {message}") from None


def _cost(record: Record, key: str) -> CostFunction:
    entry = record.record(key)
    try:
        if entry.text("kind", choices=["affine", "points"]) == "affine":
            cost: CostFunction = AffineCost(entry.number("alpha_s"), entry.number("beta_s_per_byte"))
        else:
            cost = PointsCost(tuple(_point(entry, k, point) for k, point in enumerate(entry.array("points"))))
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(f"{entry.where}: ") else f"{entry.where}: {message}") from None
    entry.close()
    return cost


def _point(entry: Record, number: int, point: Any) -> tuple[float, float]:
    if not isinstance(point, list) or len(point) != 2 or any(type(part) not in (int, float) for part in point):
        raise entry.fail(f"points[{number}]", "[bytes, seconds]", point)
    try:
        return float(point[0]), float(point[1])
    except OverflowError:
        raise entry.fail(f"points[{number}]", "two numbers that fit into 64 bits", point) from None


def write_fusion_profile(path: str | Path, profile: FusionProfile) -> None:
    """Write a profile, whole or not at all."""
    write_text(path, fusion_profile_text(profile))


def fusion_profile_text(profile: FusionProfile) -> str:
    """A profile as JSON, one tensor a line."""
    head = {"format": _FORMAT, "version": _VERSION, "name": profile.name, "forward_s": profile.forward_s}
    if profile.source:
        head["source"] = profile.source
    if profile.batch:
        head["batch"] = profile.batch
    head["compression"] = _cost_data(profile.compression)
    head["communication"] = _cost_data(profile.communication)
    if profile.uncompressed_communication is not None:
        head["uncompressed_communication"] = _cost_data(profile.uncompressed_communication)
    columns = (profile.tensor_names, profile.size_bytes.tolist(), profile.backward_s.tolist())
    tensors = [
        json.dumps({"name": name, "size_bytes": size, "backward_s": backward_s})
        for name, size, backward_s in zip(*columns, strict=True)
    ]
    return f'{json.dumps(head)[:-1]},\n"tensors": [\n' + ",\n".join(tensors) + "]}\n"


def _cost_data(cost: CostFunction) -> dict[str, Any]:
    if isinstance(cost, AffineCost):
        return {"kind": "affine", "alpha_s": cost.alpha_s, "beta_s_per_byte": cost.beta_s_per_byte}
    return {"kind": "points", "points": [list(point) for point in cost.points]}
