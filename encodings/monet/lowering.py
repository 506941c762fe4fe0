"""From decisions to a schedule in the graph IR, one training step on one device.

Every tensor is freed as soon as the decisions have no more use for it, so the replay holds what a run really holds;
the rows of `evaluate` are upper bounds of it, with one exception: MONeT charges an intermediate that is made with its
creator in place as if the creator's input were still there to be given back. Here it takes the bytes that it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.offload.copies import timed
from gapless.encodings.monet.offload.updates import Updating, updating
from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import Event, EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.profiles.training.graph import BackwardNode, TrainingGraph, Variant
from gapless.profiles.training.optimizer import Updates
from gapless.topologies.host import HostLink
from gapless.topologies.topology import Topology

__all__ = ["to_schedule"]

FIXED = 0
"""The tensor of the input and the parameters, there from the start."""


@dataclass(frozen=True)
class _Step:
    """One event to be: node, how it runs, and the tensors that it reads, writes and takes over.

    `workspace_bytes` may still be negative: then the step takes over inputs of that size, if they end with it;
    `may_take` are those that it could.
    """

    node: int
    stage: int
    duration_s: float
    workspace_bytes: int
    label: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    overwrites: tuple[int, ...] = ()
    power_w: float | None = None
    may_take: tuple[int, ...] = ()


def to_schedule(
    graph: TrainingGraph, decisions: Decisions, budget_bytes: int | None = None, link: HostLink | None = None,
    updates: Updates | None = None,
) -> Schedule:  # fmt: skip
    """The stages in order: in each, its nodes in increasing number, then its backward node, one after the other.

    The device holds `budget_bytes`, or has no limit; with a `link`, the host is the second device, and copies travel
    beside the steps. With `updates`, states of an optimiser are there besides what the graph counts. Decisions that
    can't be executed give a schedule whose replay says what is missing. Required at the end: the gradients of the
    parameters, so that no backward node may be left out. Raises `InputError` where the decisions are not of this graph.
    """
    decisions.check_against(graph)
    moves = updating(graph, decisions.copies, updates)
    made = _tensors(graph, moves)
    steps = list(_steps(graph, decisions))
    frees = _last_uses(graph, decisions, steps)
    for number, step in enumerate(steps):
        steps[number] = _taking_over(step, frees[number], made.size_bytes)
        frees[number] = [tensor for tensor in frees[number] if tensor not in steps[number].overwrites]
    _update(graph, moves, steps, frees)
    made.ops, choices = _ops(graph, steps)
    tensors = [moves.tensors(copy) for copy in decisions.copies]
    copy_s = [0.0 if link is None else link.copy_s(made.size_bytes[out]) for out, _ in tensors]
    times = timed([step.duration_s for step in steps], decisions.copies, copy_s)
    for step, start_s, (op, implementation), freed in zip(steps, times.start_s, choices, frees, strict=True):
        copies = tuple((tensor, 0) for tensor in freed)
        end_s = start_s + step.duration_s
        made.events.append(Event(EventKind.COMPUTE, start_s, end_s, 0, op, implementation, frees=copies))
    for direction, starts_s in enumerate((times.out_s, times.back_s)):
        for both, start_s, taken_s in zip(tensors, starts_s, copy_s, strict=True):
            made.move(direction, [both[direction]], start_s, taken_s, freed_on=[direction])
    budget = math.inf if budget_bytes is None else float(budget_bytes)
    topology = Topology("one device", (0,), memory_bytes=(budget,)) if link is None else _with_host(link, budget)
    return made.schedule(topology, f"{graph.name}, batch {graph.batch}", as_listed=link is None)


def _with_host(link: HostLink, budget_bytes: float) -> Topology:
    """A device with a budget, its host, and a link each way."""
    return Topology(
        "one device and its host", (0, 0), link.links(1), engines=((0, "compute"),),
        memory_bytes=(budget_bytes, float(link.host_bytes)),
    )  # fmt: skip


def _tensors(graph: TrainingGraph, moves: Updating) -> ScheduleBuilder:
    """All tensors: input and parameters; the output of node n as tensor 1 + n; what each backward node adds; the states
    that travel, before and after their updates.

    A backward node without parameters adds a tensor of no bytes, which only shows that it ran. States that stay are
    among the parameters. A gradient that travels is gone with its update.
    """
    made, fixed_bytes = ScheduleBuilder(), graph.fixed_bytes
    made.initial.append((made.tensor("input and parameters", fixed_bytes + moves.resident_bytes), 0, 0))
    for node in graph.forward:
        made.tensor(node.name, node.output_bytes)
    for backward in graph.backward:
        made.tensor(f"gradients of {backward.name}", backward.output_bytes)
    made.required += made.initial
    for backward in graph.backward:
        grown = made.tensor(f"parameter gradients of {backward.name}", max(backward.fixed_bytes - fixed_bytes, 0))
        if grown not in moves.gradients.values():
            made.required.append((grown, 0, 0))
        fixed_bytes = max(fixed_bytes, backward.fixed_bytes)
    for b, state in moves.states.items():
        for places, title in ((made.initial, "states"), (made.required, "updated states")):
            tensor = made.tensor(f"{title} of {graph.backward[b].name}", state.size_bytes)
            places.append((tensor, int(state.lives_on_host), 0))
    return made


def _update(graph: TrainingGraph, moves: Updating, steps: list[_Step], frees: list[list[int]]) -> None:
    """The updates of what travels: in their backward nodes, or in steps of their own, last, that take no time."""
    count = len(graph.forward)
    at = {step.node - count: number for number, step in enumerate(steps) if step.node >= count}
    for b in moves.moving:
        before, after = moves.state_tensors(b)
        if moves.are_applied:
            step = steps[at[b]]
            steps[at[b]] = replace(
                step, reads=step.reads + before, writes=step.writes + after, overwrites=step.overwrites + before
            )
            continue
        node, stage = count + len(graph.backward) + b, len(graph.backward)
        reads = (moves.gradient(b), *before)
        steps.append(_Step(node, stage, 0.0, 0, "", reads, after, before))
        frees.append([moves.gradients[b]] if b in moves.gradients else [])


def _steps(graph: TrainingGraph, decisions: Decisions) -> Iterator[_Step]:
    for stage in range(len(graph.backward) + 1):
        for node in np.flatnonzero(decisions.recomputed[stage]).tolist():
            step = _forward_step(graph, decisions, stage, node)
            if not (
                stage and node == graph.loss and not step.duration_s
            ):  # made again, the loss takes and costs nothing
                yield step
        if stage:
            yield _backward_step(graph, decisions, stage)


def _forward_step(graph: TrainingGraph, decisions: Decisions, stage: int, node: int) -> _Step:
    op, in_place = graph.forward[node], bool(decisions.in_place[stage, node])
    impl = decisions.run(graph, stage, node)
    how = "in place" if in_place else "again" if stage and op.again else ""
    # The profile charges an intermediate with what making it adds: it comes behind its creator, reads the creator's
    # output, and leaves the taking over to the creator.
    reads = tuple(1 + source for source in op.sources) or (FIXED,)
    step = _Step(
        node=node,
        stage=stage,
        duration_s=impl.duration_s,
        workspace_bytes=impl.workspace_bytes,
        label=_label(how, impl.name, len(op.implementations)),
        reads=reads,
        writes=() if stage and node == graph.loss else (1 + node,),
        power_w=impl.power_w,
        may_take=tuple(tensor for tensor in reads if tensor != FIXED),
    )
    if in_place and op.overwrites is not None:
        freed_bytes = graph.forward[op.overwrites].output_bytes
        taken = (1 + op.overwrites,) if op.creator is None else ()
        workspace_bytes = max(0, impl.workspace_bytes + freed_bytes)
        step = replace(step, workspace_bytes=workspace_bytes, overwrites=taken, may_take=())
    return step


def _backward_step(graph: TrainingGraph, decisions: Decisions, stage: int) -> _Step:
    number = stage - 1
    node = graph.backward[number]
    variant = node.variants[int(decisions.variant[number])]
    impl = decisions.backward_run(graph, number)
    gradients = tuple(1 + gradient for gradient in node.gradients)
    made = 1 + len(graph.forward) + number
    return _Step(
        node=len(graph.forward) + number,
        stage=stage,
        duration_s=impl.duration_s,
        workspace_bytes=impl.workspace_bytes,
        label=_label(variant.name or _basis(graph, node, variant), impl.name, len(variant.implementations)),
        reads=gradients + tuple(1 + need for need in variant.needs),
        writes=(made, made + len(graph.backward)),
        power_w=impl.power_w,
        may_take=gradients,
    )


def _basis(graph: TrainingGraph, node: BackwardNode, variant: Variant) -> str:
    """What a variant is computed from, where there are several: the operator's input, its output, an intermediate."""
    if len(node.variants) == 1:
        return ""
    op = graph.forward[node.forward]
    words = {
        "from output" if need == node.forward else "from input" if need in op.inputs else "from intermediate"
        for need in variant.needs
    }
    return " and ".join(sorted(words)) or "from gradients"


