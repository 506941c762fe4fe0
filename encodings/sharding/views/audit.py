"""What a saved plan's choices come to: held against its events, and against the instance that its question names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gapless.encodings.sharding.decision import ShardingDecision
from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.lowering import named_choices, to_schedule
from gapless.encodings.sharding.problem import is_there, problem_of
from gapless.encodings.sharding.question import Question
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.question import fields_of
from gapless.system import Audit

__all__ = ["audit", "instance_of_plan"]


def audit(plan: SavedPlan) -> Audit:
    """Choices against the plan's tensors; where the instance can be read, cost and peak by it."""
    try:
        decision = ShardingDecision.of(plan)
    except InputError as error:
        return Audit((str(error),))
    if list(decision.choices) != named_choices(plan.schedule):
        return Audit(("choices: must be those of the plan's tensors, and differ",))
    try:
        instance = instance_of_plan(plan)
    except InputError as error:
        return Audit((f"instance: {error}",))
    if instance is None:
        return Audit(notes=("the instance isn't here: cost and peak are those that the plan's own ledger adds up",))
    return Audit(tuple(_broken(plan, decision, instance)))


def instance_of_plan(plan: SavedPlan) -> Instance | None:
    """The instance that a plan's question names; None where it names none, or its file isn't there.

    Raises `InputError` for a file that is no instance, or another one.
    """
    question = plan.run.get("question")
    fields = question.get("fields") if isinstance(question, Mapping) else None
    named = fields.get("model") or fields.get("instance") if isinstance(fields, Mapping) else None
    if not (isinstance(fields, Mapping) and isinstance(named, str) and ("model" in fields or is_there(named))):
        return None
    strays = sorted(set(fields) - {field.name for field in fields_of(Question)})
    if strays:
        raise InputError(f"run: question: {strays[0]!r} is no field of sharding's question")
    try:
        instance = problem_of(Question(**fields)).instance
    except InputError:
        if "model" in fields:  # its code, or PyTorch, isn't here
            return None
        raise
    if instance.digest != plan.problem.get("sha256"):
        raise InputError(f"{named} isn't the instance that the plan was made for")
    return instance


def _broken(plan: SavedPlan, decision: ShardingDecision, instance: Instance) -> Iterator[str]:
    try:
        choices = decision.of_instance(instance)
    except InputError as error:
        yield str(error)
        return
    known, claimed = instance.evaluate(choices), plan.claim.get("objective_cost")
    if known.forbidden:
        yield f"choices: {known.forbidden} is forbidden"
    if known.peak > instance.usage_limit:
        yield f"choices: use {known.peak:,} bytes at a time point, and the limit is {instance.usage_limit:,}"
    if claimed != known.cost:
        yield f"cost: {claimed} is claimed, and the choices cost {known.cost}"
    bound = plan.claim.get("bound_cost")
    if isinstance(bound, int) and bound > known.cost:
        yield f"bound: {bound} is above the plan's own cost {known.cost}"
    again, saved = to_schedule(instance, choices), plan.schedule
    if again.graph.size_bytes.tolist() != saved.graph.size_bytes.tolist() or again.graph.ops != saved.graph.ops:
        yield "schedule: must be that of the choices, and differs"
    elif again.topology.memory_bytes != saved.topology.memory_bytes:
        yield f"schedule: the device must have {instance.usage_limit} bytes, got {saved.topology.memory_bytes[0]:.15g}"
