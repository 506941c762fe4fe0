"""Hand-made schedules and programs that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gapless.io.taccl_ef import Gpu, Program, Step, ThreadBlock
from gapless.ir.collective import Collective, allgather
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

Send = tuple[int, int, int, Sequence[int]]
"""(round, source, target, chunks)."""
Case = tuple[Collective, Schedule]


def build_schedule(collective: Collective, sends: Sequence[Send]) -> Schedule:
    """A schedule in rounds of one second on a complete graph of uniform links."""
    ranks = range(collective.rank_count)
    links = tuple(Link(a, b, alpha_s=0.0, beta_s_per_byte=1.0) for a in ranks for b in ranks if a != b)
    number = {(link.source, link.target): index for index, link in enumerate(links)}
    topology = Topology("complete", node_of_device=(0,) * collective.rank_count, links=links)
    events = [
        Event(EventKind.TRANSFER, start_s=float(at), end_s=at + 1.0, place=number[source, target], moves=tuple(chunks))
        for at, source, target, chunks in sends
    ]
    return schedule_from_events(collective.graph(1), topology, events)


def ring(ranks: int, per_rank: int) -> Case:
    """Every chunk goes round, one rank a round."""
    collective = allgather(ranks, per_rank)
    sends = [
        (at, rank, (rank + 1) % ranks, collective.inputs[(rank - at) % ranks])
        for at in range(ranks - 1)
        for rank in range(ranks)
    ]
    return collective, build_schedule(collective, sends)


def doubling(ranks: int, per_rank: int) -> Case:
    """Partners at distance 1, 2, 4, ... exchange all that they hold, as one group of neighbouring chunks."""
    collective = allgather(ranks, per_rank)
    sends: list[Send] = []
    for at in range(ranks.bit_length() - 1):
        for rank in range(ranks):
            first = (rank >> at << at) * per_rank
            sends.append((at, rank, rank ^ 1 << at, range(first, first + (per_rank << at))))
    return collective, build_schedule(collective, sends)


def star(ranks: int, per_rank: int) -> Case:
    """All send to rank 0, which sends everyone the others' chunks as one group with a hole."""
    collective = allgather(ranks, per_rank)
    everything = set(collective.outputs[0])
    sends: list[Send] = [(0, rank, 0, collective.inputs[rank]) for rank in range(1, ranks)]
    sends += [(rank, 0, rank, sorted(everything - set(collective.inputs[rank]))) for rank in range(1, ranks)]
    return collective, build_schedule(collective, sends)


def all_pairs(ranks: int, per_rank: int) -> Case:
    """Everyone sends to everyone, chunk by chunk."""
    collective = allgather(ranks, per_rank)
    sends = [
        (at, rank, (rank + at) % ranks, [chunk])
        for at in range(1, ranks)
        for rank in range(ranks)
        for chunk in collective.inputs[rank]
    ]
    return collective, build_schedule(collective, sends)


def hierarchical(ranks: int, per_rank: int) -> Case:
    """Two nodes: within the node, across between partners in one group, then the partners' chunks within the node."""
    collective, half = allgather(ranks, per_rank), ranks // 2
    sends: list[Send] = []
    for rank in range(ranks):
        node, local = divmod(rank, half)
        partner = (1 - node) * half + local
        sends.append((0, rank, partner, collective.inputs[rank]))
        for step in range(1, half):
            peer = node * half + (local + step) % half
            sends.append((step, rank, peer, collective.inputs[rank]))
            sends.append((half + step, rank, peer, collective.inputs[partner][::-1]))
    return collective, build_schedule(collective, sends)


CASES = {
    "ring-4": lambda: ring(4, 1),
    "ring-5x2": lambda: ring(5, 2),
    "doubling-4": lambda: doubling(4, 1),
    "doubling-8x3": lambda: doubling(8, 3),
    "star-5": lambda: star(5, 1),
    "star-5x2": lambda: star(5, 2),
    "hierarchical-2x4": lambda: hierarchical(8, 2),
    "all-pairs-16": lambda: all_pairs(16, 1),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    """Each hand-made allgather: its collective and schedule."""
    return CASES[request.param]()


@pytest.fixture
def make_schedule() -> Callable[[Collective, Sequence[Send]], Schedule]:
    return build_schedule


@pytest.fixture
def make_ring() -> Callable[[int, int], Case]:
    return ring


@pytest.fixture
def make_star() -> Callable[[int, int], Case]:
    return star


@pytest.fixture
def make_all_pairs() -> Callable[[int, int], Case]:
    return all_pairs


def build_program(coll: str, parts: int, gpus: Sequence[Gpu], **changes: object) -> Program:
    """A program for a hand-written list of gpus; `parts` is nchunksperloop."""
    channels = 1 + max(block.chan for gpu in gpus for block in gpu.threadblocks)
    fields: dict[str, object] = {
        "name": "by_hand",
        "proto": "Simple",
        "nchannels": channels,
        "nchunksperloop": parts,
        "ngpus": len(gpus),
        "coll": coll,
        "inplace": False,
        "outofplace": True,
        "gpus": tuple(gpus),
    }
    return Program(**{**fields, **changes})


@pytest.fixture
def make_program() -> Callable[..., Program]:
    return build_program


@pytest.fixture
def exchange() -> Program:
    """Allgather of two ranks: each sends in block 0, receives in block 1, copies its own chunk in block 2."""
    gpus = []
    for rank in range(2):
        peer = 1 - rank
        blocks = (
            ThreadBlock(0, send=peer, recv=-1, chan=0, steps=(Step(0, "s", "i", 0, "o", rank, 1),)),
            ThreadBlock(1, send=-1, recv=peer, chan=0, steps=(Step(0, "r", "i", 0, "o", peer, 1),)),
            ThreadBlock(2, send=-1, recv=-1, chan=0, steps=(Step(0, "cpy", "i", 0, "o", rank, 1),)),
        )
        gpus.append(Gpu(rank, i_chunks=1, o_chunks=2, s_chunks=0, threadblocks=blocks))
    return build_program("allgather", 2, gpus)
