"""What the layers of a model take on this machine, to be sharded: `gapless profile fsdp`."""

from __future__ import annotations

from gapless.encodings.fsdp.question import LayersQuestion
from gapless.io.atomic import check_writable
from gapless.profiles.pipelines.profile import write_pipeline_profile
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

__all__ = ["profile_layers"]

_STORED = {"torch.float32": "fp32", "torch.bfloat16": "bf16"}
"""What `--stored` calls the types of parameters that plans know."""


def profile_layers(question: LayersQuestion, session: Session) -> Answer:
    """Measure the layers of a model in whole steps, and write their profile."""
    from gapless.torch.fsdp.measuring import measure_step
    from gapless.torch.run.workload import load_named

    check_writable(question.output)
    work = load_named(question.model, session.options.seed)
    found = measure_step(question.model, work, question.layers or (), question.repeats, report=session.say)
    write_pipeline_profile(question.output, found)
    columns = (found.forward_s, found.backward_s, found.parameter_bytes, found.stash_bytes)
    rows = list(zip(found.layer_names, *(column.tolist() for column in columns), strict=True))
    types = sorted({str(parameter.dtype) for parameter in work.model.parameters()})
    lines = [("layer", "forward", "backward", "parameters", "kept"), *map(_cells, rows)]
    titles = ("name", "forward_s", "backward_s", "parameter_bytes", "stash_bytes")
    data = {"profile": found.name, "source": found.source, "stored": types, "output": question.output,
            "layers": [dict(zip(titles, row, strict=True)) for row in rows]}  # fmt: skip
    return Answer(data, "\n".join([table(lines), found.source, _remark(types)]))


def _cells(row: tuple[str, float, float, int, int]) -> tuple[str, ...]:
    name, forward_s, backward_s, parameter_bytes, stash_bytes = row
    sizes = map(format_bytes, (parameter_bytes, stash_bytes))
    return name, format_seconds(forward_s), format_seconds(backward_s), *sizes


def _remark(types: list[str]) -> str:
    """How a plan of this is asked for."""
    stored = _STORED.get(types[0]) if len(types) == 1 else None
    if stored is None:
        return f"parameters are {', '.join(types)}: plans shard those of one type, fp32 or bf16"
    return f"parameters are {stored}: solve with --stored {stored}"
