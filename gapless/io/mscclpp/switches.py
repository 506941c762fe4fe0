"""Switch channels of an MSCCL++ plan: which ranks they reach, and the rules that they keep.

A switch channel binds one buffer of each of its ranks, at the same offsets, to one address (NVLink's multicast). The
ranks open it together: the k-th channel of a rank to some ranks is the k-th of each of them to the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from gapless.io.mscclpp.program import LIMITS, SWITCH, Block, Chunks, Gpu, Plan
from gapless.io.taccl_ef.program import Problem

__all__ = ["block_switches", "span_ranks", "switch_problems"]


def block_switches(block: Block) -> list[int]:
    """The switch channels that a block may use, as numbers in its GPU's list."""
    return [number for each in block.channels if each.channel_type == SWITCH for number in each.channel_ids]


def span_ranks(gpu: Gpu, block: Block, chunks: Chunks) -> tuple[str, tuple[int, ...]]:
    """The (buffer, ranks) that a span behind a switch channel is of."""
    return gpu.switches()[block_switches(block)[chunks.switch_channel_id]]


def switch_problems(plan: Plan) -> Iterator[Problem]:
    """Ranks of a channel are some of the plan's, the own one among them, and each has the same channel."""
    for gpu in plan.gpus:
        mine = gpu.switches()
        for group in (group for each in gpu.channels for group in each.rank_groups):
            ranks = group.ranks
            if sorted(set(ranks) & set(range(len(plan.gpus)))) != sorted(ranks) or gpu.id not in ranks:
                message = f"ranks of a switch channel must differ, be of the plan and have gpu {gpu.id}, got {[*ranks]}"
                yield Problem("switch-group", message, gpu.id)
                return
            if group.size != len(ranks):
                message = f"size of a rank group must be its {len(ranks)} ranks, got {group.size}"
                yield Problem("switch-group", message, gpu.id)
        for number, (buffer, ranks) in enumerate(mine):
            turn = [each for _, each in mine[:number]].count(ranks)
            for rank in ranks:
                theirs = [other for other, each in plan.gpus[rank].switches() if each == ranks]
                if theirs[turn : turn + 1] != [buffer]:
                    message = f"switch channel {number} binds {buffer} of gpus {[*ranks]}, gpu {rank} has no such one"
                    yield Problem("peer-side", message, gpu.id)
                    return
        for block in gpu.threadblocks:
            if len(block_switches(block)) > LIMITS.channels:
                message = f"a block may have {LIMITS.channels} switch channels, got {len(block_switches(block))}"
                yield Problem("channel-limit", message, gpu.id, block.id)
