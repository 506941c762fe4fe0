"""How fast schedules are replayed and retimed: a million events whose outcome is known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rates import rate

from gapless.checker import check
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import EventKind, Ragged, Schedule
from gapless.ir.simulate import retime
from gapless.topologies.topology import Link, Topology

LANES, SLOTS, STEP_S = 50, 50, 1e-6
ACTIVATION, PARAMETER, GRADIENT, WORKSPACE = 10, 100, 4, 7
PEAK_BYTES = 4 * PARAMETER + SLOTS * GRADIENT + 4 * ACTIVATION + GRADIENT + WORKSPACE
EVENTS_PER_ROUND = 5 * LANES


def ring_topology() -> Topology:
    """Devices in a ring with links both ways and two engines each; every link back also holds a port of its own."""
    cost = 0.4 * STEP_S, 5e-3 * STEP_S
    onward = [Link(lane, (lane + 1) % LANES, *cost) for lane in range(LANES)]
    return Topology(
        name="ring",
        node_of_device=(0,) * LANES,
        links=(*onward, *(Link(link.target, link.source, *cost, (lane,)) for lane, link in enumerate(onward))),
        resources=tuple(f"port {lane}" for lane in range(LANES)),
        engines=tuple((lane, name) for name in ("main", "side") for lane in range(LANES)),
        memory_bytes=(float(PEAK_BYTES),) * LANES,
    )


def tensor(role: int, lane: NDArray[np.int64], slot: NDArray[np.int64]) -> NDArray[np.int64]:
    """Roles 0 to 2 are a lane's parameters; 3 and 4 activations, 5 the gradient, one of each per lane and slot."""
    single = role * LANES + lane
    return np.where(role < 3, single, 3 * LANES + ((role - 3) * LANES + lane) * SLOTS + slot)


def ring_graph() -> Graph:
    """Per lane and slot: forward makes two activations, a local and a remote gradient are made, and meet."""
    lanes, slots = (part.ravel() for part in np.divmod(np.arange(LANES * SLOTS), SLOTS))
    one, two, _, left, right, gradient = (tensor(role, lanes, slots).tolist() for role in range(6))
    step = (Implementation(STEP_S),)
    work = (Implementation(STEP_S, WORKSPACE),)
    ops = [Op("forward", (p,), (a, b), step) for p, a, b in zip(one, left, right, strict=True)]
    ops += [Op("local", (p,), (g,), step) for p, g in zip(two, gradient, strict=True)]
    ops += [Op("remote", (a, b), (g,), work, adds=1) for a, b, g in zip(left, right, gradient, strict=True)]
    sizes = [PARAMETER] * (3 * LANES) + [ACTIVATION] * (2 * LANES * SLOTS) + [GRADIENT] * (LANES * SLOTS)
    owned = [(role * LANES + lane, lane) for role in range(3) for lane in range(LANES)]
    return Graph(
        size_bytes=np.array(sizes, dtype=np.int64),
        ops=tuple(ops),
        initial=Placement.of(owned, [4 if role == 1 else 0 for role in range(3) for _ in range(LANES)]),
        required=Placement.of(list(zip(gradient, lanes.tolist(), strict=True)), [2 | 4] * (LANES * SLOTS)),
    )


def ring_schedule(events: int) -> Schedule:
    """Rounds of four steps: forward; activations and a parameter go on while the local gradient is made; the next
    device makes the remote gradient, after which five copies go; the gradient comes back and is added.
    """
    rounds = events // EVENTS_PER_ROUND
    round_, lane = (part.ravel() for part in np.divmod(np.arange(rounds * LANES), LANES))
    slot, following = round_ % SLOTS, (lane + 1) % LANES
    _, _, extra, left, right, gradient = (tensor(role, lane, slot) for role in range(6))
    nothing = np.full(len(lane), -1)
    op = lane * SLOTS + slot
    start_s = STEP_S * (4 * round_[:, None] + np.array([0, 1, 1, 2, 3]))
    pattern = np.tile([0, 3, 0, 0, 1], len(lane)), np.tile([0, 0, 0, 5, 1], len(lane))
    moves = np.stack([left, right, extra, gradient], axis=1)
    freed = np.stack([left, left, right, right, extra, gradient], axis=1)
    freed_device = np.stack([lane, following, lane, following, following, following], axis=1)
    starts = [np.append(0, np.cumsum(lengths)) for lengths in pattern]
    kinds = [EventKind.COMPUTE, EventKind.TRANSFER, EventKind.COMPUTE, EventKind.COMPUTE, EventKind.TRANSFER]
    places = [lane, lane, LANES + lane, following, LANES + lane]
    return Schedule(
        graph=ring_graph(),
        topology=ring_topology(),
        kind=np.tile(np.array(kinds, dtype=np.int64), len(lane)),
        start_s=start_s.ravel(),
        end_s=(start_s + STEP_S).ravel(),
        place=np.stack(places, axis=1).ravel(),
        op=np.stack([op, nothing, LANES * SLOTS + op, 2 * LANES * SLOTS + op, nothing], axis=1).ravel(),
        implementation=np.zeros(5 * len(lane), dtype=np.int64),
        reduces=np.tile([False, False, False, False, True], len(lane)),
        moves=Ragged(starts[0], moves.ravel()),
        freed_tensor=Ragged(starts[1], freed.ravel()),
        freed_device=Ragged(starts[1], freed_device.ravel()),
    )


def test_a_million_events_are_replayed_with_the_right_answer(benchmark: Any, sized: Any) -> None:
    events = sized(1_000_000, 100_000)
    schedule = ring_schedule(events)
    report = benchmark.pedantic(check, args=(schedule,), rounds=3)
    assert report.valid, report.summary()
    assert report.event_count == events
    assert report.makespan_s == pytest.approx(4 * STEP_S * events / EVENTS_PER_ROUND, rel=1e-12)
    assert report.peak_bytes == (PEAK_BYTES,) * LANES
    assert sum(report.busy_s.engines) == pytest.approx(3 * events / 5 * STEP_S)
    benchmark.extra_info["events_per_s"] = rate(benchmark, events)


def test_a_hundred_thousand_events_are_retimed_to_the_right_makespan(benchmark: Any) -> None:
    schedule = ring_schedule(100_000)
    retimed = benchmark.pedantic(retime, args=(schedule,), rounds=3)
    report = check(retimed)
    assert report.valid, report.summary()
    # A main engine's order makes a round three steps long: forward, then the transfer, then the neighbour's gradient,
    # which its next forward follows. The last gradient goes back in less than a step.
    last_s = 0.4 * STEP_S + 5e-3 * STEP_S * GRADIENT
    assert report.makespan_s == pytest.approx(3 * STEP_S * 100_000 / EVENTS_PER_ROUND + last_s, rel=1e-9)
    benchmark.extra_info["events_per_s"] = rate(benchmark, 100_000)
