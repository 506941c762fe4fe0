"""The evaluator: costs and memory rows counted by hand, every fault, and the objectives of the reference schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_training import CONV, CONV_2, MASK, RELU, tiny

from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.study.baselines import just_in_time, store_all

BROKEN = "mobilenet_v2_272_inplace_normal_8.00"
"""Its file stores tensors that were never there: 21 backward nodes miss what they need."""

OTHER_PROFILE = {
    **{f"resnet50_184_inplace_multiway_{budget}.00": 0.002 for budget in range(5, 10)},
    **{f"resnet50_184_inplace_newnode_{budget}.00": 0.001 for budget in range(5, 8)},
}
"""Solved with times of another profiling run than the instance holds: objectives differ by up to this share."""

ABOVE_BUDGET = "resnet50_184_inplace_multiway_7.00"
"""With the instance's workspaces one row is 3 MB above the budget; the replay is below."""


def only(*nodes: int) -> Any:
    mask = np.zeros(5, dtype=np.bool_)
    mask[list(nodes)] = True
    return mask


def test_storing_everything_has_the_cost_and_the_rows_counted_by_hand() -> None:
    found = evaluate(tiny(), store_all(tiny()))
    assert found.faults == ()
    assert (found.forward_s, found.backward_s, found.recompute_s) == (6.0, 9.0, 0.0)
    assert found.forward_bytes.tolist() == [100 + 50 + 40, 100 + 40 + 40, 0, 100 + 30 + 80, 100 + 1 + 30 + 80]
    assert found.backward_bytes.tolist() == [110 + 1 + 80, 110 + 40 + 1 + 40, 110 - 40 + 40 + 40 + 40, 120 + 40]
    assert found.peak_bytes == 211


def test_the_small_algorithm_trades_time_for_workspace() -> None:
    decisions = store_all(tiny())
    impl = decisions.forward_implementation.copy()
    impl[0, CONV] = 1
    found = evaluate(tiny(), replace(decisions, forward_implementation=impl))
    assert found.forward_s == 8.0
    assert found.forward_bytes[CONV] == 140


def test_in_place_gives_the_input_back_and_has_its_own_time() -> None:
    found = evaluate(tiny(), just_in_time(tiny(), only(RELU), np.array([0, 0, 1, 0])))
    assert found.forward_s == 5.75
    assert found.forward_bytes[RELU] == 100 - 40 + 40 + 40


def test_a_recomputation_holds_what_is_kept_what_it_reads_and_the_gradients() -> None:
    found = evaluate(tiny(), just_in_time(tiny(), only(CONV), np.zeros(4, dtype=np.int64)))
    assert found.recompute_s == 1.0
    assert found.recompute_bytes[1].tolist() == [0, 110 + 1 + 40 + 40, 0, 0, 0]


def test_an_intermediate_costs_what_it_adds_where_it_is_made() -> None:
    found = evaluate(tiny(), just_in_time(tiny(), only(RELU, MASK), np.array([0, 0, 2, 0])))
    assert found.forward_s == 2.0 + 0.75 + 0.25 + 3.0
    assert found.faults == ()


def test_a_forward_node_that_is_left_out_is_a_fault() -> None:
    decisions = store_all(tiny())
    recomputed = decisions.recomputed.copy()
    recomputed[0, CONV_2] = False
    faults = evaluate(tiny(), replace(decisions, recomputed=recomputed)).faults
    assert "forward pass: node 3 'conv.3' must run" in faults


def test_storing_what_was_dropped_is_a_fault() -> None:
    decisions = store_all(tiny())
    stored = decisions.stored.copy()
    stored[1, CONV] = False
    faults = evaluate(tiny(), replace(decisions, stored=stored)).faults
    assert "stage 2: node 0 is stored but was not there" in faults
    assert "stage 3: backward misses 0" in faults


def test_recomputing_without_the_input_is_a_fault() -> None:
    decisions = just_in_time(tiny(), only(CONV), np.zeros(4, dtype=np.int64))
    stored = decisions.stored.copy()
    stored[1:, CONV] = False
    assert "stage 1: node 1 runs without its input 0" in evaluate(tiny(), replace(decisions, stored=stored)).faults


def test_an_intermediate_without_its_creator_is_a_fault() -> None:
    decisions = store_all(tiny())
    recomputed = decisions.recomputed.copy()
    recomputed[3, MASK] = True
    faults = evaluate(tiny(), replace(decisions, recomputed=recomputed)).faults
    assert "stage 3: node 2 runs without its creator 1" in faults


def test_needing_what_was_overwritten_is_a_fault() -> None:
    decisions = store_all(tiny())
    in_place = decisions.in_place.copy()
    in_place[0, RELU] = True
    faults = evaluate(tiny(), replace(decisions, in_place=in_place)).faults
    assert "stage 1: node 0 is stored but was not there" in faults


@pytest.mark.thorough(but=("un_11",))
def test_reference_schedules_cost_what_their_files_say(reference: Callable[[str], Any], reference_name: str) -> None:
    its = reference(reference_name)
    found = evaluate(its.graph, its.decisions)
    if reference_name == BROKEN:
        assert len(found.faults) == 21
        return
    assert found.faults == ()
    share = OTHER_PROFILE.get(reference_name)
    if share is None:
        assert round(found.cost_s * 1e5) == its.objective
    else:
        assert found.cost_s * 1e5 == pytest.approx(its.objective, rel=share)
        assert round(found.cost_s * 1e5) != its.objective, "the profile fits now: take it off the list"
    spare_bytes = its.budget_bytes - found.peak_bytes
    assert spare_bytes >= (-4e6 if reference_name == ABOVE_BUDGET else 0)
