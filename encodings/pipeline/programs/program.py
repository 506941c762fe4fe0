"""A saved plan as ranks run it: what it decides, and what they keep and send in its replay."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from gapless.encodings.pipeline.placement.named import copies_of
from gapless.encodings.pipeline.programs.decision import PipelineDecision, RunOp, ops_that_run, rank_of_stage
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action, ActionOrder
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.io.typed import located
from gapless.ir.schedule import EventKind, Schedule
from gapless.profiles.pipelines.profile import INPUT, KEEP

__all__ = ["Program", "program_of"]

_MESSAGE = re.compile(r"(activation|gradient) (\d+) (\d+)$")


@dataclass(frozen=True)
class Program:
    """A plan as ranks run it.

    `order`: of all actions. `cut`: the first layer of each stage but the first. `recomputed`: the stages that run their
    forward again. `hop_modes[hop, m]`: the name of the mode in which the gradient of micro-batch m goes from stage
    hop + 1 to hop, where it is compressed. `sum_modes`: of each stage's sum among replicas, none where all are plain.
    `in_flight[r]`: the most micro-batches, counted once a stage, that rank r
    keeps at once in the replay. `boundary_bytes[s]`: of the activation after stage s; `sent_bytes[r]`: all that rank r
    sends. `policies[s]`: of a stage that runs some of its layers again, what each of them keeps; none where none does.
    `offloaded`: the forwards of which what is kept goes to a host and comes back. `slices`: of each micro-batch; then
    slice k of micro-batch m is micro-batch m K + k here.
    """

    order: ActionOrder
    cut: tuple[int, ...]
    recomputed: tuple[int, ...]
    hop_modes: Mapping[tuple[int, int], str]
    sum_modes: tuple[str, ...]
    in_flight: tuple[int, ...]
    boundary_bytes: tuple[int, ...]
    sent_bytes: tuple[int, ...]
    policies: tuple[str, ...] = ()
    offloaded: tuple[Action, ...] = ()
    slices: int = 1

    def check_stays(self, player: str, way_out: str = "solve without --offload") -> None:
        """Raise `InputError` for slices, and where what micro-batches keep travels: the player does neither."""
        self.check_whole()
        if self.offloaded:
            raise InputError(f"decision: offloaded: {player} copies nothing to hosts; {way_out}")

    def check_whole(self) -> None:
        """Raise `InputError` for slices of micro-batches, whose keys and values no framework's stages pass on."""
        if self.slices > 1:
            rule = "slices of a sequence are run with --emulate alone"
            raise InputError(f"problem: slices: {rule}; emulate computing, or solve without --slices")

    def check_policies(self, player: str, runs_layers: bool = False) -> None:
        """Raise `InputError` where stages run some of their layers again, unless the player does so and the plan asks
        for no more than it can: a layer from its input, in a backward that is one op."""
        names = sorted({name for row in self.policies for name in row.split()} - {KEEP, INPUT})
        stages = ", ".join(str(stage) for stage, row in enumerate(self.policies) if row)
        way_out = "solve with --recomputation auto"
        if stages and not runs_layers:
            raise InputError(f"{player} takes no policies of layers, the plan has some in stages {stages}; {way_out}")
        if names:
            raise InputError(f"{player} runs layers again from their input, the plan has {names[0]!r}; {way_out}")
        if stages and any(action.kind == "I" for action in self.order.actions):
            rule = f"{player} runs layers again for each part of a backward, the plan once for both"
            raise InputError(f"{rule}; solve with --backward whole")

    @property
    def plain_sent_bytes(self) -> tuple[int, ...]:
        """What each rank would send in a step in which nothing is compressed."""
        rank, sent = self.order.rank_of_stage, [0] * self.order.ranks
        for stage, size in enumerate(self.boundary_bytes):
            if rank[stage] != rank[stage + 1]:
                sent[rank[stage]] += self.order.micro_batches * size
                sent[rank[stage + 1]] += self.order.micro_batches * size
        return tuple(sent)


def program_of(plan: SavedPlan) -> Program:
    """The program of a plan that replays clean; of steps that follow one another, that of each. Raises `InputError` for
    one whose events aren't what it decides, and for one with two copies of the model, which no framework plays.
    """
    decision, asked = PipelineDecision.of(plan), Record(dict(plan.problem), "problem")
    if copies_of(asked.raw("placement")) > 1:
        rule = "a bidirectional plan has two copies of the model, which torch and Megatron-LM don't play"
        raise InputError(f"problem: placement: {rule}; solve with --placement v, or plot and check the plan")
    if decision.cells:
        rule = "a forward and a backward in one cell are drawn and replayed, not run"
        raise InputError(f"decision: cells: {rule}; solve without --overlap-cost")
    if "vocabulary_parts" in plan.problem:
        rule = "parts of a vocabulary are drawn and replayed, not run; solve without --vocabulary-parts"
        raise InputError(f"problem: vocabulary_parts: {rule}")
    ranks, slices = rank_of_stage(asked), asked.integer("slices", 1) if "slices" in plan.problem else 1
    micro_batches = slices * asked.integer("micro_batches", 1)
    boundary_bytes, sent_bytes = _messages(plan.schedule, len(ranks), max(ranks) + 1, micro_batches)
    ran = sorted(ops_that_run(plan.schedule, len(ranks)), key=lambda each: each.start_s)  # else as they are listed
    of_first = micro_batches if _steps(plan) > 1 else math.inf  # later steps number theirs on
    computed = [each for each in ran if each.action.kind in "FIWB" and each.action.micro_batch < of_first]
    return Program(
        order=_order(decision, ranks, micro_batches, computed, plan.schedule),
        cut=decision.cut,
        recomputed=decision.recomputed,
        hop_modes={(each.hop, each.micro_batch): each.mode for each in decision.hop_modes},
        sum_modes=decision.sum_modes,
        in_flight=_in_flight(computed, ranks),
        boundary_bytes=boundary_bytes,
        sent_bytes=sent_bytes,
        policies=decision.policies,
        offloaded=decision.on_host,
        slices=slices,
    )


