"""MONeT's proofs against a dynamic programme over stored sets: `pytest tests/benchmarks/test_monet_proofs.py`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from monet_proofs import assert_the_proof_is_true, questions

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
