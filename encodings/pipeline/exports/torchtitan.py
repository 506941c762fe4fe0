"""Plans as configurations of torchtitan, which takes the order from a file of torch.distributed.pipelining.

torchtitan places stages by the name of a schedule: around all ranks, or in a V of two stages a rank. Which modules a
stage has is said by name: `module_fqns_per_model_part`. Its checkpoints are of blocks, whose forwards run again in each
part of a backward.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from gapless.encodings.pipeline.exports.transformer import blocks_of
from gapless.encodings.pipeline.placement.named import rank_of_stages
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.formats.torch_pipeline import ActionOrder, write_torch_pipeline
from gapless.io.plan import SavedPlan
from gapless.io.record import Record

__all__ = ["export_torchtitan", "torchtitan_text"]

_STYLES = {"PipelineScheduleMulti": "looped", "ZBVZeroBubble": "v"}
"""What makes torchtitan place stages as we do under these names."""


def export_torchtitan(
    path: str, plan: SavedPlan, micro_batch_size: int, tensor_parallel: int, head_modules: Sequence[str]
) -> str:
    """Write the configuration, and the order beside it; says in a line what was written."""
    program, beside = program_of(plan), str(Path(path).with_suffix(".csv"))
    if beside == path:
        raise InputError(f"output: must not end in .csv, where the order is written, got {path}")
    text = torchtitan_text(plan, program, beside, micro_batch_size, tensor_parallel, head_modules)
    write_torch_pipeline(beside, program.order, "compute")
    write_text(path, text)
    says = f"sections training, parallelism and activation_checkpoint of torchtitan, and the order in {beside}"
    return f"{says}; messages are sent as they are made" if program.order.messages else says


def torchtitan_text(
    plan: SavedPlan, program: Program, schedule: str, micro_batch_size: int, tensor_parallel: int,
    head_modules: Sequence[str],
) -> str:  # fmt: skip
    """The file's text; `schedule`: the path of the order. Raises `InputError` with what torchtitan can't do."""
    asked, order = Record(dict(plan.problem), "problem"), program.order
    if program.hop_modes or any(mode != "plain" for mode in program.sum_modes):
        raise InputError("torchtitan sends all gradients plain; solve without compression")
    style = _style(order)
    _, blocks = blocks_of(asked, program.cut, "torchtitan")
    sequences, replicas = micro_batch_size * order.micro_batches, asked.integer("replicas", 1)
    sections: dict[str, dict[str, object]] = {
        "training": {"local_batch_size": sequences, "global_batch_size": sequences * replicas},
        "parallelism": {
            "data_parallel_replicate_degree": replicas,
            "data_parallel_shard_degree": 1,
            "tensor_parallel_degree": tensor_parallel,
            "pipeline_parallel_degree": order.ranks,
            "pipeline_parallel_schedule": style,
            "pipeline_parallel_schedule_csv": schedule,
            "pipeline_parallel_microbatch_size": micro_batch_size,
            "module_fqns_per_model_part": _modules(blocks, head_modules),
        },
        "activation_checkpoint": {"mode": _checkpoints(program)},
    }
    return "\n".join(_section(name, values) for name, values in sections.items())


def _section(name: str, values: dict[str, object]) -> str:
    """Strings, whole numbers and lists of them are written in TOML as they are in JSON."""
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _style(order: ActionOrder) -> str:
    """The name of a schedule under which stages are where the plan has them."""
    chunks, rest = divmod(len(order.rank_of_stage), order.ranks)
    for name, placement in _STYLES.items():
        fits = not rest and (placement != "v" or chunks == 2)
        if fits and tuple(rank_of_stages(placement, order.ranks, chunks).tolist()) == order.rank_of_stage:
            return name
    placed = ", ".join(map(str, order.rank_of_stage))
    rule = "torchtitan places stages around all ranks, or in a V of two stages a rank"
    raise InputError(f"{rule}, the plan on ranks {placed}; solve with --placement looped")


def _modules(blocks: list[int], head_modules: Sequence[str]) -> list[list[str]]:
    """The names of each stage's modules."""
    ends = list(accumulate(blocks))
    parts = [[f"layers.{k}" for k in range(end - count, end)] for end, count in zip(ends, blocks, strict=True)]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += head_modules
    return parts


def _checkpoints(program: Program) -> str:
    program.check_stays("torchtitan")
    program.check_policies("torchtitan")
    if not program.recomputed:
        return "none"
    if len(program.recomputed) < len(program.order.rank_of_stage):
        stages = ", ".join(map(str, program.recomputed))
        raise InputError(
            f"torchtitan checkpoints all stages or none, the plan {stages}; solve with --recomputation all"
        )
    if any(action.kind == "I" for action in program.order.actions):
        rule = "torchtitan's checkpoints run a forward again for each part of a backward, the plan once for both"
        raise InputError(f"{rule}; solve with --backward whole")
    return "full"
