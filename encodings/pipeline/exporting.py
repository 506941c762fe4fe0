"""Plans as files of the frameworks that run pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.encodings.pipeline.megatron import megatron_arguments
from gapless.encodings.pipeline.program import Program, program_of
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.plan import SavedPlan
from gapless.io.torch_pipeline import FORMS, write_torch_pipeline

__all__ = ["check_torch_runs", "export_megatron", "export_torch"]


def export_torch(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    """Write the order of actions as torch.distributed.pipelining reads it; says in a line what was written."""
    program = program_of(plan)
    check_torch_runs(program)
    if program.hop_modes and not values["compressed"]:
        count, modes = len(program.hop_modes), ", ".join(sorted(set(program.hop_modes.values())))
        rule = f"torch's own stages send every hop plain, the plan compresses {count} ({modes})"
        raise InputError(f"{rule}; give --compressed if gapless.torch.pipeline.CompressedStage is your stage class")
    write_torch_pipeline(path, program.order, values["form"])
    order = program.order
    stages = f"{len(order.rank_of_stage)} stages on {order.ranks} ranks, {order.micro_batches} micro-batches"
    return f'{stages}, for _PipelineScheduleRuntime._load_csv(path, format="{FORMS[values["form"]]}")'


def check_torch_runs(program: Program) -> None:
    """Raise `InputError` where torch has no action for what the plan does."""
    if program.recomputed:
        stages = ", ".join(map(str, program.recomputed))
        rule = f"torch's schedules have no recomputation, the plan recomputes stages {stages}"
        raise InputError(f"{rule}; solve with --recomputation none")


def export_megatron(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    """Write the arguments with which Megatron-LM runs the plan, one a line; says in a line what was written."""
    arguments = megatron_arguments(plan, program_of(plan), values["micro_batch_size"])
    write_text(path, "".join(f"{argument}\n" for argument in arguments))
    return f"{len(arguments)} arguments of Megatron-LM, for pretrain_gpt.py $(cat {path})"
