"""Candidate: a plan that a method has found, with what is known of it; the search compares candidates.

What it decides beside its transfers is a `CollectiveDecision`, which goes into the plan file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np

from gapless import __version__
from gapless.checker import check
from gapless.decision import Decision
from gapless.encodings.taccl.chunked import Chunked, chunks_of, claim
from gapless.io.formats.collective_file import collective_of
from gapless.io.record import Record
from gapless.io.typed import Stored, read_record
from gapless.ir.schedule import Schedule
from gapless.options import Deadline, SolveOptions, relative_gap
from gapless.system import Plan

if TYPE_CHECKING:
    from typing_extensions import Self

    from gapless.io.plan import SavedPlan

__all__ = ["SAME", "Candidate", "CollectiveDecision", "checked"]

SAME = 1e-9
"""Ends that differ by less than this share are equal."""


@dataclass(frozen=True)
class CollectiveDecision(Decision):
    """What a plan decides beside its transfers, which are its schedule: whose plan it is and what it is made of.

    `chunks`: into how many what one rank has for one rank, or for all of them, is cut. `sketch`: its name, None for a
    plan on all links.
    """

    method: str
    variant: str
    chunks: Annotated[int, Stored(1)]
    sketch: str | None = None

    @classmethod
    def of(cls, plan: SavedPlan, where: str = "plan") -> Self:
        """What a saved plan decides. Plans from before there were decisions have it as `provenance` among their
        details; those without that are in the chunks and under the sketch that their problem says.
        """
        if plan.decision:
            return super().of(plan, where)
        account, details = plan.details.get("provenance"), f"{where}: details"
        if account is None:
            chunks = chunks_of(collective_of(plan.problem, where))
            account = {name: plan.details.get(name, "") for name in ("method", "variant")}
            account |= {"chunks": chunks, "sketch": plan.problem.get("sketch")}
        elif not isinstance(account, dict):
            raise Record(dict(plan.details), details).fail("provenance", "an object", account)
        else:
            details += ": provenance"
        return read_record(cls, Record({key: value for key, value in account.items() if value is not None}, details))


@dataclass(frozen=True)
class Candidate:
    """A schedule of a problem in its chunks, by a method in one of its variants, both in words.

    `is_grouped`: it is of the class of plans that group chunks at will; others send them one at a time inside nodes.
    `bounds_s`: bounds of its class, by where they come from; `bound_s`: the largest. `account`: what the method says
    besides, for people.
    """

    problem: Chunked
    schedule: Schedule
    method: str
    variant: str
    bound_s: float
    bounds_s: Mapping[str, float | None]
    is_grouped: bool = True
    account: Mapping[str, object] = field(default_factory=dict)
    solver_name: str = ""
    version: str = __version__

    def __post_init__(self) -> None:
        assert self.bound_s <= self.end_s * (1 + 1e-6), "a schedule beats its lower bound"

    @cached_property
    def end_s(self) -> float:
        """When the last transfer ends."""
        return float(self.schedule.end_s.max(initial=0.0))

    @property
    def solver(self) -> str:
        """Who claims it: the solvers of a method that has some, or the method itself."""
        return self.solver_name or self.method

    @property
    def proven_s(self) -> float:
        """No plan of its class takes less; that is not more than its own end, but for rounding."""
        return min(self.bound_s, self.end_s)

    @property
    def gap(self) -> float | None:
        """Proven distance from the best of its class."""
        return relative_gap(self.end_s, self.proven_s)

    @property
    def decision(self) -> CollectiveDecision:
        """What it decides beside its transfers."""
        sketch = self.problem.sketch
        name = None if sketch is None else sketch.name
        return CollectiveDecision(self.method, self.variant, self.problem.chunks, name)

    def is_faster(self, than: Candidate | None) -> bool:
        """Whether it ends before another one, which may not be there."""
        return than is None or self.end_s < than.end_s * (1 - SAME)

    def details(self, ratio: float | None) -> dict[str, object]:
        """What is said of it, for people; `ratio`: of its end to a bound."""
        return {
            "method": self.method,
            "ratio": ratio,
            "sends": len(self.schedule),
            "chunk_transfers": len(self.schedule.moves.values),
            "links_used": len(np.unique(self.schedule.place)),
            "bounds_s": dict(self.bounds_s),
            **self.account,
        }

    def plan(self, options: SolveOptions, deadline: Deadline) -> Plan:
        """The plan by itself, with the bound of its class."""
        solution = claim(self.end_s, self.bound_s, self.solver, self.version, options, deadline)
        details = {**self.details(self.end_s / self.bound_s if self.bound_s else 1.0), "variant": self.variant}
        return Plan(solution, self.schedule, details, problem=self.problem, decision=self.decision)


def checked(schedule: Schedule) -> Schedule:
    """A schedule that replays clean."""
    report = check(schedule)
    assert report.valid, report.summary()
    return schedule
