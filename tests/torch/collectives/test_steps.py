"""Steps: their order, what waits for what, and tokens where ranks share a resource; all of it without a process."""

from __future__ import annotations

import random
from collections import defaultdict, deque

import pytest
from little import LITTLE
from rails import rails

import gapless
from gapless.encodings.taccl import Chunked
from gapless.ir.collective import Collective, gather
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.options import SolveOptions
from gapless.topologies.topology import Link, Topology
from gapless.torch.collectives.steps import Step, steps_of


def solved(name: str) -> tuple[Schedule, Collective]:
    problem = Chunked.of(rails(2, 2), name, 10**5)
    schedule = gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).schedule
    assert schedule is not None
    return schedule, problem.collective


def run(steps: list[list[Step]], collective: Collective, chance: random.Random) -> list[dict[int, list[int]]]:
    """What ranks hold at the end, contributions by chunk, where any message that may be sent next is."""
    held = [{chunk: [rank] for chunk in chunks} for rank, chunks in enumerate(collective.inputs)]
    left = [[len(step.needs) for step in own] for own in steps]
    after: list[dict[int, list[int]]] = [defaultdict(list) for _ in steps]
    queues: dict[tuple[int, int, bool], deque[int]] = defaultdict(deque)
    for rank, own in enumerate(steps):
        for place, step in enumerate(own):
            for need in step.needs:
                after[rank][need].append(place)
        for place in sorted(range(len(own)), key=lambda place: own[place].message):
            step = own[place]
            queues[(rank, step.peer, True) if step.sends else (step.peer, rank, False)].append(place)
    arrived: list[dict[int, dict[int, list[int]]]] = [{} for _ in steps]

    def end(rank: int, place: int) -> None:
        step = steps[rank][place]
        if not step.sends:
            for chunk, parts in arrived[rank].pop(place).items():
                known = held[rank].get(chunk, []) if step.reduces else []
                held[rank][chunk] = sorted(known + parts)
        for later in after[rank][place]:
            left[rank][later] -= 1
            if left[rank][later] == 0 and later in arrived[rank]:
                end(rank, later)

    while True:
        ready = [key for key, places in queues.items() if key[2] and places and left[key[0]][places[0]] == 0]
        if not ready:
            assert not any(queues.values()), "somebody waits for ever"
            return held
        source, target, _ = chance.choice(ready)
        sent, received = queues[source, target, True].popleft(), queues[source, target, False].popleft()
        assert steps[source][sent].message == steps[target][received].message
        assert steps[source][sent].chunks == steps[target][received].chunks
        arrived[target][received] = {chunk: held[source][chunk] for chunk in steps[source][sent].chunks}
        end(source, sent)
        if left[target][received] == 0:
            end(target, received)


@pytest.mark.thorough("allreduce-True")
@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("name", ["allgather", "allreduce", "reducescatter", "alltoall", "gather"])
def test_in_any_order_that_they_allow_ranks_end_with_what_is_defined(name: str, tokens: bool) -> None:
    schedule, collective = solved(name)
    steps = steps_of(schedule, tokens)
    for seed in range(20):
        held = run(steps, collective, random.Random(seed))
        for rank, chunks in enumerate(collective.outputs):
            for chunk in chunks:
                every = list(collective.contributors[chunk])
                assert held[rank][chunk] == every


def test_a_resource_that_ranks_share_is_taken_in_turn_by_two_at_once() -> None:
    up = [Link(rank, 3, 1e-6, 1e-9, (0,)) for rank in range(3)]
    links = (*up, *(Link(3, rank, 1e-6, 1e-9) for rank in range(3)))
    bus = Topology("bus", (0, 0, 0, 0), links, resources=("bus",))
    collective = gather(4, root=3)
    events = [Event(EventKind.TRANSFER, k * 2e-6, k * 2e-6 + 1.1e-6, k, moves=(k,)) for k in range(3)]
    schedule = schedule_from_events(collective.graph(100), bus, events)
    first, second, third, root = steps_of(schedule)
    assert [step.chunks for step in (*first, *second)] == [(0,), (1,)]
    assert [(step.sends, step.peer, step.chunks, step.needs) for step in third] == [
        (False, 3, (), ()), (True, 3, (2,), (0,)),
    ]  # fmt: skip
    assert [(step.sends, step.peer, step.chunks, step.needs) for step in root] == [
        (False, 0, (0,), ()), (True, 2, (), (0,)), (False, 1, (1,), ()), (False, 2, (2,), ()),
    ]  # fmt: skip
    assert not any(not step.chunks for own in steps_of(schedule, tokens=False) for step in own)


def test_a_message_is_at_the_same_place_of_both_queues() -> None:
    schedule, _ = solved("allreduce")
    ends: dict[tuple[int, int], list[list[int]]] = defaultdict(lambda: [[], []])
    for rank, own in enumerate(steps_of(schedule)):
        for step in own:
            pair = (rank, step.peer) if step.sends else (step.peer, rank)
            ends[pair][step.sends].append(step.message)
    assert all(sorted(taken) == sorted(sent) for taken, sent in ends.values())
