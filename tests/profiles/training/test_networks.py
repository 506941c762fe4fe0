"""The shipped networks: published parameter counts, sizes that follow the batch, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.devices import named_device
from gapless.profiles.training import networks
from gapless.profiles.training.graph import TrainingGraph

PARAMETERS = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "vgg16": 138_357_544,
    "mobilenet_v2": 3_504_872,
    "googlenet": 13_004_888,  # with both auxiliary classifiers
    "unet": 17_267_393,
    "unet_3d": 4_081_267,
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
    "gpt2_small": 124_439_808,
}


def parameters(graph: TrainingGraph) -> int:
    """Number of parameters, of each of which a gradient is made."""
    return (graph.backward[-1].fixed_bytes - graph.fixed_bytes) // 4


def test_every_network_has_a_published_parameter_count_here() -> None:
    assert networks.network_names() == sorted(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_gradients_count_the_published_parameters(name: str) -> None:
    assert parameters(networks.build(name, batch=2)) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients_have_all_bytes_and_all_time_of_the_backward_pass(name: str) -> None:
    graph, gradients = networks.build_with_gradients(name, batch=2)
    assert graph == networks.build(name, batch=2)
    assert sum(gradient.size_bytes for gradient in gradients) == 4 * PARAMETERS[name]
    assert len({gradient.name for gradient in gradients}) == len(gradients)
    backward_s = sum(node.variants[0].implementations[0].duration_s for node in graph.backward)
    assert sum(gradient.backward_s for gradient in gradients) == pytest.approx(backward_s, rel=1e-9)


def test_shared_table_is_ready_after_its_last_use() -> None:
    _, gradients = networks.build_with_gradients("gpt2_small", batch=2)
    assert gradients[-1].name == "wte.weight"
    assert gradients[-1].size_bytes == 4 * 50257 * 768


@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes_are_proportional_to_the_batch(name: str) -> None:
    two, six = networks.build(name, batch=2), networks.build(name, batch=6)
    np.testing.assert_array_equal(3 * two.output_bytes, six.output_bytes)
    np.testing.assert_array_equal(3 * two.gradient_bytes, six.gradient_bytes)
    assert [node.inputs for node in two.forward] == [node.inputs for node in six.forward]
    one_image_bytes = (six.fixed_bytes - two.fixed_bytes) // 4
    assert parameters(two) * 4 <= two.fixed_bytes - 2 * one_image_bytes < parameters(two) * 4 * 1.02


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_operator_takes_time_and_less_on_a_faster_device(name: str) -> None:
    slow, fast = networks.build(name, 4, "p100"), networks.build(name, 4, named_device("h100"))
    for before, after in zip(slow.forward, fast.forward, strict=True):
        if before.op not in ("loss", "flatten"):
            assert 0 < after.implementations[0].duration_s < before.implementations[0].duration_s
            assert after.implementations[0].workspace_bytes == before.implementations[0].workspace_bytes


def test_googlenet_has_the_size_of_the_reference_problem() -> None:
    """MONeT's solver logs tell 216 nodes up to the loss, 290 with intermediates, and 279 backward nodes."""
    graph = networks.build("googlenet", batch=2)
    assert len(graph.forward) == 290
    assert sum(node.creator is None for node in graph.forward) == 216
    assert len(graph.backward) == 279


def test_input_size_is_free() -> None:
    half, full = networks.build("resnet50", 2, input_size=112), networks.build("resnet50", 2, input_size=(224, 224))
    assert 4 * half.forward[0].output_bytes == full.forward[0].output_bytes
    assert parameters(half) == parameters(full)
    tokens = networks.build("gpt2_small", 1, input_size=256)
    attention = next(node for node in tokens.forward if node.op == "softmax")
    assert attention.output_bytes == 4 * 12 * 256 * 256


def test_odd_sizes_come_back_to_their_own_size_in_a_decoder() -> None:
    graph = networks.build("unet", 1, input_size=(101, 75))
    assert graph.forward[-2].output_bytes == 4 * 101 * 75


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet", 1), r"network: must be one of bert_base, .*, got 'resnet'; did you mean 'resnet50'\?"),
        (("resnet50", 0), r"network 'resnet50': batch must be >= 1, got 0"),
        (("resnet50", 1, "p10"), r"device: must be one of p100, v100, a100, h100, got 'p10'; did you mean 'p100'\?"),
        (("resnet50", 1, "p100", (224,)), r"network 'resnet50': input_size must be 2 whole numbers >= 1, got \(224,\)"),
        (("bert_base", 1, "p100", 513), r"network 'bert_base': input_size must be at most 512 tokens, got 513"),
        (("unet", 1, "p100", 8), r"network 'unet': max_pool: sizes must be >= 1, got \(1, 512, 0, 0\)"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        networks.build(*arguments)
