"""The field's schedules: their step times by hand, their memory."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_pipelines import trial

from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.schedules.baselines import BASELINES, apart, suits, whole

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
    assert (peak_bytes(costs, timeline.program) / costs.stash_bytes <= most).all()
    assert peak_bytes(costs, timeline.program)[0] == most[0] * costs.stash_bytes[0]


@pytest.mark.parametrize(("ranks", "half", "third"), [(4, 3, 2), (8, 5, 4), (12, 7, 5), (16, 9, 6)])
def test_building_blocks_keep_half_and_a_third_of_what_1f1b_keeps(ranks: int, half: int, third: int) -> None:
    """And the time between a forward and its weight gradient on a rank, which one more micro-batch covers."""
    _, stages = trial(ranks, 2 * ranks, ranks, "v", **EVEN)
    each = np.bincount(stages.rank, weights=stages.stash_bytes)
    for name, most in (("v-half", half), ("v-min", third)):
        timeline = timed(stages, BASELINES[name].order(stages))
        assert timeline is not None
        assert (peak_bytes(stages, timeline.program) / each).max() == most


def test_v_half_and_v_min_by_the_papers_costs() -> None:
    """Eight ranks, 16 micro-batches, all ops of 10 s: the public programs take 1,130 and 1,230 s."""
    _, stages = trial(8, 16, 16, "v", profile="uniform:f=20,b=20,w=20", hop=0.0)
    assert step_s("v-half", stages) == 1130
    assert step_s("v-min", stages) == 1230


@pytest.mark.parametrize("name", list(BASELINES))
@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 2), (2, 4), (3, 7), (4, 9)])
def test_every_schedule_runs_every_op_once(name: str, ranks: int, micro_batches: int) -> None:
    """First in, first out, of each kind and stage."""
    baseline = BASELINES[name]
    if baseline.placement == "bidirectional":  # as many ranks, and as many micro-batches of each copy of the model
        ranks, micro_batches = 2 * ranks, 2 * micro_batches
    sliced = {"slices": 3} if baseline.is_sliced else {}
    _, stages = trial(ranks, micro_batches, micro_batches, baseline.placement, **sliced)
    micro_batches = stages.micro_batches
    costs = stages if baseline.splits else whole(stages)
    order = baseline.order(costs)
    assert timed(costs, order) is not None
    assert sorted(np.concatenate(order.sequences).tolist()) == list(
        range((3 if baseline.splits else 2) * stages.count * micro_batches)
    )
    for rank, sequence in enumerate(order.sequences):
        families, turns = np.divmod(sequence, micro_batches)
        assert (stages.rank[families % stages.count] == rank).all()
        for family in np.unique(families):
            assert turns[families == family].tolist() == list(range(micro_batches))


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_backwards_apart_are_no_later(name: str) -> None:
    _, stages = trial(4, 8, 8)
    both = whole(stages)
    order = BASELINES[name].order(both)
    one, two = timed(both, order), timed(stages, apart(stages, order))
    assert one is not None
    assert two is not None
    assert two.step_s < one.step_s
    assert (peak_bytes(stages, two.program) <= peak_bytes(both, one.program)).all()


def test_a_baseline_is_for_its_placement() -> None:
    _, linear = trial(4, 8, 8)
    _, v = trial(4, 8, 8, "v")
    assert {name for name in BASELINES if suits(name, "linear", linear)} == {
        "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2",
    }  # fmt: skip
    assert {name for name in BASELINES if suits(name, "v", v)} == {"zb-v", "v-half", "v-min", "dualpipe-v", "hanayo"}
    _, short = trial(4, 7, 8, "v")
    assert not suits("dualpipe-v", "v", short)
    _, waves = trial(2, 4, 8, "v", chunks=4)
    assert {name for name in BASELINES if suits(name, "v", waves)} == {"hanayo"}
    _, both_ways = trial(4, 8, 8, "bidirectional")
    assert {name for name in BASELINES if suits(name, "bidirectional", both_ways)} == {"chimera", "dualpipe"}
    assert not suits("dualpipe", "bidirectional", trial(4, 6, 8, "bidirectional")[1])
    assert {name for name in BASELINES if suits(name, "linear", trial(4, 8, 8, slices=2)[1])} == {"seq1f1b"}
    assert not suits("zb-h1", "linear", whole(linear))


@pytest.mark.parametrize(("ranks", "micro_batches"), [(4, 4), (4, 8), (8, 16)])
def test_chimera_waits_where_the_paper_does(ranks: int, micro_batches: int) -> None:
    """Backwards of as long as forwards: P - 2 ops of each rank are bubbles, however many units; P micro-batches at most
    and P / 2 + 1 at least are kept."""
    _, stages = trial(ranks, micro_batches, micro_batches, "bidirectional", profile="uniform:f=10,b=5,w=5", hop=0.0)
    costs = whole(stages)
    timeline = timed(costs, BASELINES["chimera"].order(costs))
    assert timeline is not None
    assert timeline.step_s == 20 * micro_batches + 10 * (ranks - 2)
    kept = peak_bytes(costs, timeline.program) / costs.stash_bytes[:ranks]
    assert (kept.min(), kept.max()) == (ranks // 2 + 1, ranks)


@pytest.mark.parametrize(("ranks", "micro_batches"), [(4, 8), (4, 16), (8, 16), (8, 32)])
def test_dualpipe_keeps_one_more_micro_batch_than_there_are_ranks(ranks: int, micro_batches: int) -> None:
    """As its authors say; with equal ops and no cells P / 2 - 1 of them are bubbles."""
    _, stages = trial(ranks, micro_batches, micro_batches, "bidirectional", **EVEN)
    timeline = timed(stages, BASELINES["dualpipe"].order(stages))
    assert timeline is not None
    assert timeline.step_s == 30 * micro_batches + 10 * (ranks // 2 - 1)
    assert (peak_bytes(stages, timeline.program) == (ranks + 1) * stages.stash_bytes[0]).all()
