"""A TACCL-EF program as flat lists: steps numbered across the program, connections, and what each step waits for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from gapless.io.taccl_ef.program import RECEIVING, SENDING, Problem, Program, Step, ThreadBlock, place_text

__all__ = ["Flat", "flatten"]


@dataclass(frozen=True)
class Flat:
    """Steps and blocks numbered across the whole program, GPU by GPU and block by block in order of their ids.

    Block b holds the steps `first[b] .. first[b + 1] - 1`; `owner[n]` is the block of step n. `place[b]` is its
    (gpu, tb), `first_block[g]` the first block of GPU g. `outgoing[b]`, `incoming[b]`: its connections, -1 without a
    peer. A connection is a (sender, receiver, channel), `sender[c]` and `receiver[c]` its blocks, -1 where that side is
    missing. `awaited[n]`: the step that step n's dependency names, -1 without one.
    """

    steps: list[Step]
    owner: list[int]
    first: list[int]
    place: list[tuple[int, int]]
    first_block: list[int]
    connections: list[tuple[int, int, int]]
    outgoing: list[int]
    incoming: list[int]
    sender: list[int]
    receiver: list[int]
    awaited: list[int]

    def where(self, step: int) -> tuple[int, int, int]:
        """(gpu, tb, step) of a step."""
        block = self.owner[step]
        return (*self.place[block], step - self.first[block])

    def name(self, step: int) -> str:
        """`gpu 0 tb 1 step 2`."""
        return place_text(*self.where(step))

    def transfers(self, connection: int) -> tuple[list[int], list[int]]:
        """The sending and the receiving steps of a connection, each in order: the k-th of both belong together."""
        sent = self._steps(self.sender[connection], SENDING)
        return sent, self._steps(self.receiver[connection], RECEIVING)

    def _steps(self, block: int, types: frozenset[str]) -> list[int]:
        if block < 0:
            return []
        return [step for step in range(self.first[block], self.first[block + 1]) if self.steps[step].type in types]


def flatten(program: Program) -> tuple[Flat, list[Problem]]:
    """The flat form, and what it can't hold: a connection claimed twice, a dependency on what does not exist.

    The program must have passed the rules of `SHAPELESS`. Of two blocks that claim a connection the first has it.
    """
    gpus = sorted(program.gpus, key=lambda gpu: gpu.id)
    blocks = [(gpu.id, block) for gpu in gpus for block in sorted(gpu.threadblocks, key=lambda block: block.id)]
    first = list(accumulate((len(block.steps) for _, block in blocks), initial=0))
    first_block = list(accumulate((len(gpu.threadblocks) for gpu in gpus), initial=0))
    problems: list[Problem] = []
    connections: dict[tuple[int, int, int], int] = {}
    outgoing = [_claim(connections, (gpu, block.send, block.chan), block.send) for gpu, block in blocks]
    incoming = [_claim(connections, (block.recv, gpu, block.chan), block.recv) for gpu, block in blocks]
    flat = Flat(
        steps=[step for _, block in blocks for step in block.steps],
        owner=[number for number, (_, block) in enumerate(blocks) for _ in block.steps],
        first=first,
        place=[(gpu, block.id) for gpu, block in blocks],
        first_block=first_block,
        connections=list(connections),
        outgoing=outgoing,
        incoming=incoming,
        sender=_holders(outgoing, "send", blocks, list(connections), problems),
        receiver=_holders(incoming, "recv", blocks, list(connections), problems),
        awaited=[
            _awaited(step, gpu, block, first_block, first, problems) for gpu, block in blocks for step in block.steps
        ],
    )
    return flat, problems


def _claim(connections: dict[tuple[int, int, int], int], triple: tuple[int, int, int], peer: int) -> int:
    return connections.setdefault(triple, len(connections)) if peer >= 0 else -1


def _holders(
    claims: list[int],
    title: str,
    blocks: list[tuple[int, ThreadBlock]],
    connections: list[tuple[int, int, int]],
    problems: list[Problem],
) -> list[int]:
    """The block of one side of each connection, -1 where there is none."""
    holders = [-1] * len(connections)
    for number, connection in enumerate(claims):
        if connection < 0:
            continue
        if holders[connection] < 0:
            holders[connection] = number
            continue
        gpu, block = blocks[number]
        source, target, channel = connections[connection]
        other = blocks[holders[connection]][1].id
        message = f"{title} of (sender {source}, receiver {target}, chan {channel}) belongs to tb {other} already"
        problems.append(Problem("triple", message, gpu, block.id))
    return holders


def _awaited(
    step: Step, gpu: int, block: ThreadBlock, first_block: list[int], first: list[int], problems: list[Problem]
) -> int:
    """The flat number of the step that a dependency names, -1 without one or where it does not exist."""
    if step.depid == -1:  # the parsers look at deps only where a block is named
        return -1
    message = ""
    target, count = first_block[gpu] + step.depid, first_block[gpu + 1] - first_block[gpu]
    if step.depid < 0 or step.deps < 0:
        message = f"depid and deps must both be -1 or both be >= 0, got {step.depid} and {step.deps}"
    elif step.depid >= count:
        message = f"depid must be a block of this GPU, 0..{count - 1}, got {step.depid}"
    elif step.deps >= first[target + 1] - first[target]:
        message = f"deps must be a step of tb {step.depid}, 0..{first[target + 1] - first[target] - 1}, got {step.deps}"
    if message:
        problems.append(Problem("dep-missing", message, gpu, block.id, step.s))
        return -1
    return first[target] + step.deps
