"""The simple rules: what each keeps and recomputes, and that all their decisions can be executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from hand_training import CONV, MASK, RELU, chain, tiny
from hypothesis import given
from hypothesis import strategies as st
from random_training import training_graphs

from gapless.checker import check
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.search.retention import fit_implementations
from gapless.encodings.monet.study.baselines import (
    greedy_eviction,
    just_in_time,
    lean,
    lean_variants,
    revolve,
    sqrt_checkpoints,
    store_all,
)
from gapless.errors import InputError
from gapless.profiles.training.graph import TrainingGraph

DEFAULTS = np.zeros(4, dtype=np.int64)
MODELS = [
    *("vgg16_176_inplace_conv_multiway_newnode", "un_11_inplace_conv_multiway_newnode"),
    *("mobilenet_v2_272_inplace_conv_multiway_newnode", "resnet50_184_inplace_conv_multiway_newnode"),
]
GB = 2**30


def only(*nodes: int, count: int = 5) -> Any:
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(nodes)] = True
    return mask


def again(decisions: Any) -> list[list[int]]:
    """The nodes that run in each stage after the forward pass."""
    return [np.flatnonzero(row).tolist() for row in decisions.recomputed[1:]]


def test_just_in_time_recomputes_at_the_first_need_and_keeps_to_the_last() -> None:
    decisions = just_in_time(chain(5), only(0, count=6), np.zeros(5, dtype=np.int64))
    assert again(decisions) == [[1, 2, 3], [], [], [], []]
    assert [np.flatnonzero(row).tolist() for row in decisions.stored] == [[], [0], [0, 1, 2], [0, 1], [0], [], []]


def test_just_in_time_keeps_a_tensor_that_only_recomputation_reads_up_to_there() -> None:
    graph = tiny()
    decisions = just_in_time(graph, only(CONV), np.array([0, 0, 1, 0]))
    assert again(decisions) == [[RELU], [], [], []]
    assert decisions.stored[:, CONV].tolist() == [False, True, False, False, False, False]


def test_just_in_time_keeps_nothing_that_nobody_reads() -> None:
    decisions = just_in_time(tiny(), only(0, 1, 2, 3), np.array([0, 0, 1, 0]))
    assert np.flatnonzero(decisions.stored[1]).tolist() == [RELU]
    assert not decisions.recomputed[0, MASK]


def test_just_in_time_makes_an_intermediate_along_with_its_creator() -> None:
    decisions = just_in_time(tiny(), only(CONV), np.array([0, 0, 2, 0]))
    assert again(decisions) == [[RELU, MASK], [], [], []]
    assert decisions.stored[2:4, MASK].all()


def test_just_in_time_runs_the_creator_again_for_an_intermediate_alone() -> None:
    decisions = just_in_time(tiny(), only(CONV, RELU), np.array([0, 0, 2, 0]))
    assert again(decisions) == [[], [], [RELU, MASK], []]
    assert decisions.in_place[3, [RELU, MASK]].all()


def test_just_in_time_runs_in_place_only_where_the_input_is_not_needed() -> None:
    assert just_in_time(tiny(), only(RELU), np.array([0, 0, 1, 0])).in_place[0, RELU]
    assert not just_in_time(tiny(), only(CONV, RELU), DEFAULTS).in_place.any()


def test_a_kept_set_of_another_graph_is_refused() -> None:
    with pytest.raises(InputError, match="kept flag for 5 nodes"):
        just_in_time(tiny(), only(0, count=4), DEFAULTS)


def test_fit_implementations_takes_the_fastest_that_fits() -> None:
    decisions = store_all(tiny())
    assert fit_implementations(tiny(), decisions, 190).forward_implementation[0, CONV] == 0
    assert fit_implementations(tiny(), decisions, 189).forward_implementation[0, CONV] == 1
    assert (
        fit_implementations(tiny(), fit_implementations(tiny(), decisions, 189), 190).forward_implementation[0, CONV]
        == 0
    )


def test_store_all_recomputes_nothing_and_keeps_what_the_backward_pass_needs() -> None:
    decisions = store_all(tiny())
    assert again(decisions) == [[], [], [], []]
    assert np.flatnonzero(decisions.stored[1]).tolist() == [CONV, RELU]


def test_lean_uses_what_is_kept_anyway_before_it_makes_an_intermediate() -> None:
    assert lean_variants(tiny()).tolist() == [0, 0, 1, 0]


def test_lean_makes_an_intermediate_where_neither_input_nor_output_is_kept() -> None:
    graph = tiny()
    free = replace(graph.backward[0], variants=(replace(graph.backward[0].variants[0], needs=()),))
    graph = replace(graph, backward=(free, *graph.backward[1:]))
    decisions = lean(graph)
    assert decisions.variant[2] == 2
    assert np.flatnonzero(decisions.stored[1]).tolist() == [MASK]
    assert decisions.in_place[0, RELU]
    assert again(decisions) == [[], [], [], []]


def test_sqrt_checkpoints_keeps_the_borders_of_about_sqrt_n_segments() -> None:
    decisions = sqrt_checkpoints(chain(16))
    assert np.flatnonzero(decisions.stored[1]).tolist() == [3, 7, 11, 12, 13, 14]
    assert decisions.recomputed.sum(axis=0).max() == 2
    assert evaluate(chain(16), decisions).peak_bytes < evaluate(chain(16), store_all(chain(16))).peak_bytes


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 30])
@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3, 5])
def test_revolve_recomputes_as_little_as_griewank_proves(length: int, checkpoints: int) -> None:
    graph = chain(length)
    decisions = revolve(graph, checkpoints)
    assert evaluate(graph, decisions).faults == ()
    held = checkpoints + 1  # Griewank counts the input of the chain as one
    repeats = next(r for r in range(length + 1) if comb(held + r, held) >= length)
    advances = repeats * length - comb(held + repeats, held + 1)
    assert decisions.recomputed[1:].sum() == advances - (length - 1)
    assert decisions.stored.sum(axis=1).max() <= checkpoints + 1


def test_revolve_refuses_a_graph_that_is_not_a_chain() -> None:
    graph = chain(4)
    skip = replace(graph.forward[3], inputs=(1, 2))
    with pytest.raises(InputError, match=r"but 'op\.3' reads op\.1, op\.2"):
        revolve(replace(graph, forward=(*graph.forward[:3], skip, graph.forward[4])))
    with pytest.raises(InputError, match="checkpoints must be >= 0"):
        revolve(graph, -1)


def test_greedy_eviction_drops_the_cheapest_byte_until_it_fits() -> None:
    graph = chain(12)
    everything = evaluate(graph, store_all(graph)).peak_bytes
    costs = []
    for budget_bytes in range(everything, 0, -5):
        decisions = greedy_eviction(graph, budget_bytes)
        if decisions is None:
            break
        found = evaluate(graph, decisions)
        assert found.peak_bytes <= budget_bytes
        costs.append(found.cost_s)
    assert costs[0] == 24.0
    assert len(costs) > 3
    assert costs == sorted(costs)


def test_greedy_eviction_tells_where_it_can_not_fit() -> None:
    assert greedy_eviction(tiny(), 100) is None


RULES: list[Callable[[TrainingGraph], Any]] = [store_all, lean, sqrt_checkpoints]


@pytest.mark.parametrize("rule", RULES)
@given(data=st.data())
def test_rules_give_decisions_that_can_be_executed(rule: Callable[[TrainingGraph], Any], data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    decisions = rule(graph)
    assert evaluate(graph, decisions).faults == ()
    assert check(to_schedule(graph, decisions)).valid


@given(st.data())
def test_just_in_time_can_be_executed_whatever_is_kept(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph.forward), max_size=len(graph.forward))))
    variants = np.array([data.draw(st.integers(0, len(node.variants) - 1)) for node in graph.backward])
    decisions = just_in_time(graph, kept, variants)
    assert evaluate(graph, decisions).faults == ()
    assert not (decisions.stored[1] & ~kept).any()
    assert check(to_schedule(graph, decisions)).valid


@given(st.data())
def test_greedy_eviction_fits_or_says_so(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    full_bytes = evaluate(graph, store_all(graph)).peak_bytes
    budget_bytes = data.draw(st.integers(0, full_bytes))
    decisions = greedy_eviction(graph, budget_bytes)
    if decisions is not None:
        found = evaluate(graph, decisions)
        assert found.faults == ()
        assert found.peak_bytes <= budget_bytes


@pytest.mark.thorough("resnet50", "mobilenet")
@pytest.mark.parametrize("name", MODELS)
def test_rules_work_on_measured_models(measured: Callable[[str], TrainingGraph], name: str) -> None:
    graph = measured(name)
    peaks = {}
    for rule in RULES:
        decisions = rule(graph)
        found = evaluate(graph, decisions)
        assert found.faults == ()
        report = check(to_schedule(graph, decisions))
        assert report.valid, report.summary()
        assert report.makespan_s == pytest.approx(found.cost_s, rel=1e-9)
        peaks[rule] = found.peak_bytes
    assert peaks[lean] < peaks[store_all]
    assert peaks[sqrt_checkpoints] < peaks[store_all]
    fitted = greedy_eviction(graph, 8 * GB)
    assert fitted is not None
    assert check(to_schedule(graph, fitted, 8 * GB)).valid


def test_vgg_is_a_chain_that_revolve_can_take(measured: Callable[[str], TrainingGraph]) -> None:
    graph = measured(MODELS[0])
    assert evaluate(graph, revolve(graph)).faults == ()
