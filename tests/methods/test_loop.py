"""One loop over methods: in their order, until the search is over, without those that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gapless.errors import InputError
from gapless.methods import MethodChoice, run_methods


@dataclass(frozen=True)
class Guess:
    """A method that finds given numbers in questions that are long enough for it."""

    name: str
    guesses: tuple[int, ...]
    least: int = 0

    def supports(self, problem: int) -> bool:
        return problem >= self.least

    def run(self, search: Least) -> Iterator[int]:
        yield from self.guesses


@dataclass
class Least:
    """A search for a number that is small enough."""

    enough: int = -1
    offered: list[int] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return min(self.offered, default=99) <= self.enough

    def offer(self, candidate: int) -> None:
        self.offered.append(candidate)


METHODS = (Guess("first", (7, 5)), Guess("large", (4,), least=10), Guess("last", (3,)))


@pytest.mark.parametrize(
    ("problem", "enough", "choice", "offered"),
    [
        (10, -1, None, [7, 5, 4, 3]),
        (9, -1, None, [7, 5, 3]),
        (10, 5, None, [7, 5]),
        (10, -1, MethodChoice(only=("large", "last")), [4, 3]),
        (10, -1, MethodChoice(without=("first",)), [4, 3]),
        (10, -1, MethodChoice(only=("first", "last"), without=("last",)), [7, 5]),
    ],
)
def test_methods_are_tried_in_order_until_the_search_is_over(
    problem: int, enough: int, choice: MethodChoice | None, offered: list[int]
) -> None:
    search = Least(enough)
    run_methods(METHODS, problem, search, choice)
    assert search.offered == offered


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (MethodChoice(only=("frist",)), "methods.only: 'frist' is no method"),
        (MethodChoice(without=("none",)), "methods.without: 'none' is no method"),
        (MethodChoice(without=("first", "large", "last")), "must leave one of first, large, last"),
        (MethodChoice(only=("first",), without=("first",)), "must leave one of"),
    ],
)
def test_names_of_no_method_and_choices_of_none_are_refused(choice: MethodChoice, says: str) -> None:
    with pytest.raises(InputError, match=says):
        choice.check([method.name for method in METHODS])
