"""Lowering and judging TACCL-EF programs: sizes beyond the tests, and thousands of damaged files."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from damaged_texts import damaged, judged_in_s
from hand_made_collectives import CASES, pairs_allreduce, ring_allgather, ring_allreduce

from gapless.io.taccl_ef import judge, lower, xml_text

LONGEST_S = 2.0
"""For one damaged file of a few hundred steps."""
COUNT = 10_000

LARGE = {
    "ring allgather, 64 ranks": lambda: ring_allgather(64, 2),
    "ring allreduce, 64 ranks": lambda: ring_allreduce(64),
    "all-pairs allreduce, 48 ranks": lambda: pairs_allreduce(48),
}


@pytest.mark.parametrize("name", LARGE)
def test_lowering_and_judging_large_programs(benchmark: Callable[..., Any], name: str) -> None:
    collective, schedule = LARGE[name]()
    program = lower(schedule, collective, placement="both")
    benchmark.pedantic(lower, args=(schedule, collective), kwargs={"placement": "both"}, rounds=3)  # type: ignore[attr-defined]
    assert judge(program).is_valid
    info: dict[str, Any] = benchmark.extra_info  # type: ignore[attr-defined]
    info["steps"] = program.step_count


def test_ten_thousand_damaged_files(benchmark: Callable[..., Any], sized: Callable[[int, int], int]) -> None:
    texts = [xml_text(lower(*build()[::-1], placement="both")) for build in CASES.values()]

    def judge_all() -> list[float]:
        found = []
        for seed in range(sized(COUNT, 100)):
            took_s, said = judged_in_s(damaged(texts[seed % len(texts)], random.Random(seed)))
            assert said
            assert "\n" not in said
            found.append(took_s)
        return found

    times_s = benchmark.pedantic(judge_all, rounds=1)  # type: ignore[attr-defined]
    info: dict[str, Any] = benchmark.extra_info  # type: ignore[attr-defined]
    info["longest_s"] = max(times_s)
    assert max(times_s) < LONGEST_S
