"""Profiles and compression tables measured on a PyTorch model: `gapless profile`. Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.io.atomic import check_writable
from gapless.profiles.pipelines.compression import CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

__all__ = ["profile_errors", "profile_layers"]


def profile_layers(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure the layers of a model, and write their profile."""
    from gapless.profiles.pipelines.profile_file import write_pipeline_profile
    from gapless.torch.pipeline.layers import load_layers
    from gapless.torch.pipeline.measuring import measure_layers

    check_writable(values["output"])
    model = load_layers(values["model"], values["micro_batches"], session.options.seed)
    found = measure_layers(
        model, values["micro_batches"], values["repeats"], values["optimizer_ratio"], session.say
    )  # fmt: skip
    write_pipeline_profile(values["output"], found)
    return Answer({"profile": found.name, "source": found.source, "layers": _rows(found), "output": values["output"]},
                  _table(found))  # fmt: skip


def _rows(profile: PipelineProfile) -> list[dict[str, Any]]:
    titles = ("forward_s", "backward_s", "weight_s", "parameter_bytes", "stash_bytes", "boundary_bytes")
    columns = [getattr(profile, title).tolist() for title in titles]
    rows = zip(profile.layer_names, *columns, strict=True)
    return [dict(zip(("name", *titles), row, strict=True)) for row in rows]


def _table(profile: PipelineProfile) -> str:
    lines: list[tuple[str, ...]] = [("layer", "F", "I", "W", "parameters", "stash", "boundary")]
    for row in _rows(profile):
        name, *cells = row.values()
        lines.append((name, *map(format_seconds, cells[:3]), *map(format_bytes, cells[3:])))
    return _aligned(lines, profile.source)


def profile_errors(values: Mapping[str, Any], session: Session) -> Answer:
    """Measure what compressors spoil on a model's batch, and write the table."""
    from gapless.profiles.pipelines.compression_file import write_compression_table
    from gapless.torch.pipeline.calibration import measure_errors
    from gapless.torch.pipeline.layers import load_layers

    check_writable(values["output"])
    model = load_layers(values["model"], values["micro_batches"], session.options.seed)
    found = measure_errors(
        model, values["micro_batches"], values["modes"], values["depths"], values["repeats"], session.say
    )  # fmt: skip
    write_compression_table(values["output"], found)
    data = {"table": found.name, "source": found.source, "modes": [mode.name for mode in found.modes],
            "output": values["output"]}  # fmt: skip
    return Answer(data, _modes(found))


def _modes(table: CompressionTable) -> str:
    lines: list[tuple[str, ...]] = [("mode", "sent", "hop error", "sum error", "encode", "decode")]
    for mode in table.modes:
        hop, reduce = ((float(column.min()), float(column.max())) for column in (mode.hop_error, mode.reduce_error))
        costs = (f"{1e9 * seconds:.3g} ns/B" for seconds in (mode.encode_s_per_byte, mode.decode_s_per_byte))
        ranges = (f"{low:.2g} .. {high:.2g}" for low, high in (hop, reduce))
        lines.append((mode.name, f"{mode.ratio:.1%}", *ranges, *costs))
    return _aligned(lines, table.source)


def _aligned(lines: list[tuple[str, ...]], source: str) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.rjust(width) if k else cell.ljust(width) for k, (cell, width) in
                      enumerate(zip(line, widths, strict=True))) for line in lines]  # fmt: skip
    return "\n".join([*rows, source])
