"""What a model's layers cost on this machine, and what compressors spoil of its gradients: `gapless profile`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gapless.encodings.pipeline.question import ErrorsQuestion, LayersQuestion
from gapless.io.atomic import check_writable
from gapless.profiles.pipelines.compression import CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

__all__ = ["profile_errors", "profile_layers"]

_PLAN_S, _PLAN_GAP = 10.0, 0.05
"""Limits of the solve of each plan of a layer."""


def profile_layers(question: LayersQuestion, session: Session) -> Answer:
    """Measure the layers of a model, and write their profile."""
    from gapless.profiles.pipelines.profile import write_pipeline_profile
    from gapless.torch.pipeline.layers import load_layers
    from gapless.torch.pipeline.measuring import Asked, measure_layers, measure_together

    check_writable(question.output)
    options = session.options
    model = load_layers(question.model, question.micro_batches, options.seed)
    found = measure_layers(model, question.micro_batches, question.repeats if question.processes is None else 1,
                           question.optimizer_ratio, session.say)  # fmt: skip
    if question.processes is not None:
        session.say(f"measuring in {question.processes} processes at once ...")
        how = Asked(question.model, question.micro_batches, question.repeats, options.seed, question.wait)
        found = measure_together(found, how, question.processes, options.stop)
    if question.policies:
        from gapless.torch.pipeline.policies import with_policies

        own = replace(options, time_limit_s=_PLAN_S, gap=_PLAN_GAP, on_progress=None, on_plan=None)
        found = with_policies(found, model, question.micro_batches, own, session.say)
    write_pipeline_profile(question.output, found)
    rows = [{"name": name, **dict(zip(_TITLES, cells, strict=True))} for name, cells in _cells(found)]
    data = {"profile": found.name, "source": found.source, "layers": rows, "output": question.output}
    return Answer(data, _table(found))


_TITLES = (
    "forward_s", "backward_s", "weight_s", "whole_backward_s", "parameter_bytes", "stash_bytes", "deferred_bytes",
    "boundary_bytes",
)  # fmt: skip


def _cells(profile: PipelineProfile) -> Iterator[tuple[str, list[float]]]:
    """Of each layer its name, and what `_TITLES` says."""
    columns = (getattr(profile, title).tolist() for title in _TITLES)
    yield from ((name, list(row)) for name, *row in zip(profile.layer_names, *columns, strict=True))


def _table(profile: PipelineProfile) -> str:
    lines: list[tuple[str, ...]] = [
        ("layer", "F", "I", "W", "I and W as one", "parameters", "stash", "from I to W", "boundary")
    ]
    for name, cells in _cells(profile):
        lines.append((name, *map(format_seconds, cells[:4]), *map(format_bytes, cells[4:])))
    return "\n".join([_aligned(lines, profile.source), _split(profile), *_policies(profile)])


def _policies(profile: PipelineProfile) -> Iterator[str]:
    """What layers may keep besides all and their input, a line for each layer that has such policies."""
    for name, found in zip(profile.layer_names, profile.policies, strict=False):
        said = (f"{format_bytes(each.kept_bytes)} for {format_seconds(each.again_s)} more" for each in found)
        if found:
            yield f"{name} may keep {', '.join(said)}"


def _split(profile: PipelineProfile) -> str:
    """What it costs to have I and W as two ops, over all layers."""
    apart_s, whole_s = (float(sum(map(np.sum, profile.backwards_s(splits)))) for splits in (True, False))
    said = f"I and W apart take {format_seconds(apart_s)}, as one {format_seconds(whole_s)}"
    return f"{said}: {apart_s / whole_s - 1:+.1%}" if whole_s else said


def profile_errors(question: ErrorsQuestion, session: Session) -> Answer:
    """Measure what compressors spoil on a model's batch, and write the table."""
    from gapless.profiles.pipelines.compression import write_compression_table
    from gapless.torch.pipeline.layers import load_layers
    from gapless.torch.pipeline.measuring import measure_errors

    check_writable(question.output)
    model = load_layers(question.model, question.micro_batches, session.options.seed)
    found = measure_errors(
        model, question.micro_batches, question.modes, question.depths, question.repeats, session.say
    )  # fmt: skip
    write_compression_table(question.output, found)
    data = {"table": found.name, "source": found.source, "modes": [mode.name for mode in found.modes],
            "output": question.output}  # fmt: skip
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
