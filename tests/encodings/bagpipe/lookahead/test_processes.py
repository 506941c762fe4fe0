"""Processes that look ahead for some tables each say together what one says."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.lookahead.processes import lookahead_by_table
from gapless.encodings.bagpipe.lookahead.steps import Step, lookahead_steps
from gapless.encodings.bagpipe.parameters import Lookahead, Parameters
from gapless.encodings.bagpipe.problem import Planning, problem
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import Block

TABLES = (40, 300, 5, 70, 1000)


def batches_of_ids(count: int) -> list[Block]:
    return list(zipf_trace(TABLES, 1.1, 32 * count, 4).batches(32))


def batches_of_bags(count: int) -> list[Block]:
    rng = np.random.default_rng(5)
    lengths = [rng.integers(0, 4, (20, len(TABLES))) for _ in range(count)]
    return [Bags(rng.integers(0, 60, int(length.sum())), length) for length in lengths]


def said(step: Step) -> dict[str, Any]:
    """All that a step says but the numbers of its cache rows, which must differ."""
    assert len(np.unique(step.rows)) == len(step.ids)
    values = {field.name: getattr(step, field.name) for field in fields(step) if field.name != "rows"}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


@pytest.mark.thorough("20-3-ids", "3-2-bags")
@pytest.mark.parametrize("batches", [batches_of_ids(12), batches_of_bags(7)], ids=["ids", "bags"])
@pytest.mark.parametrize(("lookahead", "processes"), [(3, 2), (20, 3)])
def test_steps_are_those_of_one_process(batches: list[Block], lookahead: int, processes: int) -> None:
    one = [said(step) for step in lookahead_steps(batches, lookahead)]
    assert [said(step) for step in lookahead_by_table(batches, len(TABLES), lookahead, processes)] == one


def test_a_row_keeps_its_number_as_long_as_its_id_is_cached() -> None:
    held: dict[int, int] = {}
    for step in lookahead_by_table(batches_of_ids(12), len(TABLES), 3, 2):
        for id_, row, is_new in zip(step.ids.tolist(), step.rows.tolist(), step.prefetched.tolist(), strict=True):
            assert is_new == (id_ not in held)
            assert held.setdefault(id_, row) == row
        for id_ in step.ids[step.evicted].tolist():
            del held[id_]
        assert len(set(held.values())) == len(held)


def test_the_plan_is_the_same_with_any_number_of_processes() -> None:
    asked = problem("zipf", table_rows=TABLES, examples=200, trainers=3, batch_size=20, lookahead=4)
    plans = [gapless.solve(asked, parameters=Parameters(lookahead=Lookahead(processes))) for processes in (1, 3)]
    one, three = (result.details for result in plans)
    assert one == three
    assert plans[1].valid


def test_a_caller_that_wants_no_more_ends_the_processes() -> None:
    steps = lookahead_by_table(batches_of_ids(12), len(TABLES), 2, 2)
    assert next(steps).batch == 0
    steps.close()  # type: ignore[attr-defined]
    assert list(steps) == []


def test_what_is_wrong_in_a_process_or_in_the_trace_is_for_the_caller() -> None:
    wrong = [*batches_of_ids(3), np.full((4, len(TABLES)), -1)]
    with pytest.raises(InputError, match="ids must be in"):
        list(lookahead_by_table(wrong, len(TABLES), 2, 2))
    with pytest.raises(InputError, match="at least one batch"):
        list(lookahead_by_table([], len(TABLES), 2, 2))

    def broken() -> Any:
        yield from batches_of_ids(3)
        raise InputError("t.csv: line 9 is none")

    with pytest.raises(InputError, match="line 9"):
        list(lookahead_by_table(broken(), len(TABLES), 2, 2))


@pytest.mark.parametrize(("lookahead", "processes"), [(0, 2), (2, 0)])
def test_numbers_below_one_are_named(lookahead: int, processes: int) -> None:
    with pytest.raises(InputError, match="must be >= 1, got 0"):
        lookahead_by_table(batches_of_ids(1), len(TABLES), lookahead, processes)


def test_a_cache_size_needs_one_process() -> None:
    trace = zipf_trace(TABLES, 1.1, 200, 4)
    with pytest.raises(InputError, match="processes: must be 1 where L is what fits 500 rows, got 2"):
        next(batch_plans(trace, Planning(2, 20, cache_rows=500), Parameters(lookahead=Lookahead(2))))
