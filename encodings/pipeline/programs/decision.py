"""What a pipeline plan decides: the cut, the order of each rank, what recomputes, and the modes of hops and sums.

Plans from before there were decisions say it by their events, whose ops are named as the lowering names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import numpy as np

from gapless.array_types import Ints
from gapless.decision import Decision
from gapless.encodings.pipeline.order.messages import makers
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.order.stages import STAGE_INPUT, Stages
from gapless.encodings.pipeline.placement.named import copies_of, rank_of_stages
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action
from gapless.io.record import Record
from gapless.io.typed import Stored, located
from gapless.ir.schedule import EventKind, Schedule

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["HopMode", "PipelineDecision", "RunOp", "ops_that_run", "rank_of_stage"]

_KINDS = {"forward": "F", "backward": "", "weight": "W", "encode": "E", "recompute": "R"}
_ACTION = re.compile(r"(\d+)([FIWB])(\d+)")
_PLAIN = "plain"
_CELLS = ("FI", "FB")


@dataclass(frozen=True)
class HopMode:
    """The name of the mode in which the gradient of a micro-batch goes from stage hop + 1 to hop."""

    hop: int
    micro_batch: int
    mode: str


@dataclass(frozen=True)
class PipelineDecision(Decision):
    """`cut`: the first layer of each stage but the first. `order[r]`: what rank r computes, one action after the other:
    `0F0 0B0`, as `gapless.io.formats.torch_pipeline` has them. `method`: what found the order. `recomputed`: the stages
    that keep their input alone and run all of their forward again. `policies[s]`: of other stages that run some of it
    again, the policy of each layer by name; none where there are no such stages. Where there are two copies of the
    model, the stages of the second one, and its micro-batches, are numbered after those of the first one. `hop_modes`:
    of gradients that are compressed. `sum_modes`: the name of each stage's mode; none where all are plain. `messages`:
    those from one rank to another in the order in which they leave, by the actions that make them; between other ranks
    they leave as they are made. `cells`: the forwards that run in one cell with the backward that follows them.
    `offloaded`: the forwards of which what is kept goes to the host of their rank, and comes back.
    `feed`: which micro-batch of the question is fed first, and so on; none where they are alike, or in that order.

    Raises `InputError` for what contradicts the cut.
    """

    cut: Annotated[tuple[int, ...], Stored(minimum=1)]
    order: tuple[str, ...]
    method: str
    recomputed: tuple[int, ...] = ()
    hop_modes: tuple[HopMode, ...] = ()
    sum_modes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    cells: str = ""
    policies: tuple[str, ...] = ()
    feed: tuple[int, ...] = ()
    offloaded: str = ""

    def __post_init__(self) -> None:
        stages = len(self.cut) + 1
        if any(first >= second for first, second in pairwise(self.cut)):
            raise InputError(f"cut: must be first layers that grow, got {list(self.cut)}")
        if any(stage >= stages for stage in self.recomputed):
            raise InputError(f"recomputed: must be stages < {stages}, got {list(self.recomputed)}")
        if sorted(self.feed) != list(range(len(self.feed))):
            raise InputError(f"feed: must be every micro-batch once, got {list(self.feed)}")
        if self.policies and len(self.policies) != stages:
            raise InputError(f"policies: must be one for each of {stages} stages, got {len(self.policies)}")
        both = next((stage for stage in self.recomputed if self.policies and self.policies[stage]), None)
        if both is not None:
            raise InputError(
                f"policies[{both}]: must be empty for a stage that is recomputed, got {self.policies[both]!r}"
            )
        for number, each in enumerate(self.hop_modes):
            if each.hop >= stages - 1:
                raise InputError(f"hop_modes[{number}]: hop: must be < {stages - 1}, got {each.hop}")
        if self.sum_modes and len(self.sum_modes) != stages:
            raise InputError(f"sum_modes: must be one for each of {stages} stages, got {len(self.sum_modes)}")

    @cached_property
    def actions(self) -> tuple[tuple[Action, ...], ...]:
        """Those of each rank, in order. Raises `InputError` for a text that is none."""
        return tuple(_actions(f"order[{rank}]", text) for rank, text in enumerate(self.order))

    @cached_property
    def queues(self) -> tuple[tuple[Action, ...], ...]:
        """What makes the messages of each link that has an order of its own. Raises `InputError` as `actions` does."""
        return tuple(_actions(f"messages[{number}]", text) for number, text in enumerate(self.messages))

    @cached_property
    def celled(self) -> frozenset[Action]:
        """The forwards that share a cell. Raises `InputError` as `actions` does."""
        return frozenset(_actions("cells", self.cells))

    @cached_property
    def on_host(self) -> tuple[Action, ...]:
        """The forwards whose stash travels. Raises `InputError` as `actions` does."""
        return _actions("offloaded", self.offloaded)

    @classmethod
    def of_candidate(cls, found: Candidate, names: Sequence[str]) -> PipelineDecision:
        """For the plan file. `names`: of the modes; the first is plain."""
        stages, order = found.stages, found.order
        rows = [_row(stages, sequence) for sequence in order.sequences]
        by_layer = ["" if row == STAGE_INPUT else row for row in stages.policies] or [""] * stages.depth
        compressed = np.argwhere(np.where(stages.crosses[:, None], order.hop_modes, 0)).tolist()
        return cls(
            cut=found.cut,
            order=tuple(rows),
            method=found.method,
            recomputed=tuple(
                stage for stage in np.flatnonzero(stages.recomputes[: stages.depth]).tolist() if not by_layer[stage]
            ),
            hop_modes=tuple(HopMode(hop, m, names[order.hop_modes[hop, m]]) for hop, m in compressed),
            sum_modes=tuple(names[mode] for mode in order.reduce_modes) if order.reduce_modes.any() else (),
            messages=tuple(_row(stages, makers(stages, queue)) for queue in order.messages),
            cells=_row(stages, np.array(sorted(order.cells), dtype=np.int64)),
            policies=tuple(by_layer) if any(by_layer) else (),
            offloaded=_row(stages, found.timeline.offloaded),
            feed=stages.feed if stages.feed != tuple(range(len(stages.feed))) else (),
        )

    @classmethod
    def of(cls, plan: SavedPlan, where: str = "plan") -> PipelineDecision:
        """What a saved plan decides, which fits to its question; by its events where the file is from before.

        Raises `InputError` naming what isn't there or contradicts another field.
        """
        asked = Record(dict(plan.problem), f"{where}: problem")
        ranks, layers = rank_of_stage(asked), asked.integer("layers", 1)
        section = f"{where}: {'decision' if plan.decision else 'details'}"
        decision = super().of(plan, where) if plan.decision else cls._by_events(plan, ranks, section)
        with located(section):
            decision.check(ranks, layers, copies_of(asked.raw("placement")))
        return decision

    @classmethod
    def _by_events(cls, plan: SavedPlan, ranks: tuple[int, ...], where: str) -> PipelineDecision:
        details, rows = Record(dict(plan.details), where), [list[str]() for _ in range(max(ranks) + 1)]
        cut, stages, copies = details.integers("cut", 1), len(ranks), copies_of(plan.problem.get("placement"))
        if len(cut) != stages // copies - 1:
            raise details.fail("cut", f"{stages // copies - 1} first layers that grow", list(cut))
        ops = sorted(ops_that_run(plan.schedule, stages), key=lambda each: each.start_s)
        for action in (each.action for each in ops):
            if action.kind in "FIWB":
                rows[ranks[action.stage]].append(str(action))
        encoded = [each for each in ops if each.action.kind == "E"]
        modes = sorted((each.action.stage, each.action.micro_batch, each.mode) for each in encoded)
        sums = _sum_modes(plan.schedule, stages)
        with located(where):
            return cls(
                cut=cut,
                order=tuple(map(" ".join, rows)),
                method=details.text("method"),
                recomputed=tuple(
                    sorted({each.action.stage % (len(cut) + 1) for each in ops if each.action.kind == "R"})
                ),
                hop_modes=tuple(HopMode(*each) for each in modes),
                sum_modes=sums if set(sums) != {_PLAIN} else (),
            )

    def check(self, ranks: tuple[int, ...], layers: int, copies: int = 1) -> None:
        """Raise `InputError` for what isn't of the question: `ranks`, of each stage of so many copies of the model, and
        so many layers."""
        stages = len(ranks)
        cuts = stages // copies - 1
        if len(self.cut) != cuts or any(first >= layers for first in self.cut):
            raise InputError(f"cut: must be {cuts} first layers < {layers} that grow, got {list(self.cut)}")
        if len(self.order) != max(ranks) + 1:
            raise InputError(f"order: must be one for each of {max(ranks) + 1} ranks, got {len(self.order)}")
        sizes = [end - first for first, end in pairwise((0, *self.cut, layers))]
        for stage, names in enumerate(self.policies):
            if names and len(names.split()) != sizes[stage]:
                raise InputError(f"policies[{stage}]: must be one for each of {sizes[stage]} layers, got {names!r}")
        for number, queue in enumerate(self.queues):
            if any(each.stage >= stages for each in queue):
                raise InputError(f"messages[{number}]: must be of stages < {stages}, got {self.messages[number]}")
        for rank, row in enumerate(self.actions):
            stray = next((each for each in row if each.stage >= stages or ranks[each.stage] != rank), None)
            if stray is not None:
                raise InputError(f"order[{rank}]: must be of the stages of rank {rank}, got {stray}")
        pairs = {first for row in self.actions for first, second in pairwise(row) if first.kind + second.kind in _CELLS}
        stray = next((each for each in self.on_host if each.kind != "F" or each.stage >= stages), None)
        if stray is not None:
            raise InputError(f"offloaded: must be forwards of stages < {stages}, got {stray}")
        odd = next(iter(sorted(self.celled - pairs)), None)
        if odd is not None:
            raise InputError(f"cells: must be forwards that a backward follows on their rank, got {odd}")


def _row(stages: Stages, ops: Ints) -> str:
    """Numbers of ops as a text of actions."""
    letters = "FIW" if stages.splits else "FBW"
    kind, place = np.divmod(ops, stages.count * stages.micro_batches)
    stage, micro_batch = np.divmod(place, stages.micro_batches)
    columns = zip(stage.tolist(), kind.tolist(), micro_batch.tolist(), strict=True)
    named = ((k, *stages.names(s, m)) for s, k, m in columns)
    return " ".join(f"{s}{letters[k]}{m}" for k, s, m in named)


def _actions(where: str, text: str) -> tuple[Action, ...]:
    return tuple(_action(where, word) for word in text.split())


def _action(where: str, word: str) -> Action:
    match = _ACTION.fullmatch(word)
    if match is None:
        raise InputError(f"{where}: must be actions such as 0F0, got {word!r}")
    return Action(int(match[1]), match[2], int(match[3]))


def _sum_modes(schedule: Schedule, stages: int) -> tuple[str, ...]:
    """By the sums among replicas; a stage without one is plain."""
    found = [_PLAIN] * stages
    for op in schedule.graph.ops:
        match = re.fullmatch(r"sum (\d+)", op.name) if op.kind == "sum" else None
        if match and int(match[1]) < stages:
            found[int(match[1])] = op.implementations[0].name or _PLAIN
    return tuple(found)


def rank_of_stage(asked: Record) -> tuple[int, ...]:
    """Of a question in a plan file."""
    ranks, chunks = asked.integer("ranks", 1), asked.integer("chunks", 1)
    if isinstance(asked.raw("placement"), list):
        placed = asked.integers("placement", 0, ranks - 1)
        if set(placed) != set(range(ranks)):
            raise asked.fail("placement", f"the rank of each stage, each of {ranks} at least once", list(placed))
        return placed
    return tuple(rank_of_stages(asked.text("placement"), ranks, chunks).tolist())


@dataclass(frozen=True)
class RunOp:
    """An op that runs: `action` in the words of the schedule, its times, and its implementation's name."""

    action: Action
    start_s: float
    end_s: float
    mode: str


def ops_that_run(schedule: Schedule, stages: int) -> Iterator[RunOp]:
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
        yield RunOp(action, event.start_s, event.end_s, op.implementations[event.implementation].name)
