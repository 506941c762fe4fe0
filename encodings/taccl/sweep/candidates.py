"""Candidates: plans and baselines that any size may be served by, and what each takes there under the replay.

A plan may be pipelined: its chunks are cut into pieces that follow each other along the same paths. A rank sends the
first piece on while it receives the second. It costs an alpha for each piece; for large buffers that is little beside
what it saves at the end of long paths. Instances don't do the same: they travel side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.checker import check
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.programs.export import to_program
from gapless.encodings.taccl.sweep.request import Request, larger_buffer, with_instances
from gapless.errors import GaplessError, InputError
from gapless.io.taccl_ef import LoweringOptions, Program
from gapless.ir.collective import Collective, divided
from gapless.ir.schedule import Schedule
from gapless.ir.simulate import retime

__all__ = ["Candidate", "Lowering", "Times", "pipelined"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule of the collective, in chunks of its own.

    `is_baseline`: by template, not synthesised. `sketch`: what it was synthesised under, None for none.
    """

    name: str
    collective: Collective
    schedule: Schedule
    is_baseline: bool
    sketch: str | None = None

    @cached_property
    def chunks(self) -> int:
        """The chunks of the larger buffer."""
        return larger_buffer(self.collective)

    def at(self, size_bytes: int, instances: int, request: Request) -> Schedule:
        """The same transfers in the same order, for buffers of that size, with that many instances."""
        topology = with_instances(self.schedule.topology, instances, request.costs)
        chunk_bytes = -(-size_bytes // self.chunks)
        return retime(self.schedule, topology, np.full(self.collective.chunk_count, chunk_bytes, dtype=np.int64))


class Times:
    """The makespans of candidates, each replayed once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._known: dict[tuple[Candidate, int, int], float] = {}

    def makespan_s(self, candidate: Candidate, size_bytes: int, instances: int) -> float:
        """What the candidate takes."""
        key = (candidate, size_bytes, instances)
        if key not in self._known:
            schedule = candidate.at(size_bytes, instances, self._request)
            self._known[key] = float(schedule.end_s.max(initial=0.0))
        return self._known[key]

    def checked_s(self, candidate: Candidate, size_bytes: int, instances: int) -> float:
        """The same as the checker has it; raises `GaplessError` where it finds a violation."""
        report = check(candidate.at(size_bytes, instances, self._request))
        if not report.valid:
            raise GaplessError(f"{candidate.name} at {size_bytes} bytes: {report.summary()}")
        return report.makespan_s


class Lowering:
    """Programs of candidates, each lowered once; `refused` has the reasons of those that can't be."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._known: dict[tuple[Candidate, int], Program | None] = {}
        self.refused: dict[tuple[str, int], str] = {}

    def program(self, candidate: Candidate, instances: int) -> Program | None:
        """The program for all sizes, None where a limit of the runtime is exceeded."""
        key = (candidate, instances)
        if key not in self._known:
            how: LoweringOptions = {**self._request.lowering, "instances": instances}
            try:
                self._known[key] = to_program(candidate.schedule, candidate.collective, **how)
            except InputError as error:
                self.refused[candidate.name, instances] = str(error)
                self._known[key] = None
        return self._known[key]

    def for_range(self, candidate: Candidate, instances: int, name: str, min_bytes: int, max_bytes: int) -> Program:
        """The program for a range of sizes, under a name; 0 for as much as the runtime can serve with it."""
        program = self.program(candidate, instances)
        assert program is not None  # only what was lowered is chosen
        most = min(max_bytes or program.max_bytes, program.max_bytes)
        return replace(program, name=name, min_bytes=min_bytes, max_bytes=most)


def pipelined(candidate: Candidate, pieces: int) -> Candidate:
    """The candidate with each transfer as `pieces` transfers in a row, each of one piece of all that it moves."""
    old = candidate.schedule
    collective, chunk_bytes = divided(candidate.collective, pieces), -(-int(old.graph.size_bytes[0]) // pieces)
    transfers = [
        Transfer(int(old.place[event]), tuple((old.moves[event] * pieces + piece).tolist()), bool(old.reduces[event]))
        for event in np.argsort(old.start_s, kind="stable").tolist()
        for piece in range(pieces)
    ]
    schedule = to_schedule(old.topology, collective, chunk_bytes, *sends_in_turn(transfers), old.name, retimed=False)
    title = f"{candidate.name} in {pieces} pieces"
    return Candidate(title, collective, schedule, candidate.is_baseline, candidate.sketch)
