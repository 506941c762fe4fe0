"""Earlier: a plan from before a failure, its sends in the links and chunks of the question of today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.candidate import CollectiveDecision
from gapless.encodings.taccl.chunked import Chunked
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_of
from gapless.io.plan import given_plan
from gapless.ir.collective import Collective
from gapless.ir.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["Earlier", "EarlierSends", "earlier_plan"]

_GROUPS = "-groups"


@dataclass(frozen=True)
class EarlierSends:
    """The sends of a plan by start: `chunk`, as today's collective numbers it, -1 for none; `link`, as today's topology
    does, -1 where it is gone; `source`, `target`: ranks, int64; `start_s`, `end_s`: float.
    """

    chunk: Ids
    link: Ids
    source: Ids
    target: Ids
    start_s: Floats
    end_s: Floats


@dataclass(frozen=True)
class Earlier:
    """A plan that was made for the same machine and collective before something failed.

    `chunks`: into how many a rank's data were cut. `end_s`: how long it took, `input_bytes`: for which buffers.
    """

    name: str
    schedule: Schedule
    collective: Collective
    chunks: int
    end_s: float
    input_bytes: int

    def check(self, machine: Topology, problem: Chunked) -> None:
        """Raise `InputError` where it isn't a plan of this machine, before the failure, or of this collective."""
        own, ranks = self.schedule.topology, machine.device_count
        if own.device_count != ranks:
            raise InputError(
                f"{self.name}: topology {own.name!r}: must be that of the question, {machine.name!r} of {ranks} ranks"
                f", got {own.device_count} ranks"
            )
        known = set(_keys(machine))
        unknown = next((link for link, key in enumerate(_keys(own)) if key not in known), None)
        if unknown is not None:
            raise InputError(
                f"{self.name}: topology {own.name!r}: must be that of the question, {machine.name!r}, which has no link"
                f" {own.link_name(unknown)} with the same ports"
            )
        names = [each.name.removesuffix(_GROUPS) for each in (self.collective, problem.collective)]
        if names[0] != names[1] or not (self.chunk_of(problem.collective) >= 0).any():
            raise InputError(
                f"{self.name}: collective: must be that of the question, {names[1]} among its ranks, got {names[0]}"
            )

    def sends(self, problem: Chunked) -> EarlierSends:
        """Its sends as the question has them."""
        schedule, own = self.schedule, self.schedule.topology
        number = {key: link for link, key in enumerate(_keys(problem.topology))}
        link_of = np.array([number.get(key, -1) for key in _keys(own)], dtype=np.int64)
        counts = np.diff(schedule.moves.start)
        event = np.repeat(np.arange(len(schedule)), counts)
        event = event[np.argsort(schedule.start_s[event], kind="stable")]
        order = np.argsort(schedule.start_s[np.repeat(np.arange(len(schedule)), counts)], kind="stable")
        place = schedule.place[event]
        return EarlierSends(
            self.chunk_of(problem.collective)[schedule.moves.values[order]], link_of[place], own.link_source[place],
            own.link_target[place], schedule.start_s[event], schedule.end_s[event],
        )  # fmt: skip

    def chunk_of(self, collective: Collective) -> Ids:
        """The number that each of its chunks has today, -1 for those of ranks that have left; int64.

        Chunks are the same that come from the same ranks and go to the same, of those that take part today: the first
        is the first, and so on.
        """
        here = {rank for buffers in (collective.inputs, collective.outputs)
                for rank, buffer in enumerate(buffers) if buffer}  # fmt: skip
        waiting: dict[tuple[tuple[int, ...], ...], list[int]] = defaultdict(list)
        for chunk, ends in enumerate(_ends(collective, here)):
            waiting[ends].append(chunk)
        for chunks in waiting.values():
            chunks.reverse()
        found = [waiting[ends].pop() if waiting.get(ends) else -1 for ends in _ends(self.collective, here)]
        return np.array(found, dtype=np.int64)


def earlier_plan(plan: object) -> Earlier:
    """The plan that is given, or in a file. Raises `InputError` for one of another kind, or made under a sketch."""
    name, saved = given_plan(plan, "taccl", "from_plan")
    if not len(saved.schedule):
        raise InputError(f"{name}: must be a plan with sends, got none")
    decision = CollectiveDecision.of(saved, name)
    if decision.sketch is not None:
        raise InputError(f"{name}: sketch: must be a plan on all links to go on from, got one under {decision.sketch}")
    size = saved.problem.get("input_bytes")
    return Earlier(
        name, saved.schedule, collective_of(saved.problem, name), decision.chunks,
        float(saved.schedule.end_s.max(initial=0.0)), size if isinstance(size, int) else 0,
    )  # fmt: skip


def _ends(collective: Collective, here: set[int]) -> list[tuple[tuple[int, ...], ...]]:
    """Where each chunk comes from and goes to, of the ranks that are here."""

    def left(ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(rank for rank in ranks if rank in here)

    pairs = zip(collective.contributors, collective.destinations, strict=True)
    return [(left(parts), left(wants)) for parts, wants in pairs]


def _keys(topology: Topology) -> list[tuple[object, ...]]:
    """What each link is known by: its ends, the names of what it holds, and its number among such links."""
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    start, held = topology.held_start.tolist(), topology.held.tolist()
    found: list[tuple[object, ...]] = []
    for link, ends in enumerate(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True)):
        key = (*ends, *(topology.resources[number] for number in held[start[link] : start[link + 1]]))
        found.append((*key, counts[key]))
        counts[key] += 1
    return found
