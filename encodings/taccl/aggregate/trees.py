"""Trees: the paths that blocks take when they are spread to everybody, cut down to what a collective wants moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gapless.encodings.taccl.sends import Transfer
from gapless.encodings.taccl.symmetry.quotient_network import Message
from gapless.topologies.topology import Topology

__all__ = ["timed", "transfers_along"]


def transfers_along(
    topology: Topology, messages: Sequence[Message], owners: Sequence[int], wants: Sequence[Sequence[int]]
) -> list[Transfer]:
    """What each message carries of chunks that start at `owners[c]` and are wanted by `wants[c]`; empty ones go.

    Block b is spread along a tree from rank b; a chunk of it takes those branches that lead to a rank that wants it.
    """
    source, target = topology.link_source.tolist(), topology.link_target.tolist()
    brought: dict[tuple[int, int], int] = {}
    for number, message in enumerate(messages):
        blocks = message.blocks
        while blocks:
            block = (blocks & -blocks).bit_length() - 1
            brought[block, target[message.link]] = number
            blocks &= blocks - 1
    chunks: list[list[int]] = [[] for _ in messages]
    for chunk, (owner, ranks) in enumerate(zip(owners, wants, strict=True)):
        used: set[int] = set()
        for rank in ranks:
            at = rank
            while at != owner:
                number = brought[owner, at]
                if number in used:
                    break
                used.add(number)
                at = source[messages[number].link]
        for number in used:
            chunks[number].append(chunk)
    return [Transfer(message.link, tuple(some)) for message, some in zip(messages, chunks, strict=True) if some]


def timed(
    topology: Topology, transfers: Sequence[Transfer], chunk_bytes: int, one_at_a_time: bool = False
) -> list[tuple[float, float]]:
    """When each transfer starts and ends, each as early as the ones before it allow."""
    source, target = topology.link_source.tolist(), topology.link_target.tolist()
    alpha_s, beta_s = topology.alpha_s.tolist(), (topology.beta_s_per_byte * chunk_bytes).tolist()
    start, held = topology.held_start.tolist(), topology.held.tolist()
    clock: dict[int, float] = defaultdict(float)
    there: dict[tuple[int, int], float] = defaultdict(float)
    sent: dict[tuple[int, int], float] = defaultdict(float)
    times = []
    for transfer in transfers:
        link, by, to = transfer.link, source[transfer.link], target[transfer.link]
        keys = [~link, *held[start[link] : start[link + 1]]]
        begin_s = max(max(clock[key] for key in keys), max(there[chunk, by] for chunk in transfer.chunks))
        if one_at_a_time:
            begin_s = max(begin_s, *(sent[chunk, by] for chunk in transfer.chunks))
        end_s = begin_s + alpha_s[link] + beta_s[link] * len(transfer.chunks)
        for key in keys:
            clock[key] = end_s
        for chunk in transfer.chunks:
            there[chunk, to] = end_s
            if one_at_a_time:
                sent[chunk, by] = end_s
        times.append((begin_s, end_s))
    return times
