"""Fusion profile files.

JSON, format `gapless.fusion-profile`, version 2; `//` comments are allowed::

    {"format": "gapless.fusion-profile", "version": 2, "name": "tiny", "forward_s": 0.02,
     "tensors": [{"name": "fc.weight", "size_bytes": 4096, "backward_s": 0.001, "shape": [16, 64]},
                 {"name": "conv.weight", "size_bytes": 1024, "backward_s": 0.003, "shape": [16, 16]}],
     "modes": [{"name": "plain", "error": "exact",
                "communication": {"kind": "affine", "alpha_s": 0.0001, "beta_s_per_byte": 1e-9}},
               {"name": "topk", "error": "feedback",
                "encode": {"kind": "affine", "alpha_s": 0.0003, "beta_s_per_byte": 1e-10},
                "decode": {"kind": "affine", "alpha_s": 0.0001, "beta_s_per_byte": 1e-10},
                "communication": {"kind": "points", "points": [[4096, 0.0001], [1048576, 0.0009]]}}]}

Tensors stand in the order in which their gradients become ready. Optional are `source`, `batch`, the shapes (a tensor
without one counts as a vector where others have one), and of a mode `encode` and `decode` (nothing to do),
`encoded_bytes` and `sent_bytes`, one number a tensor, whose sums over a group the costs are functions of (the tensors'
sizes), `gathered` (0). `gapless.profiles.gradients.profile` and `.modes` say what each field means.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.record import Record, load_record
from gapless.profiles.compressors.compressor import ERRORS
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction, PointsCost
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["fusion_profile_text", "mode_data", "read_fusion_profile", "read_mode", "write_fusion_profile"]

_FORMAT = "gapless.fusion-profile"
_VERSION = 2
_LARGEST_BYTES = 2**53

_Built = TypeVar("_Built")


def read_fusion_profile(path: str | Path) -> FusionProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    record = load_record(path)
    record.of_format(_FORMAT)
    record.integer("version", _VERSION, _VERSION)
    names, sizes, backward_s, shapes = [], [], [], []
    for entry in record.records("tensors"):
        names.append(entry.text("name"))
        sizes.append(entry.integer("size_bytes", 0, _LARGEST_BYTES))
        backward_s.append(entry.number("backward_s", 0))
        shapes.append(entry.integers("shape", 1, _LARGEST_BYTES, default=None))
        entry.close()
    modes = tuple(read_mode(path, entry) for entry in record.records("modes"))
    profile = _naming_file(path, lambda: FusionProfile(
        name=record.text("name"),
        forward_s=record.number("forward_s", 0),
        tensor_names=tuple(names),
        size_bytes=np.array(sizes, dtype=np.int64),
        backward_s=np.array(backward_s, dtype=np.float64),
        modes=modes,
        source=record.text("source", default=""),
        batch=record.integer("batch", 1, _LARGEST_BYTES) if "batch" in record else 0,
        shapes=_shapes(shapes, sizes),
    ))  # fmt: skip
    record.close()
    return profile


def _shapes(shapes: list[tuple[int, ...] | None], sizes: list[int]) -> tuple[tuple[int, ...], ...]:
    """A tensor without a shape is a vector in single precision, where others have one."""
    if all(shape is None for shape in shapes):
        return ()
    return tuple((max(1, size // 4),) if shape is None else shape for shape, size in zip(shapes, sizes, strict=True))


def read_mode(path: str | Path, entry: Record) -> Mode:
    """The mode that a record says; `path`: where that is from. Raises `InputError`."""
    mode = _naming_file(path, lambda: Mode(
        name=entry.text("name"),
        communication=_cost(entry, "communication"),
        encode=_cost(entry, "encode") if "encode" in entry else FREE,
        decode=_cost(entry, "decode") if "decode" in entry else FREE,
        error=entry.text("error", choices=list(ERRORS)),
        encoded_bytes=_numbers(entry, "encoded_bytes"),
        sent_bytes=_numbers(entry, "sent_bytes"),
        gathered=entry.number("gathered", 0, default=0.0),
    ))  # fmt: skip
    entry.close()
    return mode


def _numbers(entry: Record, key: str) -> tuple[float, ...] | None:
    if key not in entry:
        return None
    numbers = entry.array(key)
    for place, number in enumerate(numbers):
        if type(number) not in (int, float) or not 0 <= number <= _LARGEST_BYTES:
            raise entry.fail(f"{key}[{place}]", "a number in 0..2^53", number)
    return tuple(map(float, numbers))


def _naming_file(path: str | Path, build: Callable[[], _Built]) -> _Built:
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
    head["modes"] = [mode_data(mode) for mode in profile.modes]
    columns = (profile.tensor_names, profile.size_bytes.tolist(), profile.backward_s.tolist())
    entries = [
        {"name": name, "size_bytes": size, "backward_s": backward_s}
        for name, size, backward_s in zip(*columns, strict=True)
    ]
    for entry, shape in zip(entries, profile.shapes, strict=False):  # none, or one for each
        entry["shape"] = list(shape)
    tensors = [json.dumps(entry) for entry in entries]
    return f'{json.dumps(head)[:-1]},\n"tensors": [\n' + ",\n".join(tensors) + "]}\n"


def mode_data(mode: Mode) -> dict[str, Any]:
    """A mode in plain values, as `read_mode` takes them."""
    data: dict[str, Any] = {"name": mode.name, "error": mode.error}
    for title in ("encode", "decode"):
        if getattr(mode, title) != FREE:
            data[title] = _cost_data(getattr(mode, title))
    data["communication"] = _cost_data(mode.communication)
    if mode.gathered:
        data["gathered"] = mode.gathered
    for title in ("encoded_bytes", "sent_bytes"):
        if getattr(mode, title) is not None:
            data[title] = list(getattr(mode, title))
    return data


def _cost_data(cost: CostFunction) -> dict[str, Any]:
    if isinstance(cost, AffineCost):
        return {"kind": "affine", "alpha_s": cost.alpha_s, "beta_s_per_byte": cost.beta_s_per_byte}
    return {"kind": "points", "points": [list(point) for point in cost.points]}
