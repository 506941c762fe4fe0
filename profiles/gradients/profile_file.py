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
sizes), `gathered` (0), `communication_work` (no processor time), and `cores` (as many as are needed).
`gapless.profiles.gradients.profile` and `.modes` say what each field means.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from gapless.io.atomic import write_text
from gapless.io.typed import Stored, located, read_file, text_of
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["fusion_profile_text", "read_fusion_profile", "write_fusion_profile"]

_FORMAT = "gapless.fusion-profile"
_VERSION = 2
_LARGEST_BYTES = 2**53


@dataclass(frozen=True)
class _Tensor:
    name: str
    size_bytes: Annotated[int, Stored(0, _LARGEST_BYTES)]
    backward_s: Annotated[float, Stored(0)]
    shape: Annotated[tuple[int, ...] | None, Stored(1, _LARGEST_BYTES)] = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Its shape; without one it is a vector in single precision."""
        return (max(1, self.size_bytes // 4),) if self.shape is None else self.shape


@dataclass(frozen=True, kw_only=True)
class _File:
    name: str
    forward_s: Annotated[float, Stored(0)]
    source: str = ""
    batch: Annotated[int, Stored(1, _LARGEST_BYTES)] = 0
    cores: Annotated[float | None, Stored(1)] = None
    modes: tuple[Mode, ...]
    tensors: tuple[_Tensor, ...]


def read_fusion_profile(path: str | Path) -> FusionProfile:
    """The profile in a file. Raises `InputError`, one line that names the file, the field, the rule and the value."""
    read = read_file(_File, path, _FORMAT, _VERSION)
    has_shapes = any(tensor.shape is not None for tensor in read.tensors)
    with located(str(path)):
        return FusionProfile(
            name=read.name,
            forward_s=read.forward_s,
            tensor_names=tuple(tensor.name for tensor in read.tensors),
            size_bytes=np.array([tensor.size_bytes for tensor in read.tensors], dtype=np.int64),
            backward_s=np.array([tensor.backward_s for tensor in read.tensors], dtype=np.float64),
            modes=read.modes,
            source=read.source,
            batch=read.batch,
            cores=read.cores,
            shapes=tuple(tensor.lengths for tensor in read.tensors) if has_shapes else (),
        )


def write_fusion_profile(path: str | Path, profile: FusionProfile) -> None:
    """Write a profile, whole or not at all."""
    write_text(path, fusion_profile_text(profile))


def fusion_profile_text(profile: FusionProfile) -> str:
    """A profile as JSON, one tensor a line."""
    shapes = profile.shapes or (None,) * len(profile.tensor_names)
    columns = (profile.tensor_names, profile.size_bytes.tolist(), profile.backward_s.tolist(), shapes)
    file = _File(
        name=profile.name, forward_s=profile.forward_s, source=profile.source, batch=profile.batch, cores=profile.cores,
        modes=profile.modes, tensors=tuple(_Tensor(*tensor) for tensor in zip(*columns, strict=True)),
    )  # fmt: skip
    return text_of(file, _FORMAT, _VERSION, ["tensors"])
