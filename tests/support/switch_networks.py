"""Random networks of three to five ranks whose switch adds up or multicasts: bounds, plans and an exact model."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import permutations

from exact_bounds import Compared
from exact_model import Wire
from exact_switch import Offer, least_ticks_with_switch

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.ir.collective import Collective, collective_by_name
from gapless.topologies.topology import InSwitch, Link, SwitchGroup, Topology

__all__ = ["SwitchQuestion", "compare_with_switch", "switch_question"]

TICK_S = 1e-7
UNIT_BYTES = 1000
NAMES = ("allreduce", "reduce", "broadcast", "reducescatter", "allgather")
_KINDS = (
    ("multicast", "reduction"),
    ("multicast", "reduction"),
    ("multicast",),
    ("reduction",),
    ("to all",),
    ("multicast", "reduction", "to all"),
)


@dataclass(frozen=True)
class SwitchQuestion:
    """`wires` and `offer`: the network in ticks; `problem`: the same for the product."""

    wires: list[Wire]
    offer: Offer
    problem: Chunked

    @property
    def collective(self) -> Collective:
        """In its chunks."""
        return self.problem.collective


def switch_question(seed: int) -> SwitchQuestion:
    """Collectives take turns; kinds, costs, slots, ports and loopback are random, and a rank may be off the switch."""
    chance = random.Random(10_000 + seed)
    name = NAMES[seed % len(NAMES)]
    ranks = chance.choice([3, 3, 3, 4] if name != "broadcast" and name != "reduce" else [3, 4, 4, 5])
    members = tuple(range(ranks if ranks == 3 or chance.random() < 0.7 else ranks - 1))
    is_small = name in ("broadcast", "reduce")
    parts = chance.choice([1, 2]) if is_small or (ranks == 3 and name == "allgather") else 1
    collective = collective_by_name(name, ranks, parts)
    has_ports = chance.random() < 0.6
    most_alpha, most_beta = chance.choice([(3, 4), (12, 2), (1, 6)])
    slow = chance.randint(1, most_alpha), chance.randint(1, most_beta)
    units = 2 // parts
    wires, betas = list[Wire](), list[int]()
    for a, b in permutations(range(ranks), 2):
        inside = a in members and b in members
        if not inside and chance.random() < 0.3:
            continue
        alpha, beta = slow if inside and has_ports else (chance.randint(1, most_alpha), chance.randint(1, most_beta))
        wires.append(Wire(a, b, alpha, beta * units, (a, ranks + b) if inside and has_ports else ()))
        betas.append(beta)
    beta = chance.randint(1, most_beta)
    offer = Offer(
        ranks=members,
        alpha=chance.randint(1, most_alpha),
        beta=beta * units,
        kinds=chance.choice(_KINDS),
        loopback=chance.random() < 0.4,
        subsets=ranks == 3 and chance.random() < 0.3,
        slots=chance.choice([None, 1, 2]),
        groups=chance.choice([None, None, 1]),
        ports=tuple((rank, ranks + rank) for rank in members) if has_ports else (),
    )
    links = tuple(
        Link(wire.source, wire.target, wire.alpha * TICK_S, each * TICK_S / UNIT_BYTES, wire.resources)
        for wire, each in zip(wires, betas, strict=True)
    )
    group = SwitchGroup(members, _in_switch(offer, beta), offer.ports)
    names = tuple(f"side {k}" for k in range(2 * ranks)) if has_ports else ()
    topology = Topology("random", (0,) * ranks, links, names, switch_groups=(group,))
    return SwitchQuestion(wires, offer, Chunked(topology, collective, UNIT_BYTES * units))


def _in_switch(offer: Offer, beta: int) -> InSwitch:
    return InSwitch(
        alpha_s=offer.alpha * TICK_S,
        beta_s_per_byte=beta * TICK_S / UNIT_BYTES,
        reduces="reduction" in offer.kinds,
        multicasts="multicast" in offer.kinds,
        reduces_to_all="to all" in offer.kinds,
        loopback=offer.loopback,
        subsets=offer.subsets,
        slots=offer.slots,
        groups=offer.groups,
    )


def compare_with_switch(seed: int, work: float) -> Compared:
    """The question of this seed; `work`: the deterministic time of CP-SAT, after which its best counts as one plan."""
    asked = switch_question(seed)
    result = gapless.solve(asked.problem, SolveOptions(threads=1, gap=0.0))
    assert result.valid
    assert result.report is not None
    plan, bounds = result.report.makespan_s / TICK_S, bounds_of(asked.problem)
    chunks = asked.collective.chunk_count
    found = least_ticks_with_switch(
        asked.wires, asked.offer, asked.collective, math.floor(plan + 1e-6), min(2, chunks), min(3, 1 + chunks), work
    )
    return Compared(
        collective=asked.collective.name,
        any_chunking=bounds.any_chunking_s / TICK_S,
        any_grouping=bounds.any_grouping_s / TICK_S,
        asked=bounds.asked_s / TICK_S,
        best=plan if found.ticks is None else found.ticks,
        plan=plan,
        proven=found.proven,
    )