def _steps(plan: SavedPlan) -> int:
    asked = Record(dict(plan.problem), "problem")
    return asked.integer("steps", 1) if "steps" in plan.problem else 1


def _order(
    decision: PipelineDecision, ranks: tuple[int, ...], micro_batches: int, computed: list[RunOp], schedule: Schedule
) -> ActionOrder:
    """Of all actions, and of messages where it is decided. Raises `InputError` where the schedule has another."""
    with located("decision"):
        order = ActionOrder(ranks, micro_batches, _in_order(decision, computed), decision.queues)
    sent_s = _sent_s(schedule)
    for number, queue in enumerate(order.messages):
        for first, second in pairwise(queue):
            if sent_s[_message(first)] > sent_s[_message(second)]:
                rule = f"must be in the schedule's order, in which {second} leaves before {first}"
                raise InputError(f"decision: messages[{number}]: {rule}")
    return order


def _message(action: Action) -> tuple[str, int, int]:
    """What its message is called: the activation of its stage, the gradient of the one before."""
    if action.kind == "F":
        return "activation", action.stage, action.micro_batch
    return "gradient", action.stage - 1, action.micro_batch


def _sent_s(schedule: Schedule) -> dict[tuple[str, int, int], float]:
    """When each message leaves."""
    found = {}
    for event in schedule.events():
        if event.kind is EventKind.TRANSFER:
            for tensor in event.moves:
                match = _MESSAGE.search(schedule.graph.tensor_name(tensor))
                if match:
                    found[match[1], int(match[2]), int(match[3])] = event.start_s
    return found


def _in_order(decision: PipelineDecision, computed: list[RunOp]) -> tuple[Action, ...]:
    """The actions of all ranks by when they run. Raises `InputError` for a rank that runs them in another order."""
    place = {each.action: number for number, each in enumerate(computed)}
    for rank, row in enumerate(decision.actions):
        at = [place.get(action, -1) for action in row]
        wrong = next((k for k in range(len(row)) if at[k] < 0 or (k and at[k] <= at[k - 1])), None)
        if wrong is not None:
            raise InputError(f"order[{rank}]: must be the schedule's, in which {row[wrong]} isn't next")
    decided = {action for row in decision.actions for action in row}
    more = next((each.action for each in computed if each.action not in decided), None)
    if more is not None:
        raise InputError(f"order: must have every action of the schedule, {more} is missing")
    return tuple(each.action for each in computed)


def _in_flight(found: list[RunOp], rank_of_stage: tuple[int, ...]) -> tuple[int, ...]:
    """From the start of a forward to the end of its weight gradient; what ends at an instant ends first."""
    changes = sorted(
        (each.start_s, 1, each.action.stage) if each.action.kind == "F" else (each.end_s, -1, each.action.stage)
        for each in found
        if each.action.kind in "FWB"
    )
    live, most = ([0] * (max(rank_of_stage) + 1) for _ in range(2))
    for _, change, stage in changes:
        rank = rank_of_stage[stage]
        live[rank] += change
        most[rank] = max(most[rank], live[rank])
    return tuple(most)


def _messages(
    schedule: Schedule, stages: int, ranks: int, micro_batches: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The bytes of the activation after each stage but the last, and of what each rank sends in the first step."""
    graph, sent, boundary = schedule.graph, [0] * ranks, [0] * (stages - 1)
    sizes = graph.size_bytes.tolist()
    for tensor in range(graph.tensor_count):
        match = re.fullmatch(r"activation (\d+) \d+", graph.tensor_name(tensor))
        if match and int(match[1]) < stages - 1:
            boundary[int(match[1])] = sizes[tensor]
    for event in schedule.events():
        if event.kind is EventKind.TRANSFER and not event.reduces:
            for tensor in event.moves:
                match = _MESSAGE.search(graph.tensor_name(tensor))
                if match and int(match[3]) < micro_batches:
                    sent[schedule.topology.links[event.place].source] += sizes[tensor]
    return tuple(boundary), tuple(sent)
