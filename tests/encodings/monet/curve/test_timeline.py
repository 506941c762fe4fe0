"""The memory timeline: what each event holds, its phase, and the text that people see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_training import CONV, chain, tiny
from hypothesis import given
from hypothesis import strategies as st
from random_training import executable_decisions, training_graphs

from gapless.checker import check
from gapless.encodings.monet.curve.timeline import PHASES, memory_timeline, render
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.study.baselines import just_in_time, revolve, store_all
from gapless.errors import InputError
from gapless.ir.graph import Graph
from gapless.ir.schedule import schedule_from_events
from gapless.topologies.topology import Topology


def recomputing() -> Any:
    kept = np.zeros(5, dtype=np.bool_)
    kept[CONV] = True
    return to_schedule(tiny(), just_in_time(tiny(), kept, np.zeros(4, dtype=np.int64)), 250)


def test_what_each_event_holds_is_as_counted_by_hand() -> None:
    timeline = memory_timeline(recomputing())
    assert timeline.operator[:5] == ("conv.0", "relu.1", "conv.3", "loss.4", "relu.1")
    # The convolution with its workspace; with the ReLU; both and the second one; without the ReLU, with the loss.
    assert timeline.live_bytes[:4].tolist() == [190, 180, 210, 171]
    assert timeline.live_bytes[4] == 100 + 40 + 1 + 40
    assert timeline.budget_bytes == 250.0


def test_phases_are_forward_to_the_loss_then_recompute_and_backward() -> None:
    timeline = memory_timeline(recomputing())
    phases = [PHASES[number] for number in timeline.phase.tolist()]
    assert phases == ["forward"] * 4 + ["recompute"] + ["backward"] * 4


@given(st.data())
def test_the_most_that_is_held_is_the_peak_of_the_replay(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    schedule = to_schedule(graph, data.draw(executable_decisions(graph)))
    assert memory_timeline(schedule).live_bytes.max() == check(schedule).peak_bytes[0]


def test_the_text_tells_phases_recomputation_implementations_and_memory() -> None:
    text = render(memory_timeline(recomputing()))
    lines = text.splitlines()
    assert lines[0].split() == ["phase", "ops", "time", "peak", "at"]
    assert lines[2].split() == ["recompute", "1", "1", "s", "181", "B", "relu.1"]
    assert "recomputed: 1 ops once" in text
    assert "  relu_ip: from input x1" in text
    assert "  conv: fast x1; default x1" in text
    assert "memory: at most 210 B, 84.0 % of the budget" in text
    assert lines[-1].endswith("0 to 16 s; f forward, r recompute, b backward")


def test_the_chart_is_as_high_as_the_share_of_the_budget_and_shows_the_phases_in_time() -> None:
    lines = render(memory_timeline(to_schedule(tiny(), store_all(tiny()), 2 * 211))).splitlines()
    rows = [line.split("|")[1] for line in lines if line.count("|") == 2]
    assert len(rows) == 9
    assert not "".join(rows[:4]).strip()
    assert "█" in rows[4]
    assert rows[-1].count("f") == round(len(rows[-1]) * 6 / 15)
    assert set(rows[-1]) == {"f", "b"}


def test_without_recomputation_and_budget_the_text_says_so() -> None:
    text = render(memory_timeline(to_schedule(chain(3), store_all(chain(3)))))
    assert "nothing is recomputed" in text
    assert "budget" not in text
    assert "implementations" not in text


def test_what_is_recomputed_often_comes_first() -> None:
    graph = chain(9)
    text = render(memory_timeline(to_schedule(graph, revolve(graph, 1))))
    assert text.split("recomputed: ")[1].splitlines()[1].split(",")[0].endswith("twice")
    assert "recomputed: 3 ops once, 3 ops twice" in text


@pytest.mark.parametrize("budget_gb", ["5.00", "8.00", "10.00"])
def test_the_text_of_a_large_plan_stays_small(reference: Callable[[str], Any], budget_gb: str) -> None:
    its = reference(f"un_11_inplace_conv_multiway_newnode_{budget_gb}")
    text = render(memory_timeline(to_schedule(its.graph, its.decisions, its.budget_bytes)))
    assert len(text.splitlines()) <= 23
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_schedule_of_several_devices_is_refused() -> None:
    two = schedule_from_events(Graph(np.array([1])), Topology("two", (0, 1)), [])
    with pytest.raises(InputError, match="one device"):
        memory_timeline(two)
