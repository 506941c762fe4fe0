"""What the events of a saved plan say that ranks do: the order of their actions, what is compressed, what is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gapless.encodings.pipeline.order.stages import rank_of_stages
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.io.torch_pipeline import Action, ActionOrder
from gapless.ir.schedule import EventKind, Schedule

__all__ = ["Program", "program_of"]

_KINDS = {"forward": "F", "backward": "", "weight": "W", "encode": "E", "recompute": "R"}


@dataclass(frozen=True)
class Program:
    """A plan as ranks run it.

    `order`: of all actions. `cut`: the first layer of each stage but the first. `recomputed`: the stages that run their
    forward again. `hop_modes[hop, m]`: the name of the mode in which the gradient of micro-batch m goes from stage
    hop + 1 to hop, where it is compressed. `in_flight[r]`: the most micro-batches, counted once a stage, that rank r
    keeps at once in the replay. `boundary_bytes[s]`: of the activation after stage s; `sent_bytes[r]`: all that rank r
    sends.
    """

    order: ActionOrder
    cut: tuple[int, ...]
    recomputed: tuple[int, ...]
    hop_modes: Mapping[tuple[int, int], str]
    in_flight: tuple[int, ...]
    boundary_bytes: tuple[int, ...]
    sent_bytes: tuple[int, ...]


@dataclass(frozen=True)
class _Found:
    """An op that runs: `action` in the words of the schedule, its times, and its implementation's name."""

    action: Action
    start_s: float
    end_s: float
    mode: str


def program_of(plan: SavedPlan) -> Program:
    """The program of a plan that replays clean. Raises `InputError` for one whose events are no pipeline's."""
    asked = Record(dict(plan.problem), "problem")
    ranks, chunks = asked.integer("ranks", 1), asked.integer("chunks", 1)
    rank_of_stage = tuple(rank_of_stages(asked.text("placement"), ranks, chunks).tolist())
    micro_batches = asked.integer("micro_batches", 1)
    found = sorted(_found(plan.schedule, len(rank_of_stage)), key=lambda each: each.start_s)  # else as they are listed
    computed = [each for each in found if each.action.kind in "FIWB"]
    encoded = [each for each in found if each.action.kind == "E"]
    return Program(
        order=ActionOrder(rank_of_stage, micro_batches, tuple(each.action for each in computed)),
        cut=_cut(plan, asked.integer("layers", 1), len(rank_of_stage)),
        recomputed=tuple(sorted({each.action.stage for each in found if each.action.kind == "R"})),
        hop_modes={(each.action.stage, each.action.micro_batch): each.mode for each in encoded},
        in_flight=_in_flight(computed, rank_of_stage),
        **_messages(plan.schedule, len(rank_of_stage), ranks),
    )


def _cut(plan: SavedPlan, layers: int, stages: int) -> tuple[int, ...]:
    details = Record(dict(plan.details), "details")
    cut = tuple(details.integers("cut", 1, layers - 1))
    if len(cut) != stages - 1 or any(first >= second for first, second in pairwise(cut)):
        raise details.fail("cut", f"{stages - 1} first layers that grow", list(cut))
    return cut


def _found(schedule: Schedule, stages: int) -> Iterator[_Found]:
    """What is computed; ops are named as the lowering names them: kind, stage, micro-batch."""
    for event in schedule.events():
        op = schedule.graph.ops[event.op] if event.kind is EventKind.COMPUTE else None
        if op is None or op.kind not in _KINDS:
            continue
        match = re.fullmatch(r"(F|I|B|W|R|encode) (\d+) (\d+)", op.name)
        if match is None or int(match[2]) >= stages:
            raise InputError(
                f"graph: op {op.name!r} of kind {op.kind} must be named as F 0 0 is, with a stage < {stages}"
            )
        action = Action(int(match[2]), _KINDS[op.kind] or match[1], int(match[3]))
        yield _Found(action, event.start_s, event.end_s, op.implementations[event.implementation].name)


def _in_flight(found: list[_Found], rank_of_stage: tuple[int, ...]) -> tuple[int, ...]:
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


def _messages(schedule: Schedule, stages: int, ranks: int) -> dict[str, Any]:
    graph, sent, boundary = schedule.graph, [0] * ranks, [0] * (stages - 1)
    sizes = graph.size_bytes.tolist()
    for tensor in range(graph.tensor_count):
        match = re.fullmatch(r"activation (\d+) \d+", graph.tensor_name(tensor))
        if match and int(match[1]) < stages - 1:
            boundary[int(match[1])] = sizes[tensor]
    for event in schedule.events():
        if event.kind is EventKind.TRANSFER and not event.reduces:
            for tensor in event.moves:
                if re.search(r"(activation|gradient) \d+ \d+$", graph.tensor_name(tensor)):
                    sent[schedule.topology.links[event.place].source] += sizes[tensor]
    return {"boundary_bytes": tuple(boundary), "sent_bytes": tuple(sent)}