def _label(how: str, name: str, choices: int) -> str:
    return ", ".join(part for part in (how, name if choices > 1 else "") if part)


def _last_uses(graph: TrainingGraph, decisions: Decisions, steps: list[_Step]) -> list[list[int]]:
    """The tensors that go at the end of each step: those with no later use, or not kept when the stage ends.

    A tensor that is not kept goes at its last use, not at the end of the stage; one that is kept and never used again
    goes at its last use too.
    """
    frees: list[list[int]] = [[] for _ in steps]
    last: dict[int, int] = {}

    def drop(tensors: list[int]) -> None:
        for tensor in tensors:
            frees[last.pop(tensor)].append(tensor)

    loss = 1 + graph.loss
    lasting = 1 + len(graph.forward) + len(graph.backward)
    stage, written = 0, list[int]()
    for number, step in enumerate(steps):
        if step.stage != stage:
            kept = decisions.stored[step.stage]
            held_before = (1 + np.flatnonzero(decisions.stored[stage] & ~kept)).tolist()
            ended = {tensor for tensor in (*held_before, *written) if tensor in last and not kept[tensor - 1]}
            drop(sorted(ended))
            stage, written = step.stage, []
        written += [tensor for tensor in step.writes if tensor < loss]
        last.update({tensor: number for tensor in step.reads if tensor in last})
        drop([tensor for tensor in step.writes if tensor in last])
        for tensor in step.overwrites:
            last.pop(tensor, None)
        last.update({tensor: number for tensor in step.writes if tensor < lasting})
    drop(list(last))
    return frees


