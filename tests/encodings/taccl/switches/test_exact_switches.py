"""Bounds and plans of machines whose switches add up and multicast, against a model of placed operations."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from exact_model import Wire
from exact_switch import Offer, least_ticks_with_switch
from examples import share

from gapless.checker import check
from gapless.encodings.taccl import Problem
from gapless.encodings.taccl.parameters import Switches
from gapless.encodings.taccl.switches.bounds import has_plain_bandwidth, switch_bounds_s
from gapless.encodings.taccl.switches.plans import switched_plan
from gapless.encodings.taccl.unequal.bounds import quick_bounds, routed_bound_s
from gapless.encodings.taccl.unequal.fluid import fluid
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.ir.amounts import Amounts
from gapless.ir.process_groups import Group, Groups
from gapless.options import Deadline, SolveOptions
from gapless.topologies.ports.switch_groups import Reduction, SwitchGroup
from gapless.topologies.topology import Link, Topology

KINDS = {"reduction": "reduces", "multicast": "multicasts", "to all": "reduces_to_all"}
COLLECTIVES = ("allreduce", "allreduce", "allreduce", "reducescatter", "allgather", "broadcast", "reduce")


@dataclass(frozen=True)
class Case:
    """A network with a switch, in ticks, and the same as a topology, in seconds; what is asked of it."""

    wires: list[Wire]
    offer: Offer
    topology: Topology
    collective: str


def drawn(seed: int) -> Case:
    """Three or four ranks, some or all behind a switch that does some of what a switch may do, and links besides."""
    chance = random.Random(seed)
    count = chance.randint(2, 4)
    behind = tuple(sorted(chance.sample(range(count), chance.randint(2, count))))
    has_ports = chance.random() < 0.7
    ports = tuple((2 * k, 2 * k + 1) for k in range(len(behind))) if has_ports else ()
    side = dict(zip(behind, ports, strict=False))
    alpha, beta = chance.randint(0, 3), chance.randint(1, 4)
    wires = [
        Wire(a, b, alpha, beta, (side[a][0], side[b][1]) if has_ports else ()) for a in behind for b in behind if a != b
    ]
    names = 2 * len(ports)
    other = chance.randint(0, 3), chance.randint(1, 6)
    shared = (names,) if chance.random() < 0.3 else ()
    outside = [rank for rank in range(count) if rank not in behind]
    pairs = {(a, b) for a in outside for b in chance.sample([r for r in range(count) if r != a], chance.randint(1, 2))}
    pairs |= {(a, b) for a in outside for b in behind[:1]}
    wires += [
        Wire(*ends, *other, shared)
        for a, b in sorted(pairs)
        for ends in ((a, b), (b, a))
        if a < b or (b, a) not in pairs
    ]
    kinds = tuple(kind for kind in KINDS if chance.random() < 0.6) or ("reduction",)
    offer = Offer(
        behind, chance.randint(0, 4), chance.randint(1, 4), kinds, chance.random() < 0.5, chance.random() < 0.5,
        chance.choice([None, None, 1, 2]), chance.choice([None, None, 1]), ports,
    )  # fmt: skip
    return Case(wires, offer, topology_of(count, wires, offer), chance.choice(COLLECTIVES))


def topology_of(count: int, wires: list[Wire], offer: Offer) -> Topology:
    """The same network, a tick a second; no link or operation is free of latency altogether."""
    kinds = {field: kind in offer.kinds for kind, field in KINDS.items()}
    limits = {"slots": offer.slots, "groups": offer.groups}
    options = {"loopback": offer.loopback, "subsets": offer.subsets}
    reduction = Reduction(**kinds, alpha_s=offer.alpha, beta_s_per_byte=offer.beta, **limits, **options)
    links = tuple(Link(wire.source, wire.target, wire.alpha, wire.beta, wire.resources) for wire in wires)
    resources = tuple(f"port{k}" for k in range(1 + max((r for wire in wires for r in wire.resources), default=-1)))
    return Topology(
        "drawn", (0,) * count, links, resources, switch_groups=(SwitchGroup(offer.ranks, reduction, offer.ports),)
    )


@pytest.mark.thorough(*map(str, range(12, 300)), "[0]", "[9]", "[10]")
@pytest.mark.parametrize("seed", range(share(300)))
def test_no_schedule_is_faster_than_a_bound_and_no_plan_than_the_fastest(seed: int) -> None:
    case = drawn(seed)
    ranks = case.topology.device_count
    size = ranks if case.collective == "reducescatter" else 1
    problem = Problem(
        case.topology, case.collective, size, chunks=1, root=0 if case.collective in ("broadcast", "reduce") else None
    )
    coarsest = problem.coarsest
    found = least_ticks_with_switch(case.wires, case.offer, coarsest.collective, 200, 2, 3, 4.0)
    bounds_s = switch_bounds_s(coarsest)
    if found.ticks is not None:
        assert max(bounds_s.values()) <= found.ticks * (1 + 1e-9), bounds_s
    plan = switched_plan(problem, Deadline(SolveOptions()), Switches())
    if plan is not None:
        report = check(plan.schedule)
        assert report.valid, report.summary()
        assert max(bounds_s.values()) <= report.makespan_s * (1 + 1e-9)
        if found.proven and found.ticks is not None and len(plan.schedule.switch_ops.group) <= 3:
            assert report.makespan_s >= found.ticks * (1 - 1e-9)


@pytest.mark.thorough(*map(str, range(12, 300)), "[5]")
@pytest.mark.parametrize("seed", range(share(300)))
def test_no_schedule_is_faster_than_a_bound_of_bytes_by_pair(seed: int) -> None:
    """Operations may be cheaper than links here, and stand for many messages."""
    case, chance = drawn(seed), random.Random(seed)
    ranks, is_gather = case.topology.device_count, seed % 2 == 0
    rows = tuple(tuple(int(chance.random() < 0.7) for _ in range(ranks)) for _ in range(1 if is_gather else ranks))
    if not any(rows[s][t] for s in range(len(rows)) for t in range(ranks) if s != t):
        rows = (tuple([1] * ranks), *rows[1:])
    amounts = Amounts("allgatherv" if is_gather else "alltoallv", rows)
    problem = Unequal(case.topology, amounts)
    collective = amounts.cut([[1] if size else [] for row in amounts.rows for size in row])
    found = least_ticks_with_switch(case.wires, case.offer, collective, 200, 2, 3, 4.0)
    bounds_s = quick_bounds(problem) | {"bandwidth": routed_bound_s(problem, SolveOptions(), 8_000)}
    if not is_gather and has_plain_bandwidth(case.topology):
        bounds_s["fluid"] = fluid(case.topology, amounts.sent.astype(np.float64), 40).bound_s
    if found.ticks is not None:
        assert max(bounds_s.values()) <= found.ticks * (1 + 1e-9), bounds_s


def test_operations_cheaper_than_links_are_known_to_bounds_of_bytes_by_pair() -> None:
    """Four ranks whose links take 10 s and 1 s a byte, behind a switch that multicasts in 1 s and 0.1 s a byte."""
    reduction = Reduction(alpha_s=1.0, beta_s_per_byte=0.1)
    links = tuple(Link(a, b, 10.0, 1.0, (2 * a, 2 * b + 1)) for a in range(4) for b in range(4) if a != b)
    ports = tuple((2 * rank, 2 * rank + 1) for rank in range(4))
    group = SwitchGroup((0, 1, 2, 3), reduction, ports)
    topology = Topology("cheap", (0,) * 4, links, tuple(f"port{k}" for k in range(8)), switch_groups=(group,))
    problem = Unequal(topology, Amounts("allgatherv", ((10, 10, 10, 10),)))
    bounds_s = quick_bounds(problem) | {"bandwidth": routed_bound_s(problem, SolveOptions(), 8_000)}
    step_s = 1.0 + 0.1 * 30  # all four multicast at once, and each rank takes in thirty bytes
    assert max(bounds_s.values()) == pytest.approx(step_s)


@pytest.mark.thorough(*map(str, range(8, 100)))
@pytest.mark.parametrize("seed", range(share(100)))
def test_bounds_and_plans_of_process_groups_behind_a_switch_hold(seed: int) -> None:
    """One or two groups of two ranks each, of those behind the switch, whether or not it takes some without others."""
    case = drawn(seed)
    ranks = case.offer.ranks
    pairs = [ranks[k : k + 2] for k in range(0, len(ranks) - 1, 2)]
    groups = Groups(tuple(Group("allreduce", pair, 2) for pair in pairs))
    problem = Problem(case.topology, groups, 2, chunks=1)
    found = least_ticks_with_switch(case.wires, case.offer, problem.coarsest.collective, 200, 2, 3, 4.0)
    bounds_s = switch_bounds_s(problem.coarsest)
    if found.ticks is not None:
        assert max(bounds_s.values()) <= found.ticks * (1 + 1e-9), bounds_s
    plan = switched_plan(problem, Deadline(SolveOptions()), Switches())
    if plan is not None:
        report = check(plan.schedule)
        assert report.valid, report.summary()
        assert max(bounds_s.values()) <= report.makespan_s * (1 + 1e-9)
        assert set(case.offer.kinds) >= {"reduction", "multicast"}
