"""Methods: ways to look for a plan. One loop tries them in turn, and a parameter file can leave any of them out.

A system lists its methods in the order in which they are tried. What they share is a search: the question, the best
candidate so far, the bounds, the time that is left. A method takes the search, looks, and yields what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gapless.errors import InputError
from gapless.methods.ledger import charge
from gapless.question.fields import meant

__all__ = ["Method", "MethodChoice", "Search", "run_methods"]

ProblemT = TypeVar("ProblemT", contravariant=True)
SearchT = TypeVar("SearchT", contravariant=True)
CandidateT = TypeVar("CandidateT")
MadeT = TypeVar("MadeT", covariant=True)
KeptT = TypeVar("KeptT", contravariant=True)


class Search(Protocol[KeptT]):
    """What the methods of a question share."""

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or the best candidate is proven within the gap: no further method is tried."""

    def offer(self, candidate: KeptT) -> None:
        """Keep the candidate if it is better than the best, note its bounds by class, and report."""


class Method(Protocol[ProblemT, SearchT, MadeT]):
    """One way to look for a plan."""

    @property
    def name(self) -> str:
        """As people write it: on the command line, in parameter files, in the provenance of a plan."""

    def supports(self, problem: ProblemT) -> bool:
        """Whether it can plan such a question, and is worth trying: by the question alone, not by what was found."""

    def run(self, search: SearchT) -> Iterable[MadeT]:
        """What it finds, each as soon as it is there; nothing where the best so far leaves it nothing to gain."""


@dataclass(frozen=True)
class MethodChoice:
    """Which of a system's methods are tried, by their names: an ablation is a sweep over such choices."""

    only: tuple[str, ...] = ()
    """These alone; none named: all of them."""

    without: tuple[str, ...] = ()
    """These are left out."""

    def check(self, known: Sequence[str]) -> None:
        """Raises `InputError` for names that no method has, and where none is left."""
        for kind in ("only", "without"):
            for name in getattr(self, kind):
                if name not in known:
                    raise InputError(f"methods.{kind}: {name!r} is no method; {meant(name, list(known))}")
        if not any(map(self.allows, known)):
            raise InputError(f"methods: must leave one of {', '.join(known)}, got none")

    def allows(self, name: str) -> bool:
        """Whether a method may be tried."""
        return name not in self.without and (not self.only or name in self.only)


def run_methods(
    methods: Iterable[Method[ProblemT, Any, CandidateT]], problem: ProblemT, search: Search[CandidateT],
    choice: MethodChoice | None = None,
) -> None:  # fmt: skip
    """Try the methods in turn, as long as the search isn't over; what they find is offered to it.

    The time of each is charged to its name.
    """
    for method in methods:
        if search.is_over:
            return
        if (choice is None or choice.allows(method.name)) and method.supports(problem):
            with charge(method.name):
                for candidate in method.run(search):
                    search.offer(candidate)
