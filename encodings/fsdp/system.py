"""FSDP as the rest of gapless sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gapless.answering import asking
from gapless.encodings.fsdp import decision, parameters, problem, solve, views
from gapless.encodings.fsdp.execution import profiling, run
from gapless.encodings.fsdp.question import LayersQuestion, Question, RunQuestion
from gapless.lazy import lazy
from gapless.question import fields_of
from gapless.system import Command, Export, System
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """What a step needs, where there is no plan."""
    least = details.get("least_memory_bytes")
    if not isinstance(least, float):
        return ()
    return (f"a layer's parameters and gradients take {format_bytes(math.ceil(least))}: give at least as much memory",)


def _budgets(plan: SavedPlan) -> Sequence[float]:
    """The bytes that the question allows the rank."""
    most = plan.problem.get("memory_bytes")
    return (float(most),) if isinstance(most, int | float) else ()


_MODEL_HELP = """\
FACTORY makes (model, inputs), where the model returns its loss, or (model, inputs, loss, targets) with the mean loss of
loss(outputs, targets). The model may be any module; a layer of it must be called once in a forward pass. train:gpt,
with layers, hidden, heads, vocabulary, sequence and micro_batch, is a small GPT of gapless, unless there is a train.py.
"""
_RUN_HELP = f"""\
{_MODEL_HELP}
As many processes as the plan has ranks train by the plan, and by FSDP2's own wrapping: each layer, gathered one ahead.
Compared with FSDP2 as it is: gradients of each step, to the bit. Compared with the plan: groups, order, and with step
the most bytes of gathered parameters. Collectives are real, and then take what the plan says. exit codes: 0 all of it
is as it must be, 2 bad input, or a process failed, 5 something differs. The plan is of a profile of the model, by
`gapless profile fsdp`.

example:
  gapless run fsdp --plan plan.json --model train:gpt
"""

_LAYERS_HELP = f"""\
{_MODEL_HELP}
Whole steps are timed on this machine: what runs between two layers counts to the later one, the loss to the last.

example:
  gapless profile fsdp --model train:gpt,layers=6 -o profile.json
"""

SYSTEM = System(
    name="fsdp",
    what="which sharded parameters are gathered together, when, and which are kept",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve fsdp --profile llama-8b --ranks 64 --bandwidth 35GB/s --memory 6GB -o plan.json
  gapless solve fsdp --profile llama-8b --ranks 64 --bandwidth 35GB/s --memory 6GB --gather bf16,fp8 --scatter fp32,bf16
""",
    summary=("method", "exposed_s", "peak_bytes"),
    lighter="a smaller most_extensions in --parameters",
    view=lazy(lambda: views.render),
    remarks=_remarks,
    headline=("{profile} on {ranks} ranks", "{memory_bytes} for parameters and gradients"),
    budgets=_budgets,
    pictures=("gantt", "memory"),
    exports=(Export("fsdp2", "calls of fully_shard, and what they gather ahead", lazy(lambda: views.export_fsdp2)),),
    runs=(
        Command(
            "fsdp",
            "a plan under FSDP2 beside its own wrapping, on processes of this machine",
            fields_of(RunQuestion),
            asking(RunQuestion, lazy(lambda: run.execute)),
            _RUN_HELP,
            when_stopped="ending the processes",
        ),
    ),
    profiles=(
        Command(
            "fsdp",
            "what the layers of any PyTorch model take on this machine, to be sharded",
            fields_of(LayersQuestion),
            asking(LayersQuestion, lazy(lambda: profiling.profile_layers)),
            _LAYERS_HELP,
        ),
    ),
    decision=lambda: decision.ShardedDecision,
    package="gapless.encodings.fsdp",
)
