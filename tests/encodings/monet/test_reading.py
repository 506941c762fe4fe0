"""Schedules read back as decisions, decisions carried over to another graph, and the framework's own step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from examples import examples
from hand_training import MASK, RELU, tiny
from hypothesis import given
from hypothesis import strategies as st
from random_training import executable_decisions, training_graphs

from gapless.checker import check
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.reading import decisions_of
from gapless.encodings.monet.retention import fit_implementations
from gapless.encodings.monet.study.ablation import ABLATIONS, ablation, carry_over
from gapless.encodings.monet.study.baselines import eager, store_all
from gapless.errors import InputError
from gapless.profiles.training.graph import Implementation, TrainingGraph

GIB = 2**30
FULL = "inplace_conv_multiway_newnode"
PLENTY = 10**15


@examples(100)
@given(st.data())
def test_schedule_read_back_takes_as_long_and_holds_no_more(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    schedule = to_schedule(graph, data.draw(executable_decisions(graph)))
    read = decisions_of(graph, schedule)
    before, after = check(schedule), check(to_schedule(graph, read))
    assert evaluate(graph, read).faults == ()
    assert after.valid, after.summary()
    assert after.makespan_s == pytest.approx(before.makespan_s, rel=1e-12)
    assert after.peak_bytes[0] <= before.peak_bytes[0]


def test_schedule_of_another_graph_is_refused() -> None:
    graph, schedule = tiny(), to_schedule(tiny(), store_all(tiny()))
    first, last = graph.forward[0], graph.backward[-1]
    slower = replace(graph, forward=(replace(first, implementations=(Implementation(9.0),)), *graph.forward[1:]))
    with pytest.raises(InputError, match=r"the schedule is of another graph: 'conv.0' can't run in 2.0 s"):
        decisions_of(slower, schedule)
    elsewhere = replace(last, variants=(replace(last.variants[0], needs=(RELU,)),))
    with pytest.raises(InputError, match=r"backward node 'conv_param.8' can't run so"):
        decisions_of(replace(graph, backward=(*graph.backward[:-1], elsewhere)), schedule)


@examples(60)
@given(st.data(), st.sampled_from(sorted(ABLATIONS)))
def test_decisions_of_an_ablation_can_be_executed_on_the_whole_graph(data: st.DataObject, name: str) -> None:
    graph = data.draw(training_graphs())
    part = ablation(graph, name)
    decisions = data.draw(executable_decisions(part))
    carried = fit_implementations(graph, carry_over(part, decisions, graph), PLENTY)
    found, before = evaluate(graph, carried), evaluate(part, decisions)
    assert found.faults == ()
    assert found.cost_s <= before.cost_s + 1e-12  # the whole graph has all implementations that the part has


def test_decisions_are_carried_over_to_like_operators_only() -> None:
    graph = tiny()
    without = ablation(graph, "output")
    carried = carry_over(without, store_all(without), graph)
    assert not carried.recomputed[:, MASK].any()
    from_mask = replace(graph.backward[2], variants=graph.backward[2].variants[2:])
    lacking = replace(graph, backward=(*graph.backward[:2], from_mask, graph.backward[3]))
    with pytest.raises(InputError, match=r"backward node 'relu_ip.7' has no variant that needs \[0\]"):
        carry_over(without, store_all(without), lacking)
    with pytest.raises(InputError, match=r"'tiny' has no node like 2, 'mask.2', of 'tiny'"):
        carry_over(graph, store_all(graph), without)


@pytest.mark.parametrize("mode", ["inplace_normal", "inplace_newnode", "inplace_multiway", "inplace_conv_normal"])
@pytest.mark.parametrize("model", ["vgg16_176", "un_11"])
def test_measured_ablations_are_carried_over_to_the_full_file(
    measured: Callable[[str], TrainingGraph], model: str, mode: str
) -> None:
    part, graph = measured(f"{model}_{mode}"), measured(f"{model}_{FULL}")
    decisions = fit_implementations(graph, carry_over(part, store_all(part), graph), 32 * GIB)
    assert check(to_schedule(graph, decisions, 32 * GIB)).valid


@pytest.mark.parametrize(("model", "cost"), [("vgg16_176", 124_883), ("un_11", 107_748), ("resnet50_184", 87_965)])
def test_framework_keeps_everything_on_the_device_that_it_was_measured_on(
    measured: Callable[[str], TrainingGraph], model: str, cost: int
) -> None:
    graph = measured(f"{model}_{FULL}")
    decisions = eager(graph, 16 * GIB)
    found = evaluate(graph, decisions)
    assert not decisions.recomputed[1:].any()
    assert found.peak_bytes <= 16 * GIB
    assert round(found.cost_s * 1e5) == cost  # all that is there is the profile: the number guards the rule
