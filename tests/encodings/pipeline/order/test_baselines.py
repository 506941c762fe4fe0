"""The field's schedules: their step times by hand, their memory."""

from __future__ import annotations

import pytest
from tiny_pipelines import trial

from gapless.encodings.pipeline.order.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import peak_bytes, timed

EVEN = {"profile": "uniform:f=10,b=10,w=10", "hop": 0.0}


def step_s(name: str, stages: Stages) -> float:
    baseline = BASELINES[name]
    costs = stages if baseline.splits else whole(stages)
    timeline = timed(costs, baseline.order(costs))
    assert timeline is not None
    return timeline.step_s


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b"])
def test_equal_ops_by_hand(name: str) -> None:
    """P - 1 forwards and backwards of 10 and 20 s are the bubble: (8 + 3) * 30."""
    assert step_s(name, trial(4, 8, 8, **EVEN)[1]) == 330


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2"])
def test_zero_bubble_by_hand(name: str) -> None:
    """Only the ramp of three forwards is left where there is enough memory: 8 * 30 + 3 * 10."""
    assert step_s(name, trial(4, 8, 8, **EVEN)[1]) == 270


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches", "figure"),
    [("1f1b", 4, 8, 362), ("zb-h1", 4, 8, 306), ("1f1b", 8, 16, 770), ("zb-h1", 8, 16, 634), ("zb-h2", 4, 8, 276)],
)
def test_trials(name: str, ranks: int, micro_batches: int, figure: float) -> None:
    assert step_s(name, trial(ranks, micro_batches, micro_batches)[1]) == figure


def test_the_v() -> None:
    assert step_s("zb-v", trial(4, 8, 4, "v")[1]) == 284


@pytest.mark.parametrize(
    ("name", "most"),
    [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1]), ("zb-h1", [4, 4, 4, 4]), ("zb-h2", [7, 7, 7, 7])],
)
def test_micro_batches_in_flight(name: str, most: list[int]) -> None:
    _, stages = trial(4, 8, 8)
    costs = stages if BASELINES[name].splits else whole(stages)
    timeline = timed(costs, BASELINES[name].order(costs))
    assert timeline is not None
    assert (peak_bytes(costs, timeline) / costs.stash_bytes <= most).all()
    assert peak_bytes(costs, timeline)[0] == most[0] * costs.stash_bytes[0]


def test_a_baseline_is_for_its_placement() -> None:
    _, linear = trial(4, 8, 8)
    _, v = trial(4, 8, 8, "v")
    assert {name for name in BASELINES if suits(name, "linear", linear)} == {
        "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2",
    }  # fmt: skip
    assert {name for name in BASELINES if suits(name, "v", v)} == {"zb-v"}
    assert not suits("zb-h1", "linear", whole(linear))