def _taking_over(step: _Step, ending: list[int], size_bytes: list[int]) -> _Step:
    """A negative workspace as what it stands for: inputs that end with this step, whose bytes its outputs take over.

    The fewest bytes that suffice: one input if one is large enough, else all. Where none ends here (a view of a tensor
    that is kept, which shares its bytes), the step is charged in full.
    """
    missing = -step.workspace_bytes
    if missing <= 0:
        return step
    candidates = sorted((tensor for tensor in step.may_take if tensor in ending), key=lambda tensor: size_bytes[tensor])
    enough = [tensor for tensor in candidates if size_bytes[tensor] >= missing]
    taken = tuple(enough[:1] or candidates)
    workspace_bytes = max(0, sum(size_bytes[tensor] for tensor in taken) - missing)
    return replace(step, workspace_bytes=workspace_bytes, overwrites=taken)


def _ops(graph: TrainingGraph, steps: list[_Step]) -> tuple[list[Op], list[tuple[int, int]]]:
    """An op for each node that runs, with each implementation in which it does; and each step's choice.

    The loss that is run again is an op of its own: it writes nothing.
    """
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    firsts: list[_Step] = []
    implementations: list[dict[Implementation, int]] = []
    choices = []
    for step in steps:
        op = numbers.setdefault((step.node, step.writes), len(firsts))
        if op == len(firsts):
            firsts.append(step)
            implementations.append({})
        inputs = None if step.reads == firsts[op].reads else step.reads
        chosen = Implementation(
            step.duration_s, step.workspace_bytes, inputs, step.overwrites, step.label, step.power_w
        )
        choices.append((op, implementations[op].setdefault(chosen, len(implementations[op]))))
    names = [*(node.name for node in graph.forward), *(node.name for node in graph.backward)]
    names += [f"update after {node.name}" for node in graph.backward]
    kinds = ["forward"] * len(graph.forward) + ["backward"] * len(graph.backward) + ["update"] * len(graph.backward)
    kinds[graph.loss] = "loss"
    ops = [
        Op(
            name=names[first.node],
            inputs=first.reads,
            outputs=first.writes,
            implementations=tuple(impls),
            kind=kinds[first.node],
        )
        for first, impls in zip(firsts, implementations, strict=True)
    ]
    return ops, choices
