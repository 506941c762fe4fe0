"""MONeT's proofs against a dynamic programme over stored sets, with a link against all that can be done in each tick:

`pytest tests/benchmarks/test_monet_proofs.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from monet_proofs import (
    assert_the_proof_is_true,
    assert_the_proof_with_a_link_is_true,
    questions,
    questions_with_a_link,
)

from gapless import Status
from gapless.profiles.training.graph import TrainingGraph


def test_five_thousand_proofs_are_true(benchmark: Any, sized: Any) -> None:
    """Takes half an hour of processor time."""
    count, said = sized(5000, 20), Counter[Status]()
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @seed(0)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=quiet)
    @given(question=questions())
    def look(question: tuple[TrainingGraph, int]) -> None:
        said[assert_the_proof_is_true(*question)] += 1

    benchmark.pedantic(look, rounds=1)
    benchmark.extra_info |= {status.value: times for status, times in said.items()}
    assert said.total() >= count
    assert said[Status.OPTIMAL] > count / 3
    assert said[Status.INFEASIBLE] > 0


def test_proofs_with_a_link_are_true(benchmark: Any, sized: Any) -> None:
    """A thousand questions of which all can be tried."""
    count, said = sized(1000, 20), Counter[Status | None]()
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @seed(0)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=quiet)
    @given(question=questions_with_a_link())
    def look(question: tuple[TrainingGraph, int, int]) -> None:
        said[assert_the_proof_with_a_link_is_true(*question)] += 1

    benchmark.pedantic(look, rounds=1)
    benchmark.extra_info |= {"too many states" if status is None else status.value: n for status, n in said.items()}
    assert said.total() - said[None] > count / 3
    assert said[Status.OPTIMAL] > count / 20
