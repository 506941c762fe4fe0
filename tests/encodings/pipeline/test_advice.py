"""Advice on pipelines: the front, what memory buys, and whether compression is needed at all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gapless.cli.main import main
from gapless.encodings.pipeline.advice import Advice, advise
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable

TRIAL = "uniform:f=10,b=12,w=8"
ERRORS = np.array([0.5, 0.5])
TENTH = CompressionTable("made up", np.array([0.0, 1.0]), (CompressionMode("tenth", 0.1, 0, 0.0, 0.0, ERRORS, ERRORS),))


def advised(**values: Any) -> Advice:
    return advise(TRIAL, **{"ranks": 2, "micro_batches": 4, "hop": 2.0, "options": SolveOptions(threads=1), **values})


def test_each_further_micro_batch_of_memory_buys_something_until_none_does() -> None:
    advice = advised(ranks=4, micro_batches=8)
    limited = {option.in_flight: option.step_s for option in advice.options}
    assert (limited[4], limited[None]) == (pytest.approx(306), pytest.approx(276))
    steps = [option.step_s for option in advice.options if option.in_flight is not None]
    assert steps == sorted(steps, reverse=True)
    assert [step.saved_s for step in advice.steps] == pytest.approx(-np.diff(steps))
    assert advice.plain is not None
    assert steps[-1] == pytest.approx(advice.plain.step_s, rel=1e-3)


@pytest.mark.thorough
def test_the_front_holds_what_nothing_beats() -> None:
    advice = advised(compression=TENTH)
    costs = [option.costs for option in advice.options]
    for option in advice.front:
        others = (cost for cost in costs if cost != option.costs)
        assert not any(all(b <= a for a, b in zip(option.costs, cost, strict=True)) for cost in others)
    assert min(costs) in {option.costs for option in advice.front}
    assert len({option.costs for option in advice.front}) == len(advice.front)


def test_compression_is_not_needed_where_messages_take_no_time() -> None:
    assert advised(hop=0.0).verdict.startswith("not needed")
    assert advised(hop=0.0).most_saved == 0.0


def test_without_a_table_the_verdict_is_a_limit_and_asks_for_measured_errors() -> None:
    advice = advised(hop=8.0)
    assert advice.plain is not None
    assert advice.most_saved == pytest.approx(1 - advice.free_s / advice.plain.step_s)
    assert "needs --compression, a table of measured errors" in advice.verdict
    assert all(option.error == 0 for option in advice.options)


def test_with_a_table_errors_stay_within_the_budget_and_buy_time() -> None:
    advice = advised(hop=8.0, compression=TENTH, error_budget=0.5, backward="whole")
    assert advice.plain is not None
    best = min(advice.options, key=lambda option: option.step_s)
    assert 0 < best.error <= 0.5
    assert best.step_s < advice.plain.step_s
    assert advice.verdict.startswith("saves ")
    assert all(option.bound_s <= option.step_s * (1 + 1e-9) for option in advice.options)
    assert all(advice.free_s <= option.step_s * (1 + 1e-9) for option in advice.options)


def test_what_there_is_no_time_for_is_left_out() -> None:
    assert advised().left_out == ""
    options = SolveOptions(threads=1)
    options.stop.set()
    advice = advise(TRIAL, ranks=2, options=options)
    assert advice.left_out
    assert advice.options == ()
    assert replace(advice, options=()).verdict.startswith("unknown")


def test_a_budget_without_a_table_is_refused() -> None:
    with pytest.raises(InputError, match="error_budget: needs compression, a table of measured errors"):
        advised(error_budget=0.1)


def test_the_command_prints_the_front_and_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["advise", "pipeline", "--profile", TRIAL, "--ranks", "2", "--micro-batches", "4", "--hop", "8"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["in", "flight", "memory", "error", "step", "bound,", "linear", "placement", "order"]
    assert lines[-1].startswith("compression: it can save at most")
    assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["problem"], data["ranks"], data["micro_batches"]) == ("pipeline", 2, 4)
    assert len(data["front"]) == len(lines[1:]) - 1 - sum(" in flight: " in line for line in lines)
