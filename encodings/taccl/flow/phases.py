"""Phases: plans made phase by phase, by a search for each with its share of the time and of the work.

What reduces is planned backwards in time, as the spreading of its chunks over links that are turned round; where the
sums are wanted by more than one rank (ALLREDUCE), they are spread in a second phase.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked, Phase
from gapless.encodings.taccl.ordering.sends import turned_back
from gapless.encodings.taccl.symmetry.quotient import Columns
from gapless.options import Deadline, Progress, SolveOptions

__all__ = ["PhaseSearch", "search_phases"]

BestT = TypeVar("BestT")


@dataclass
class PhaseSearch(ABC, Generic[BestT]):
    """A search for the plan of one phase; `left`: how many sends it may still try. `on_best` hears of each better plan.

    `method`: as it is reported. `best`: the best plan on orbits so far.
    """

    phase: Phase
    options: SolveOptions
    deadline: Deadline
    left: int
    method: str
    best: BestT | None = None
    tries: int = 0
    on_best: Callable[[BestT], None] | None = None

    @abstractmethod
    def end_s(self, best: BestT) -> float:
        """When a plan is over."""

    @abstractmethod
    def sends(self, best: BestT) -> Columns:
        """All sends of a plan, in the time of the search."""

    def unfolded(self, best: BestT) -> Columns:
        """All sends of a plan, in the time of the whole."""
        columns = self.sends(best)
        return turned_back(columns) if self.phase.backwards else columns

    def keep(self, best: BestT, bound_s: float | None = None) -> None:
        """Keep a plan that is the best so far, and report it."""
        self.best = best
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(self.deadline.elapsed_s, self.end_s(best), bound_s, self.method))
        if self.on_best is not None:
            self.on_best(best)


SearchT = TypeVar("SearchT", bound=PhaseSearch)  # type: ignore[type-arg]


def search_phases(
    problem: Chunked,
    options: SolveOptions,
    deadline: Deadline,
    begun: Callable[[Phase, SolveOptions], SearchT],
    run: Callable[[SearchT, int, Sequence[Columns]], None],
    candidate: Callable[[Sequence[SearchT], Sequence[Columns]], Candidate],
    in_turn: bool,
) -> tuple[list[SearchT], list[Columns]] | None:
    """The searches of all phases and the sends that they found; None where one of them found none.

    `begun` makes a search, `run(search, number, found)` lets it work after what the phases before it found, and
    `candidate` makes a plan of all phases, for whoever hears of plans. `in_turn`: a phase knows no time but its own.
    """
    searches, found, count = list[SearchT](), list[Columns](), len(problem.phases)
    for number, phase in enumerate(problem.phases):
        is_last = number == count - 1
        share = deadline.stage(deadline.remaining_s / (count - number))
        search = begun(phase, share if is_last and not (in_turn and number) else share.of_a_part())
        searches.append(search)
        if is_last and options.on_plan is not None:
            since_s = sum(float(columns.end_s.max(initial=0.0)) for columns in found) if in_turn else 0.0
            made = partial(candidate, list(searches))
            search.on_best = partial(_offer, options.on_plan, search, made, list(found), since_s)
        run(search, number, found)
        if search.best is None:
            return None
        found.append(search.unfolded(search.best))
    return searches, found


def _offer(
    on_plan: Callable[[float, Callable[[], Candidate]], None],
    search: PhaseSearch[BestT],
    candidate: Callable[[Sequence[Columns]], Candidate],
    before: Sequence[Columns],
    since_s: float,
    best: BestT,
) -> None:
    """Hands on a plan of the last phase, `before` being the phases before it; it is unfolded if it is wanted."""
    on_plan(since_s + search.end_s(best), lambda: candidate([*before, search.unfolded(best)]))
