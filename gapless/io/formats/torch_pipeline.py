"""Schedules of torch.distributed.pipelining as CSV files, a row for each rank.

An action is a stage, a letter and a micro-batch: `2F0` is the forward of micro-batch 0 on stage 2, `I` the gradient of
its input, `W` that of its weights, `B` both at once. The form `compute` holds these alone, and torch adds messages::

    0F0,0F1,0I0,0W0,0I1,0W1
    1F0,1I0,1W0,1F1,1I1,1W1

The form `communication` also says when messages are sent and received (`0SEND_F0`, `1RECV_F0`, `1SEND_B0`, `0RECV_B0`)
and when a stage's gradients are divided by the number of micro-batches (`0REDUCE_GRAD`), and torch adds nothing to it.
Both are read by `_PipelineScheduleRuntime._load_csv(path, format)`, with format `compute_only` or `compute_comms`. This
is a private function of torch; tests hold what gapless relies on, with torch 2.13.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import write_text

__all__ = ["FORMS", "Action", "ActionOrder", "rows_of", "torch_pipeline_text", "write_torch_pipeline"]

FORMS = {"compute": "compute_only", "communication": "compute_comms"}
"""The forms of a file, and what torch calls each."""


@dataclass(frozen=True, order=True)
class Action:
    """What a rank computes: `kind` is F, I, W, or B for I and W at once."""

    stage: int
    kind: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


@dataclass(frozen=True)
class ActionOrder:
    """All actions of a training step, in one order that all ranks keep to.

    `rank_of_stage[s]`: the rank of stage s; each rank has one at least. `actions`: each after all that it needs.
    `messages`: by the actions that make them, those from one rank to another in the order in which they leave; between
    other ranks they leave as they are made. Raises `InputError` where one comes too early, is there twice, or is
    missing.
    """

    rank_of_stage: tuple[int, ...]
    micro_batches: int
    actions: tuple[Action, ...]
    messages: tuple[tuple[Action, ...], ...] = ()

    def __post_init__(self) -> None:
        stages, done = len(self.rank_of_stage), set[Action]()
        if set(self.rank_of_stage) != set(range(self.ranks)):
            raise InputError(f"rank_of_stage: each of {self.ranks} ranks must have a stage, got {self.rank_of_stage}")
        for action in self.actions:
            if action in done:
                raise InputError(f"actions: {action} must be there once, got it twice")
            late = next((need for need in self._needs(action) if not any(each in done for each in need)), None)
            if late is not None:
                raise InputError(f"actions: {action} must come after {late[0]}")
            done.add(action)
        held = Counter((action.stage, {"B": "W"}.get(action.kind, action.kind)) for action in done)
        for stage in range(stages):
            for kind in "FW":
                if held[stage, kind] != self.micro_batches:
                    rule = f"stage {stage} must have {kind} of each of {self.micro_batches} micro-batches"
                    raise InputError(f"actions: {rule}, got {held[stage, kind]}")
        for number, queue in enumerate(self.messages):
            links, got = {self.link(action) for action in queue}, " ".join(map(str, queue))
            if len(links) != 1 or None in links:
                raise InputError(f"messages[{number}]: must be from one rank to another, got {got}")
            sent = sorted(action for action in self.actions if self.link(action) in links)
            if sorted(queue) != sent:
                raise InputError(f"messages[{number}]: must be the link's {len(sent)} messages, each once, got {got}")

    def _needs(self, action: Action) -> Iterator[tuple[Action, ...]]:
        """Sets of actions, one of each of which has to be done before."""
        stage, m = action.stage, action.micro_batch
        if action.kind == "W":
            yield (Action(stage, "I", m),)
        elif action.kind == "F":
            yield from ((Action(stage - 1, "F", m),),) if stage else ()
        else:
            yield (Action(stage, "F", m),)
            if stage + 1 < len(self.rank_of_stage):
                yield Action(stage + 1, "I", m), Action(stage + 1, "B", m)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return max(self.rank_of_stage) + 1

    def of_rank(self, rank: int) -> list[Action]:
        """What a rank computes, in order."""
        return [action for action in self.actions if self.rank_of_stage[action.stage] == rank]

    def receiver(self, action: Action) -> int | None:
        """The stage that gets a message from this action; None where there is none, or it is on the same rank."""
        to = {"F": action.stage + 1, "I": action.stage - 1, "B": action.stage - 1}.get(action.kind, -1)
        if not 0 <= to < len(self.rank_of_stage) or self.rank_of_stage[to] == self.rank_of_stage[action.stage]:
            return None
        return to

    def link(self, action: Action) -> tuple[int, int] | None:
        """The ranks between which the action's message goes; None where there is none, or it stays on its rank."""
        to = self.receiver(action)
        return None if to is None else (self.rank_of_stage[action.stage], self.rank_of_stage[to])

    def posts(self) -> Iterator[tuple[Action, list[Action]]]:
        """Each action, and those whose messages leave then: its own, and what waited for it; or none."""
        queues = [deque(queue) for queue in self.messages]
        queue_of = {action: queue for queue in queues for action in queue}
        posted = set[Action]()
        for action in self.actions:
            queue = queue_of.get(action)
            if queue is None:
                yield action, [] if self.receiver(action) is None else [action]
                continue
            posted.add(action)
            leaving = []
            while queue and queue[0] in posted:
                leaving.append(queue.popleft())
            yield action, leaving


def rows_of(order: ActionOrder, form: str) -> list[list[str]]:
    """The actions of each rank as texts. Raises `InputError` where the last stage has micro-batches in another order.

    Torch counts losses as they come, so that a loss would be another micro-batch's.
    Every message has its place in the order of all, and both of its ranks keep to that: they never wait for each other
    in a circle, even where a send waits for its receiver.
    """
    last = len(order.rank_of_stage) - 1
    losses = [action.micro_batch for action in order.actions if action.stage == last and action.kind == "F"]
    if losses != sorted(losses):
        got = " ".join(map(str, losses))
        raise InputError(f"order: torch counts the losses as they come, so stage {last} must run 0, 1, ..., got {got}")
    if form == "compute":
        return [[str(action) for action in order.of_rank(rank)] for rank in range(order.ranks)]
    rows: list[list[str]] = [[] for _ in range(order.ranks)]
    left = dict.fromkeys(range(len(order.rank_of_stage)), order.micro_batches)
    for action, leaving in order.posts():
        stage, rank = action.stage, order.rank_of_stage[action.stage]
        rows[rank].append(str(action))
        for sent in leaving:
            to, kind = order.receiver(sent), "F" if sent.kind == "F" else "B"
            assert to is not None, "what leaves has a receiver"
            rows[rank].append(f"{sent.stage}SEND_{kind}{sent.micro_batch}")
            rows[order.rank_of_stage[to]].append(f"{to}RECV_{kind}{sent.micro_batch}")
        left[stage] -= action.kind in "WB"
        if action.kind in "WB" and not left[stage]:
            rows[rank].append(f"{stage}REDUCE_GRAD")
    return rows


def torch_pipeline_text(order: ActionOrder, form: str) -> str:
    """The file's text; `form` is one of `FORMS`."""
    return "".join(",".join(row) + "\n" for row in rows_of(order, form))


def write_torch_pipeline(path: str | Path, order: ActionOrder, form: str) -> None:
    """Write the file, whole or not at all."""
    write_text(path, torch_pipeline_text(order, form))
