"""Lowering and judging TACCL-EF programs: sizes beyond the tests, and thousands of damaged files."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaged_texts import damaged, judged_in_s
from hand_made_collectives import CASES, pairs_allreduce, ring_allgather, ring_allreduce, taker

import gapless
from gapless.encodings.taccl.programs.export import write_taccl_ef
from gapless.io.taccl_ef import judge, lower, read_program, xml_text

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
    cases = [build() for build in CASES.values()]
    texts = [xml_text(lower(*case[::-1], placement="both", runtime=taker(case[0].name))) for case in cases]

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


def test_an_export_of_512_ranks(
    benchmark: Callable[..., Any], sized: Callable[[int, int], int], tmp_path: Path
) -> None:
    """ALLGATHER on 64 nodes; `solve_s` is what the plan took, for comparison."""
    start_s = time.process_time()
    plan = gapless.taccl.solve("dgx-a100", nodes=sized(64, 2), size="1MB").plan
    solve_s = time.process_time() - start_s
    how = {"runtime": "executor"}
    written = benchmark.pedantic(  # type: ignore[attr-defined]
        write_taccl_ef, args=(tmp_path / "f.xml", plan.schedule, plan.problem), kwargs=how, rounds=1
    )
    assert read_program(tmp_path / "f.xml") == (written.program, [])
    info: dict[str, Any] = benchmark.extra_info  # type: ignore[attr-defined]
    info["solve_s"], info["steps"] = solve_s, written.program.step_count
