"""Plans as arguments of Megatron-LM, which runs two orders, on any cut.

It has 1F1B and, with several chunks a rank, interleaved 1F1B. Each stage has as many layers as the others, but for the
first and the last one; the embedding goes with the first and the head with the last, or both count as a layer. Any
other cut is written as its layout: `Et*3|t*4|t*2,L` has the embedding, layers and the loss by stage.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np

from gapless.encodings.pipeline.exports.transformer import blocks_of
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.programs.program import Program, program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.formats.torch_pipeline import Action, ActionOrder
from gapless.io.plan import SavedPlan
from gapless.io.record import Record

__all__ = ["export_megatron", "megatron_arguments"]


def export_megatron(path: str, plan: SavedPlan, micro_batch_size: int, tensor_parallel: int) -> str:
    """Write the arguments with which Megatron-LM runs the plan, one a line; says in a line what was written."""
    arguments = megatron_arguments(plan, program_of(plan), micro_batch_size)
    if tensor_parallel > 1:
        arguments.append(f"--tensor-model-parallel-size {tensor_parallel}")
    write_text(path, "".join(f"{argument}\n" for argument in arguments))
    return f"{len(arguments)} arguments of Megatron-LM, for pretrain_gpt.py $(cat {path})"


_LETTERS = {Kind.FORWARD: "F", Kind.BACKWARD: "B"}


def megatron_arguments(plan: SavedPlan, program: Program, micro_batch_size: int) -> list[str]:
    """Each with its value. Raises `InputError` with what Megatron-LM can't do of the plan."""
    asked, order = Record(dict(plan.problem), "problem"), program.order
    ranks, chunks, replicas = (asked.integer(name, 1) for name in ("ranks", "chunks", "replicas"))
    if program.hop_modes:
        raise InputError("Megatron-LM sends every hop plain; solve without compression")
    name = "1f1b" if chunks == 1 else "interleaved-1f1b"
    if not _is(order, name):
        raise InputError(f"Megatron-LM runs 1f1b and interleaved-1f1b; solve with --method {name} --backward whole")
    if chunks > 1 and (order.micro_batches % ranks or order.micro_batches == ranks):
        rule = f"must be a multiple of {ranks} ranks, and more, for Megatron-LM to interleave"
        raise InputError(f"micro_batches: {rule}, got {order.micro_batches}")
    blocks, split = _split(asked, program.cut, chunks)
    arguments = {
        "pipeline-model-parallel-size": ranks,
        "num-layers": sum(blocks),
        "micro-batch-size": micro_batch_size,
        "global-batch-size": micro_batch_size * order.micro_batches * replicas,
    }
    lines = [f"--{key} {value}" for key, value in arguments.items()] + split
    program.check_stays("Megatron-LM")
    program.check_policies("Megatron-LM")
    if program.recomputed:
        lines += _recomputation(program, blocks)
    return lines


def _is(order: ActionOrder, name: str) -> bool:
    """Whether every rank runs what the baseline of this name says."""
    stages, per_kind = len(order.rank_of_stage), len(order.rank_of_stage) * order.micro_batches
    counts = SimpleNamespace(ranks=order.ranks, micro_batches=order.micro_batches, count=stages,
                             rank=np.array(order.rank_of_stage))  # fmt: skip
    known = BASELINES[name].order(cast("Stages", counts))  # which looks at counts only
    return all(
        order.of_rank(rank)
        == [
            Action(op % per_kind // order.micro_batches, _LETTERS[Kind(op // per_kind)], op % order.micro_batches)
            for op in sequence.tolist()
        ]
        for rank, sequence in enumerate(known.sequences)
    )


def _split(asked: Record, cut: tuple[int, ...], chunks: int) -> tuple[list[int], list[str]]:
    """How many transformer layers each stage has, and the arguments that make Megatron-LM cut so."""
    sizes, blocks = blocks_of(asked, cut, "Megatron-LM")
    per_chunk = [] if chunks == 1 else [f"--num-layers-per-virtual-pipeline-stage {sizes[0]}"]
    counted = ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
    if len(set(blocks)) == 1:
        return blocks, [] if chunks == 1 else [f"--num-layers-per-virtual-pipeline-stage {blocks[0]}"]
    if len(set(sizes)) == 1:
        return blocks, [*per_chunk, *counted]
    if chunks == 1 and len(set(blocks[1:-1])) <= 1 and min(blocks) > 0:
        ends = (("first", blocks[0]), ("last", blocks[-1]))
        return blocks, [f"--decoder-{end}-pipeline-num-layers {count}" for end, count in ends]
    layers = [f"t*{count}" if count > 1 else "t" * count for count in blocks]
    layout = "|".join(["E" + layers[0], *layers[1:-1], ",".join(filter(None, [layers[-1], "L"]))])
    return blocks, [f"--pipeline-model-parallel-layout {layout}"]


def _recomputation(program: Program, blocks: list[int]) -> list[str]:
    if len(program.recomputed) < len(blocks):
        stages = ", ".join(map(str, program.recomputed))
        raise InputError(
            f"Megatron-LM recomputes all stages or none, the plan {stages}; solve with --recomputation all"
        )
    return ["--recompute-granularity full", "--recompute-method uniform", f"--recompute-num-layers {max(blocks)}"]
