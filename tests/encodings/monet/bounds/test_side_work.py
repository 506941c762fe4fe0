"""Work beside a search is seen at the same moments, however fast either of them goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from gapless.encodings.monet.bounds.side_work import Advance, Beside, Strand, Work
from gapless.options import Deadline, SolveOptions

STEP_S = 0.002


def pieces(durations_s: list[float], weights: list[float]) -> Iterator[Work[int]]:
    """Pieces that say halfway that they weigh half."""

    def piece(number: int) -> Work[int]:
        def work(advance: Advance, stop: threading.Event) -> tuple[int, float]:
            stop.wait(durations_s[number] / 2)
            advance(weights[number] / 2)
            stop.wait(durations_s[number] / 2)
            return number, weights[number]

        return work

    for number in range(len(weights)):
        yield piece(number)


def seen(beside: Beside[int], moments: int, step_s: float) -> list[tuple[int, int]]:
    """(moment, result) of a search that takes `step_s` for a step."""
    found = []
    for moment in range(moments):
        time.sleep(step_s)
        found += [(moment, result) for result in beside.results(moment)]
    beside.close()
    return found


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize(("step_s", "durations_s"), [(0.0, [0.05, 0.01, 0.02]), (STEP_S, [0.0, 0.0, 0.0])])
def test_results_are_seen_at_moments_that_no_clock_decides(
    is_parallel: bool, step_s: float, durations_s: list[float]
) -> None:
    beside = Beside([Strand(pieces(durations_s, [3.0, 0.5, 10.0]))], Deadline(SolveOptions()), is_parallel)
    assert seen(beside, 20, step_s) == [(3, 0), (4, 1), (14, 2)]


def test_what_is_left_comes_at_the_end() -> None:
    beside = Beside([Strand(pieces([0.0, 0.0], [1e9, 1e9]))], Deadline(SolveOptions()), is_parallel=False)
    assert list(beside.results(5)) == []
    assert list(beside.results(float("inf"))) == [0, 1]
    assert beside.close() == []


def test_nothing_is_waited_for_once_the_time_is_over() -> None:
    beside = Beside([Strand(pieces([30.0], [1.0]))], Deadline(SolveOptions(time_limit_s=0.05)), is_parallel=True)
    assert list(beside.results(float("inf"))) == []
    assert beside.close() == [0]  # it ended early, as it was asked to


def test_an_error_of_the_work_is_raised_where_its_result_is_taken_up() -> None:
    def work(advance: Advance, stop: threading.Event) -> tuple[int, float]:
        raise ValueError("of the work")

    beside = Beside([Strand(iter([work]))], Deadline(SolveOptions()), is_parallel=True)
    with pytest.raises(ValueError, match="of the work"):
        list(beside.results(1.0))
    beside.close()


def rising(name: str, bounds: list[float], begun: list[str]) -> Strand[str]:
    """A piece of as many slices of weight 1 as it has bounds, each of which is said at the end of its slice."""

    def work(advance: Advance, stop: threading.Event) -> tuple[str, float]:
        for number, bound in enumerate(bounds, 1):
            begun.append(name)
            advance(float(number), bound)
        return name, float(len(bounds))

    return Strand(iter([work]))


@pytest.mark.parametrize("is_parallel", [True, False])
def test_what_raises_the_bound_most_has_three_turns_in_a_row(is_parallel: bool) -> None:
    begun: list[str] = []
    strands = [rising("slow", [1.0] * 8, begun), rising("quick", [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], begun)]
    beside = Beside(strands, Deadline(SolveOptions()), is_parallel, slice_weight=1.0)
    assert sorted(beside.results(float("inf"))) == ["quick", "slow"]
    beside.close()
    turns = "".join(name[0] for name in begun)
    assert "qqq" in turns
    assert turns.count("s") == turns.count("q") == 8
    assert "ssss" not in turns[: turns.rindex("q")]
