"""Plans as schedules of torch.distributed.pipelining."""

from __future__ import annotations

from gapless.encodings.pipeline.programs.program import program_of
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import FORMS, write_torch_pipeline
from gapless.io.plan import SavedPlan

__all__ = ["export_torch"]


def export_torch(path: str, plan: SavedPlan, form: str, compressed: bool, recomputing: bool) -> str:
    """Write the order of actions as torch.distributed.pipelining reads it; says in a line what was written."""
    program = program_of(plan)
    program.check_stays("a schedule of torch", "run it with gapless run pipeline, or solve without --offload")
    if program.recomputed and not recomputing:
        stages, use = ", ".join(map(str, program.recomputed)), "with recomputes=True for them"
        rule = f"torch's schedules don't say what is recomputed, the plan recomputes stages {stages}"
        raise InputError(f"{rule}; give --recomputing if gapless.torch.pipeline.CompressedStage is your class, {use}")
    program.check_policies("torch", runs_layers=recomputing)
    if program.hop_modes and not compressed:
        count, modes = len(program.hop_modes), ", ".join(sorted(set(program.hop_modes.values())))
        rule = f"torch's own stages send every hop plain, the plan compresses {count} ({modes})"
        raise InputError(f"{rule}; give --compressed if gapless.torch.pipeline.CompressedStage is your stage class")
    write_torch_pipeline(path, program.order, form)
    order = program.order
    stages = f"{len(order.rank_of_stage)} stages on {order.ranks} ranks, {order.micro_batches} micro-batches"
    says = f'{stages}, for _PipelineScheduleRuntime._load_csv(path, format="{FORMS[form]}")'
    if order.messages and form == "compute":
        says += "; torch sends messages as they are made: give --form communication to keep the plan's order of them"
    return says
