"""A plan that is carried over: its decisions on the same network at another batch size, where they still fit.

What is kept, what is recomputed and from what each gradient is computed stay as they are. Implementations are chosen
anew, since their times and workspaces change with the batch: the fastest that fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.encodings.monet.decisions import Decisions, StepDecision
from gapless.encodings.monet.lowering import to_schedule
from gapless.errors import InputError
from gapless.io.plan import given_plan
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["Carried", "carried_from"]


@dataclass(frozen=True)
class Carried:
    """What a plan decided; `ops`: what it runs, in its order. `name` and `batch`: of its network."""

    decision: StepDecision
    ops: tuple[str, ...]
    name: str
    batch: int

    def on(self, graph: TrainingGraph) -> Decisions:
        """The same decisions on another graph. Raises `InputError` where that isn't of the same operators."""
        rule = f"carry: must be a plan of {graph.name!r}, got one of {self.name!r}"
        try:
            decisions = self.decision.on(graph)
        except InputError as error:
            raise InputError(f"{rule} with other operators ({error})") from None
        ops = tuple(op.name for op in to_schedule(graph, decisions).graph.ops)
        if ops != self.ops:
            where = next((pair for pair in zip(self.ops, ops, strict=False) if pair[0] != pair[1]), None)
            other = f"{len(ops)} and {len(self.ops)} of them" if where is None else f"{where[0]!r} for {where[1]!r}"
            raise InputError(f"{rule} with other operators ({other}); solve it without `carry`")
        return decisions


def carried_from(plan: object) -> Carried:
    """What a plan decides that is in a file, was read, or was solved here. Raises `InputError` where it doesn't say."""
    name, saved = given_plan(plan, "monet", "carry")
    if saved.problem.get("method") == "gist":
        raise InputError(f"{name}: must keep tensors as they are; a plan of method gist keeps them encoded")
    decision = StepDecision.of(saved, name)
    ops = tuple(op.name for op in saved.schedule.graph.ops)
    return Carried(decision, ops, str(saved.problem.get("graph")), int(saved.problem.get("batch", 0)))
