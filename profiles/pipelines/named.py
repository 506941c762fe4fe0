"""Pipeline profiles by name, by a short formula, or from a file."""

from __future__ import annotations

import os
from pathlib import Path

from gapless.errors import InputError
from gapless.fields import Number, Scaled
from gapless.profiles.pipelines.compression import CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile, uniform_profile
from gapless.units import parse_plain_seconds

__all__ = ["find_compression", "find_pipeline_profile", "pipeline_profile_names"]

_UNIFORM = "uniform:"
_TIME = Scaled(parse_plain_seconds, Number(0, maximum=1e6))


def pipeline_profile_names() -> list[str]:
    """The profiles that gapless ships."""
    from gapless.profiles.pipelines.transformer import NAMED

    return sorted(NAMED)


def find_pipeline_profile(profile: str | Path | PipelineProfile, ranks: int, chunks: int) -> PipelineProfile:
    """A profile by its name, from a file, or as it is; `uniform:f=10,b=12,w=8` has a layer for each of the
    `ranks` times `chunks` stages. Raises `InputError`.
    """
    if isinstance(profile, PipelineProfile):
        return profile
    text = str(profile)
    if text.startswith(_UNIFORM):
        return uniform_profile(*_times(text), ranks, chunks, text)
    from gapless.profiles.pipelines.profile_file import read_pipeline_profile
    from gapless.profiles.pipelines.transformer import NAMED

    if text in NAMED:
        return NAMED[text]()
    if not Path(text).suffix and not os.path.exists(text):
        known = ", ".join(pipeline_profile_names())
        raise InputError(f"profile: must be one of {known}, uniform:f=10,b=12,w=8, or a file, got {text!r}")
    return read_pipeline_profile(text)


def _times(text: str) -> tuple[float, float, float]:
    """Seconds of f, b, w of `uniform:f=10ms,b=12ms,w=8ms`; numbers are seconds."""
    given = dict(part.partition("=")[::2] for part in text.removeprefix(_UNIFORM).split(","))
    rule = "profile: uniform needs the times f, b and w, such as uniform:f=10ms,b=12ms,w=8ms"
    if sorted(given) != ["b", "f", "w"]:
        raise InputError(f"{rule}, got {text!r}")
    try:
        forward_s, backward_s, weight_s = (_TIME(given[name]) for name in ("f", "b", "w"))
        return forward_s, backward_s, weight_s
    except InputError as error:
        raise InputError(f"{rule}, and each {error}") from None


def find_compression(table: str | Path | CompressionTable) -> CompressionTable:
    """A compression table from a file, or as it is. Raises `InputError`."""
    if isinstance(table, CompressionTable):
        return table
    from gapless.profiles.pipelines.compression_file import read_compression_table

    return read_compression_table(table)
