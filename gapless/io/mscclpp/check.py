"""Judge an MSCCL++ plan, anybody's: its rules, then its execution against the collective that it claims to be."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.collective import COLLECTIVES as KNOWN
from gapless.collective import ROOTED, Collective, collective_by_name
from gapless.errors import InputError
from gapless.io.mscclpp.execute import run
from gapless.io.mscclpp.program import COLLECTIVES, Plan
from gapless.io.mscclpp.structure import structure_problems
from gapless.io.taccl_ef.memory import Memory
from gapless.io.taccl_ef.program import Problem

__all__ = ["Verdict", "judge"]


DOUBTS = {
    "flush": "gives it no effect without a dst_buff",
    "pwsf": "takes the address of its offsets for the offset",
}
"""What the executor's source as of commit 00668b4a does with operations that are judged by what they mean."""


@dataclass(frozen=True)
class Verdict:
    """What is known of a plan.

    `collective`: what its result was compared with, None where that is unknown. `executed`: whether it was run, as it
    is where it breaks no rule. `warnings`: what doesn't make it wrong.
    """

    plan: Plan
    problems: tuple[Problem, ...]
    executed: bool = False
    collective: Collective | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether no fault was found; `summary` says what was compared."""
        return not self.problems

    def summary(self) -> str:
        """One line: the collective, the ranks, and the verdict."""
        line = f"{self.plan.collective} on {len(self.plan.gpus)} GPUs (MSCCL++ plan)"
        if self.problems:
            count = len(self.problems)
            return f"{line}: {count} fault{'s' * (count > 1)}" + ("" if self.executed else ", not executed")
        how = f"executed {'in' if self.plan.inplace else 'out of'} place"
        if self.collective is None:
            return f"{line}: well-formed, no deadlock, no race; its result can't be judged, {how}"
        return f"{line}: valid, {how}"


def judge(plan: Plan, collective: str | None = None) -> Verdict:
    """Check the rules of a plan and execute it in the placement that it claims.

    `collective`: what it should do, None to go by what it says. Where that is none of ALLGATHER, ALLREDUCE, ALLTOALL
    and REDUCESCATTER, only deadlocks, races and reads of nothing are looked for.

    Raises `InputError` for an unknown collective, or one that has a root.
    """
    name = collective or plan.collective
    if collective is not None and (collective not in KNOWN or collective in ROOTED):
        known = ", ".join(sorted(set(KNOWN) - set(ROOTED)))
        raise InputError(f"collective: must be one of {known}, got {collective!r}")
    problems = structure_problems(plan)
    if problems:
        return Verdict(plan, tuple(problems))
    wanted = _wanted(plan, name) if name in COLLECTIVES else None
    sizes = [(gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks) for gpu in plan.gpus]
    if wanted is not None and not _fits(plan, wanted):
        message = f"{sizes[0][0]} chunks of input and {sizes[0][1]} of output can't be those of {name}"
        return Verdict(plan, (Problem("chunk-count", message),))
    memory = Memory(sizes, plan.inplace)
    done = run(plan, memory)
    found = list(done.problems)
    if done.is_complete and wanted is not None:
        found += memory.wrong_chunks(wanted, sizes[0][0] // len(wanted.inputs[0]))
    return Verdict(plan, tuple(found), executed=True, collective=wanted, warnings=_warnings(plan))


def _warnings(plan: Plan) -> tuple[str, ...]:
    used = {operation.name for gpu in plan.gpus for block in gpu.threadblocks for operation in block.ops}
    return tuple(
        f"{name} is judged by what it means; the executor's source as of commit 00668b4a {does}"
        for name, does in DOUBTS.items()
        if name in used
    )


def _wanted(plan: Plan, name: str) -> Collective:
    """The collective with as few chunks as it needs; those of the plan are parts of them."""
    ranks = len(plan.gpus)
    if name == "allreduce":
        whole = ((0,),) * ranks
        return Collective(name, ranks, 1, whole, whole, reduces=True)
    return collective_by_name(name, ranks, 1, None)


def _fits(plan: Plan, wanted: Collective) -> bool:
    parts, rest = divmod(plan.gpus[0].input_chunks, len(wanted.inputs[0]))
    return not rest and plan.gpus[0].output_chunks == parts * len(wanted.outputs[0])
