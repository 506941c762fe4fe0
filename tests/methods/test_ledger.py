"""The ledger charges every second of a solve to one row; clocks are counted here, so that no time is real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest

import gapless
from gapless import recipe
from gapless.methods import run_methods
from gapless.methods.ledger import REST, Ledger, charge


class Clock:
    """Moves on by a second each time that somebody works."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, duration_s: float = 1.0) -> None:
        self.now_s += duration_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_rows_add_up_to_the_whole_and_a_block_within_another_is_charged_alone(clock: Clock) -> None:
    with Ledger(clock) as ledger:
        clock.work(1)
        with charge("method"):
            clock.work(2)
            with charge("bounds"):
                clock.work(4)
            clock.work(8)
        with charge("bounds"):
            clock.work(16)
        clock.work(32)
    clock.work(64)
    assert ledger.rows == {REST: 33, "bounds": 20, "method": 10}
    assert list(ledger.rows) == [REST, "bounds", "method"], "the most first"


@dataclass
class Search:
    """What one method asks for when it needs it."""

    clock: Clock
    is_over: bool = False

    @cached_property
    @charge("bounds: slow")
    def bound_s(self) -> float:
        self.clock.work(5)
        return 1.0

    def offer(self, candidate: float) -> None:
        self.clock.work(3)


@dataclass(frozen=True)
class Method:
    name: str

    def supports(self, problem: None) -> bool:
        return True

    def run(self, search: Search) -> Iterator[float]:
        for _ in range(2):
            search.clock.work(1)
            yield search.bound_s


def test_a_bound_worked_out_inside_of_a_method_is_the_bounds_time_and_only_once(clock: Clock) -> None:
    with Ledger(clock) as ledger:
        run_methods([Method("first"), Method("second")], None, Search(clock))
    assert ledger.rows == {"first": 8, "second": 8, "bounds: slow": 5, REST: 0}


def test_what_ends_early_is_charged_nevertheless(clock: Clock) -> None:
    with Ledger(clock) as ledger:
        with pytest.raises(ZeroDivisionError), charge("method"), charge("bounds"):  # noqa: PT012
            clock.work(2)
            1 / 0  # noqa: B018
        clock.work(1)
        assert ledger.rows == {"bounds": 2, REST: 1, "method": 0}


def test_rows_of_an_open_ledger_hold_what_is_under_way(clock: Clock) -> None:
    with Ledger(clock) as ledger, charge("method"):
        clock.work(2)
        assert ledger.rows == {"method": 2, REST: 0}


def test_other_threads_and_solves_within_charge_nothing_to_it(clock: Clock) -> None:
    def beside() -> None:
        with charge("beside"):
            clock.work(2)

    with Ledger(clock) as ledger, charge("waits"):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        with Ledger(clock) as inner:
            with charge("inner"):
                clock.work(4)
            assert inner.rows == {"inner": 4, REST: 0}
        clock.work(8)
    assert ledger.rows == {"waits": 14, REST: 0}


def test_without_a_ledger_nothing_is_charged() -> None:
    with charge("nothing"):
        pass


def test_the_rows_of_a_solve_add_up_to_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second, so that a solve takes as many as there are looks."""
    ledgers = list[Ledger]()

    class Counted(Ledger):
        def __init__(self) -> None:
            self.looks = 0
            super().__init__(self.look)
            ledgers.append(self)

        def look(self) -> float:
            self.looks += 1
            return float(self.looks)

    monkeypatch.setattr(recipe, "Ledger", Counted)
    result = gapless.taccl.solve("ring:4", collective="allreduce", size="1MB")
    (ledger,) = ledgers
    assert result.timings == result.data["stages"]
    assert result.data["solve_s"] == result.run["solve_s"] == sum(result.timings.values())
    assert sum(result.timings.values()) == ledger.looks - 3, "but those before it opened and after it was asked"
    assert {"first", "chunking", "phase-by-phase", "bounds: arrival", "bounds: cuts", REST} <= set(result.timings)
    assert not {name for name in result.timings if name.startswith("bound") and ":" not in name}
