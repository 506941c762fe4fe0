"""Captured training graphs, and their profiles.

Without torch these tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch_models import Gpt, cases

from gapless.errors import InputError
from gapless.profiles.training.graph_file import read_training_graph, write_training_graph
from gapless.torch.capture.graph import capture
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.timing import profile


@pytest.fixture(scope="module")
def gpt() -> CapturedStep:
    return capture(*cases()["gpt"], name="gpt")


@pytest.fixture(scope="module")
def resnet() -> CapturedStep:
    return capture(*cases()["resnet"], name="resnet")


def test_views_are_no_nodes(gpt: CapturedStep) -> None:
    operators = {node.op for node in gpt.graph.forward} | {node.op for node in gpt.graph.backward}
    assert not operators & {"aten.view.default", "aten.t.default", "aten.permute.default", "aten.unbind.int"}


def test_outputs_count_the_bytes_of_their_memory(gpt: CapturedStep) -> None:
    size = {node.name: node.output_bytes for node in gpt.graph.forward}
    assert size["addmm"] == 4 * 16 * 96 * 4  # query, key and value are views of it
    assert size["_log_softmax"] == 4 * 16 * 64 * 4


def test_masks_and_statistics_are_intermediates_of_their_operator(gpt: CapturedStep) -> None:
    by_name = {node.name: node for node in gpt.graph.forward}
    mask, statistics = by_name["native_dropout.1"], by_name["native_layer_norm.1"]
    assert gpt.graph.forward[mask.creator or 0].name == "native_dropout"
    assert mask.output_bytes == 4 * 16 * 32
    assert statistics.output_bytes == 2 * 4 * 4 * 16


def test_backward_nodes_belong_to_the_operators_of_their_sequence_number(gpt: CapturedStep) -> None:
    graph = gpt.graph
    pairs = {node.op: graph.forward[node.forward].op for node in graph.backward}
    assert pairs["aten.gelu_backward.default"] == "aten.gelu.default"
    assert pairs["aten.native_layer_norm_backward.default"] == "aten.native_layer_norm.default"
    assert pairs["dropout_backward"] == "dropout"


def test_gradients_of_parameters_grow_to_their_bytes(gpt: CapturedStep) -> None:
    model = cases()["gpt"][0]
    bytes_of_all = sum(4 * its.numel() for its in model.parameters())  # the tied weight once
    assert gpt.graph.backward[-1].fixed_bytes - gpt.graph.fixed_bytes == bytes_of_all


def test_dropout_may_be_redrawn_without_its_mask(gpt: CapturedStep) -> None:
    (node, *_) = [node for node in gpt.graph.backward if node.op == "dropout_backward"]
    assert [variant.name for variant in node.variants] == ["", "redrawn"]
    assert len(node.variants[0].needs) == 1
    assert node.variants[1].needs == ()


@pytest.mark.thorough
def test_relu_before_pooling_may_keep_bits(resnet: CapturedStep) -> None:
    offered = [node for node in resnet.graph.backward if "1-bit mask" in [its.name for its in node.variants]]
    assert offered
    bits = resnet.graph.forward[offered[-1].variants[1].needs[0]]
    output = resnet.graph.forward[bits.creator or 0]
    assert bits.output_bytes == output.output_bytes // 32


def test_max_pool_keeps_eight_bytes_or_one_for_each_maximum(resnet: CapturedStep) -> None:
    (node,) = [node for node in resnet.graph.backward if node.op == "max_pool_backward"]
    assert [variant.name for variant in node.variants] == ["", "places in bytes"]
    places, small = (resnet.graph.forward[variant.needs[0]] for variant in node.variants)
    assert all(len(variant.needs) == 1 for variant in node.variants), "neither reads the input"
    assert places.creator == small.creator
    assert places.output_bytes == 8 * small.output_bytes


def test_relu_may_write_over_its_input(resnet: CapturedStep) -> None:
    relus = [node for node in resnet.graph.forward if node.op == "aten.relu.default"]
    assert relus
    assert all(node.overwrites is not None and node.in_place for node in relus)


def test_batch_norms_new_statistics_are_held_all_along(resnet: CapturedStep) -> None:
    model = cases()["resnet"][0]
    updated = sum(its.numel() * its.element_size() for its in model.buffers())
    assert resnet.graph.fixed_bytes >= updated


def test_captured_graph_is_kept_by_its_file(gpt: CapturedStep, tmp_path: Path) -> None:
    write_training_graph(tmp_path / "graph.json", gpt.graph)
    assert read_training_graph(tmp_path / "graph.json") == gpt.graph


def test_loss_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(InputError, match=r"the loss must be one scalar tensor, got shape \(3, 2\)"):
        capture(nn.Linear(4, 2), (torch.randn(3, 4),))


def test_inputs_that_are_no_tensors_are_refused() -> None:
    with pytest.raises(InputError, match="inputs and targets must be tensors, got int"):
        capture(nn.Linear(4, 2), (3,))


# -- profiles ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_profile_times_every_large_operator_and_counts_workspace(tmp_path: Path) -> None:
    model, (word, target) = Gpt(width=128), cases()["gpt"][1]
    step = profile(capture(model, (word, target)), repeats=2)
    times = {node.op: node.implementations[0].duration_s for node in step.graph.forward}
    assert times["aten.addmm.default"] > 0
    assert "timed on cpu" in step.graph.source
    assert all(impl.workspace_bytes >= 0 for node in step.graph.forward for impl in node.implementations)


@pytest.mark.thorough
def test_cache_makes_a_second_profile_equal(gpt: CapturedStep, tmp_path: Path) -> None:
    cache = tmp_path / "ops.json"
    first = profile(gpt, cache, repeats=1)
    assert profile(gpt, cache, repeats=1).graph == first.graph
    (entries,) = json.loads(cache.read_text())["ops"].values()
    assert any(key.startswith("aten.addmm.default(float32[96]/[1], ") for key in entries)
    assert any(key.startswith("dropout(float32") for key in entries)
    assert not any(" at 0x" in key for key in entries)  # an address is another in the next process


def test_foreign_cache_is_refused(gpt: CapturedStep, tmp_path: Path) -> None:
    cache = tmp_path / "ops.json"
    cache.write_text("{}")
    with pytest.raises(InputError, match=r"ops\.json: must be a gapless\.torch-ops file of version 2"):
        profile(gpt, cache)
