"""Lowering: the schedule costs what the evaluator says, replays clean, holds no more than the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import examples
from hand_training import CONV, CONV_2, LOSS, MASK, RELU, chain, tiny
from hypothesis import given
from hypothesis import strategies as st
from random_training import executable_decisions, training_graphs

from gapless.checker import Rule, check
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.search.retention import fit_implementations, tightened
from gapless.encodings.monet.study.ablation import ABLATIONS, ablation, carry_over
from gapless.encodings.monet.study.baselines import eager, just_in_time, store_all
from gapless.errors import InputError
from gapless.profiles.training.graph import TrainingGraph

BROKEN = "mobilenet_v2_272_inplace_normal_8.00"
INPUT, OUTPUT, INTERMEDIATE = (np.array([0, 0, variant, 0]) for variant in range(3))


def kept(*nodes: int) -> Any:
    mask = np.zeros(5, dtype=np.bool_)
    mask[list(nodes)] = True
    return mask


def names(schedule: Any) -> list[str]:
    return [schedule.graph.ops[op].name for op in schedule.op.tolist()]


def test_a_step_that_stores_everything_runs_all_nodes_in_order() -> None:
    schedule = to_schedule(tiny(), store_all(tiny()))
    assert names(schedule) == [
        *("conv.0", "relu.1", "conv.3", "loss.4"),
        *("conv_param.5", "conv_ip.6", "relu_ip.7", "conv_param.8"),
    ]
    report = check(schedule)
    assert report.valid, report.summary()
    assert report.makespan_s == 15.0
    # The loss: 100 fixed, both activations that the backward pass needs, the loss's input, the loss.
    assert report.peak_bytes == (100 + 40 + 40 + 30 + 1,)


def test_a_budget_below_the_peak_is_memory_exceeded() -> None:
    assert check(to_schedule(tiny(), store_all(tiny()), 211)).valid
    assert set(check(to_schedule(tiny(), store_all(tiny()), 210)).violation_counts) == {Rule.MEMORY_EXCEEDED}


def test_a_tensor_goes_at_its_last_use_although_it_is_stored_to_the_end_of_the_stage() -> None:
    schedule = to_schedule(tiny(), store_all(tiny()))
    freed = {name: schedule.event(row).frees for row, name in enumerate(names(schedule))}
    assert (1 + RELU, 0) in freed["conv_param.5"]
    assert freed["relu_ip.7"][0] == (1 + CONV, 0)


def test_an_op_in_place_overwrites_its_input_with_the_workspace_that_is_left() -> None:
    decisions = just_in_time(tiny(), kept(RELU), OUTPUT)
    schedule = to_schedule(tiny(), decisions)
    relu = next(op for op in schedule.graph.ops if op.name == "relu.1")
    assert relu.implementations[0].overwrites == (1 + CONV,)
    assert relu.implementations[0].workspace_bytes == 0
    assert check(schedule).makespan_s == 14.75


def test_an_intermediate_follows_its_creator_and_reads_its_output() -> None:
    schedule = to_schedule(tiny(), just_in_time(tiny(), kept(RELU, MASK), INTERMEDIATE))
    assert names(schedule)[:3] == ["conv.0", "relu.1", "mask.2"]
    mask = next(op for op in schedule.graph.ops if op.name == "mask.2")
    assert mask.inputs == (1 + RELU,)
    assert check(schedule).valid


def test_a_node_that_runs_again_is_the_same_op_in_another_implementation() -> None:
    graph = tiny()
    graph = replace(graph, forward=tuple(replace(node, again=(*node.implementations,)) for node in graph.forward))
    schedule = to_schedule(graph, just_in_time(graph, kept(CONV), INPUT))
    again = [op for op in schedule.graph.ops if op.name == "relu.1"]
    assert [impl.name for impl in again[0].implementations] == ["", "again"]
    assert names(schedule).count("relu.1") == 2


def test_decisions_that_drop_what_is_needed_are_input_missing_in_the_replay() -> None:
    decisions = store_all(tiny())
    stored = decisions.stored.copy()
    stored[1, CONV] = stored[2:, CONV] = False
    report = check(to_schedule(tiny(), replace(decisions, stored=stored)))
    assert set(report.violation_counts) == {Rule.INPUT_MISSING}


def test_a_backward_node_that_is_left_out_is_required_missing() -> None:
    schedule = to_schedule(tiny(), store_all(tiny()))
    rows = np.arange(len(schedule) - 1)
    parts = {
        name: getattr(schedule, name)[rows]
        for name in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")
    }
    lists = {name: getattr(schedule, name).take(rows) for name in ("moves", "freed_tensor", "freed_device")}
    assert Rule.REQUIRED_MISSING in check(replace(schedule, **parts, **lists)).violation_counts


def test_a_loss_that_is_run_again_takes_its_time_and_no_memory() -> None:
    graph = tiny()
    loss = replace(
        graph.forward[LOSS], implementations=(replace(graph.forward[LOSS].implementations[0], duration_s=0.5),)
    )
    graph = replace(graph, forward=(*graph.forward[:LOSS], loss))
    decisions = store_all(graph)
    recomputed, stored = decisions.recomputed.copy(), decisions.stored.copy()
    stored[1, CONV_2] = recomputed[1, LOSS] = True
    twice = replace(decisions, recomputed=recomputed, stored=stored)
    report = check(to_schedule(graph, twice))
    assert report.valid, report.summary()
    assert report.makespan_s == evaluate(graph, twice).cost_s == 16.0


def test_a_view_of_a_tensor_that_is_kept_is_charged_in_full() -> None:
    graph = chain(3)
    view = replace(
        graph.forward[1], implementations=(replace(graph.forward[1].implementations[0], workspace_bytes=-10),)
    )
    graph = replace(graph, forward=(graph.forward[0], view, *graph.forward[2:]))
    op = to_schedule(graph, store_all(graph)).graph.ops[1]
    assert op.implementations[0].workspace_bytes == 0
    assert op.implementations[0].overwrites == ()


def test_decisions_of_another_graph_are_refused() -> None:
    with pytest.raises(InputError, match="stored must have shape"):
        to_schedule(chain(3), store_all(tiny()))


@given(st.data())
def test_any_executable_decisions_replay_clean_at_their_cost(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    decisions = data.draw(executable_decisions(graph))
    found = evaluate(graph, decisions)
    assert not found.faults
    report = check(to_schedule(graph, decisions))
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(found.cost_s, rel=1e-9)


@given(st.data())
def test_the_replay_holds_no_more_than_the_rows_of_the_model(data: st.DataObject) -> None:
    """But for an intermediate that is made in place: the model gives back bytes there that are back already."""
    graph = data.draw(training_graphs())
    decisions = data.draw(executable_decisions(graph))
    beside = [node for node, its in enumerate(graph.forward) if its.creator is not None]
    in_place = decisions.in_place.copy()
    for node in beside:
        in_place[:, [node, graph.forward[node].creator]] = False
    decisions = replace(decisions, in_place=in_place)
    budget_bytes = evaluate(graph, decisions).peak_bytes
    report = check(to_schedule(graph, decisions, budget_bytes))
    assert report.valid, report.summary()
    assert report.peak_bytes[0] <= budget_bytes


@pytest.mark.thorough(but=("un_11",))
def test_reference_schedules_replay_clean_within_their_budget(
    reference: Callable[[str], Any], reference_name: str
) -> None:
    its = reference(reference_name)
    report = check(to_schedule(its.graph, its.decisions, its.budget_bytes))
    if reference_name == BROKEN:
        assert set(report.violation_counts) == {Rule.INPUT_MISSING}
        return
    found = evaluate(its.graph, its.decisions)
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(found.cost_s, rel=1e-9)
    assert report.peak_bytes[0] <= found.peak_bytes


GIB = 2**30
FULL = "inplace_conv_multiway_newnode"
PLENTY = 10**15


@examples(100)
@given(st.data())
def test_decisions_that_keep_only_what_is_read_have_the_same_schedule(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    decisions = data.draw(executable_decisions(graph))
    tight = tightened(graph, decisions)
    assert evaluate(graph, tight).faults == ()
    assert not (tight.stored & ~decisions.stored).any()
    before, after = to_schedule(graph, decisions), to_schedule(graph, tight)
    assert list(before.events()) == list(after.events())
    assert before.graph.ops == after.graph.ops


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
