"""The builder and its layers: nodes, dependencies, in-place runs and gradients, on small networks."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.errors import InputError
from gapless.profiles.devices import named_device
from gapless.profiles.training import layers
from gapless.profiles.training.builder import NetworkBuilder, Value
from gapless.profiles.training.graph import BackwardNode, TrainingGraph


@pytest.fixture
def net() -> NetworkBuilder:
    return NetworkBuilder("small", 3, named_device("p100"))


def image(net: NetworkBuilder, channels: int = 4, side: int = 8) -> Value:
    """An image that a convolution made, so that it has a gradient: node 0."""
    return layers.conv(net, net.input(3, side, side), channels, 1)


def steps_of(graph: TrainingGraph, node: int) -> list[BackwardNode]:
    return [step for step in graph.backward if step.forward == node]


def test_convolution_has_a_parameter_gradient_and_then_an_input_gradient(net: NetworkBuilder) -> None:
    graph = net.build(layers.conv(net, image(net), 5, 3, padding=1, bias=True))
    first, second = steps_of(graph, 1)
    assert (first.op, second.op) == ("convolution_param_grad", "convolution_ip_grad")
    assert (first.output_bytes, second.output_bytes) == (0, 4 * 3 * 4 * 64)
    assert [variant.needs for variant in (*first.variants, *second.variants)] == [(0,), ()]
    assert first.gradients == second.gradients == (graph.loss,)
    assert first.fixed_bytes - graph.fixed_bytes == 4 * (5 * 4 * 9 + 5)
    assert second.fixed_bytes == first.fixed_bytes


def test_first_convolution_makes_no_input_gradient(net: NetworkBuilder) -> None:
    graph = net.build(image(net))
    assert [step.variants[0].needs for step in graph.backward] == [(), ()]
    assert graph.backward[1].output_bytes == 0
    assert graph.backward[1].variants[0].implementations[0].duration_s == 0


def test_depthwise_convolution_makes_both_gradients_at_once(net: NetworkBuilder) -> None:
    graph = net.build(layers.conv(net, image(net), 4, 3, padding=1, groups=4))
    (step,) = steps_of(graph, 1)
    assert step.variants[0].needs == (0,)
    assert step.output_bytes == 4 * 3 * 4 * 64
    assert step.fixed_bytes - graph.fixed_bytes == 4 * 4 * 9
    assert len(graph.forward[1].implementations) == 1


def test_relu_runs_over_its_input_and_has_three_backward_variants(net: NetworkBuilder) -> None:
    x = image(net, channels=1, side=3)  # 27 elements: four bytes of bits, the last not full
    graph = net.build(layers.relu(net, x))
    relu, bits = graph.forward[1], graph.forward[2]
    assert (relu.op, relu.overwrites, relu.in_place[0].workspace_bytes) == ("relu_", 0, -4 * 27)
    assert (bits.creator, bits.inputs, bits.overwrites, bits.output_bytes) == (1, (1,), 0, 4)
    assert bits.in_place[0].workspace_bytes == bits.implementations[0].workspace_bytes - 4 * 27
    (step,) = steps_of(graph, 1)
    assert [variant.needs for variant in step.variants] == [(0,), (1,), (2,)]
    assert step.variants[1].implementations[0].workspace_bytes == -4 * 27


def test_relu_whose_input_is_read_later_does_not_run_in_place(net: NetworkBuilder) -> None:
    x = image(net)
    graph = net.build(layers.add(net, layers.relu(net, x), x))
    assert (graph.forward[1].op, graph.forward[1].overwrites, graph.forward[2].overwrites) == ("relu", None, None)


def test_gradients_of_all_users_are_read_and_summed(net: NetworkBuilder) -> None:
    x = image(net)
    graph = net.build(layers.add(net, layers.gelu(net, x), x))
    gelu, add = (steps_of(graph, number)[0] for number in (1, 2))
    assert add.output_bytes == 2 * 4 * 3 * 4 * 64
    assert add.variants[0].needs == ()
    numbers = {id(step): graph.loss + 1 + k for k, step in enumerate(graph.backward)}
    first = steps_of(graph, 0)[0]
    assert first.gradients == (numbers[id(gelu)], numbers[id(add)])
    alone = NetworkBuilder("alone", 3, net.device)
    plain = steps_of(alone.build(layers.gelu(alone, image(alone))), 0)[0]
    assert first.variants[0].implementations[0].duration_s > plain.variants[0].implementations[0].duration_s


def test_batch_norm_is_cheaper_again_and_keeps_running_statistics(net: NetworkBuilder) -> None:
    before = net.build(image(net)).fixed_bytes
    net = NetworkBuilder("small", 3, net.device)
    graph = net.build(layers.batch_norm(net, image(net)))
    node, (step,) = graph.forward[1], steps_of(graph, 1)
    assert node.again[0].duration_s < node.implementations[0].duration_s
    assert graph.fixed_bytes - before == 4 * 4 * 4
    assert step.fixed_bytes - graph.fixed_bytes == 2 * 4 * 4
    assert [variant.needs for variant in step.variants] == [(0,), (1,)]


def test_max_pool_packs_two_positions_a_byte(net: NetworkBuilder) -> None:
    graph = net.build(layers.max_pool(net, image(net, 1, 3), 2, stride=1, padding=1))
    assert graph.forward[1].output_bytes == 4 * 3 * 16
    assert graph.forward[2].output_bytes == 3 * 16 // 2
    assert [variant.needs for variant in steps_of(graph, 1)[0].variants] == [(0,), (2,)]


@pytest.mark.parametrize(("side", "ceil", "expected"), [(112, True, 56), (112, False, 55), (5, True, 2), (4, True, 2)])
def test_max_pool_counts_windows_over_the_edge(net: NetworkBuilder, side: int, ceil: bool, expected: int) -> None:
    x = layers.max_pool(net, image(net, 1, side), 3, stride=2, ceil=ceil)
    assert x.shape == (3, 1, expected, expected)


def test_window_that_would_start_behind_the_input_is_not_counted(net: NetworkBuilder) -> None:
    assert layers.max_pool(net, image(net, 1, 3), 1, stride=3, padding=0, ceil=True).shape[2:] == (1, 1)
    assert layers.max_pool(net, image(net, 1, 4), 2, stride=3, padding=1, ceil=True).shape[2:] == (2, 2)


LAYERS: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    ("hardtanh", {}, [(0,), (1,)]),
    ("gelu", {}, [(0,)]),
    ("softmax", {}, [(1,)]),
    ("tanh", {}, [(1,)]),
    ("dropout", {}, [(1,)]),
    ("dropout", {"keep_mask": True}, [(1,), (2,)]),
    ("layer_norm", {}, [(0,), (1,)]),
    ("group_norm", {"groups": 2}, [(0,), (1,)]),
    ("avg_pool", {"kernel": 2}, [()]),
    ("adaptive_avg_pool", {"extent": 1}, [()]),
    ("upsample", {"extent": 16}, [()]),
    ("flatten", {}, [()]),
    ("first_position", {}, [()]),
]


@pytest.mark.parametrize(("name", "options", "needs"), LAYERS, ids=[f"{case[0]}{case[1]}" for case in LAYERS])
def test_backward_of_a_layer_needs(
    net: NetworkBuilder, name: str, options: dict[str, Any], needs: list[tuple[int, ...]]
) -> None:
    graph = net.build(getattr(layers, name)(net, image(net), **options))
    (step,) = steps_of(graph, 1)
    assert [variant.needs for variant in step.variants] == needs
    assert step.output_bytes == 4 * 3 * 4 * 64


def test_transposed_convolution_enlarges_the_image(net: NetworkBuilder) -> None:
    x = layers.conv_transpose(net, image(net), 6, 2)
    assert x.shape == (3, 6, 16, 16)
    graph = net.build(x)
    first, second = steps_of(graph, 1)
    assert first.fixed_bytes - graph.fixed_bytes == 4 * (4 * 6 * 4 + 6)
    assert first.variants[0].needs == (0,)
    assert second.output_bytes == 4 * 3 * 4 * 64


def test_attention_product_needs_both_inputs(net: NetworkBuilder) -> None:
    tokens = layers.embedding(net, net.input(5, element_bytes=8), 11, 6)
    left, right = layers.linear(net, tokens, 6), layers.linear(net, tokens, 6)
    scores = layers.matmul(net, left, right, transposed=True)
    assert scores.shape == (3, 5, 5)
    graph = net.build(scores)
    (step,) = steps_of(graph, 3)
    assert step.variants[0].needs == (1, 2)
    assert step.output_bytes == 2 * 4 * 3 * 5 * 6
    assert graph.forward[3].implementations[0].duration_s < step.variants[0].implementations[0].duration_s


def test_tied_table_is_counted_once(net: NetworkBuilder) -> None:
    x = layers.embedding(net, net.input(5, element_bytes=8), 11, 6, tied=True)
    graph = net.build(layers.linear(net, x, 11, bias=False, tied=True))
    assert graph.fixed_bytes == 3 * 5 * 8 + 4 * 66
    assert graph.backward[0].fixed_bytes == graph.backward[-1].fixed_bytes == graph.fixed_bytes + 4 * 66
    assert graph.backward[-1].variants[0].implementations[0].workspace_bytes == 4 * 66


def test_loss_is_last_and_free_over_all_outputs(net: NetworkBuilder) -> None:
    x = image(net)
    graph = net.build(layers.gelu(net, x), layers.tanh(net, x))
    loss = graph.forward[graph.loss]
    assert (loss.op, loss.inputs, loss.implementations[0].duration_s) == ("loss", (1, 2), 0)
    assert loss.output_bytes == 2 * 4 * 3 * 4 * 64


def test_mistakes_are_named(net: NetworkBuilder) -> None:
    x = image(net)
    other = layers.conv(net, x, 5, 1)
    with pytest.raises(InputError, match=r"network 'small': add: shapes must be equal, got \(3, 4, 8, 8\) and"):
        layers.add(net, x, other)
    with pytest.raises(InputError, match=r"cat: shapes must be equal but for the channels"):
        layers.cat(net, x, layers.max_pool(net, x, 2))
    with pytest.raises(InputError, match=r"conv: groups must divide 4 and 6 channels, got 4"):
        layers.conv(net, x, 6, 1, groups=4)
    with pytest.raises(InputError, match=r"matmul: shapes must fit, got \(3, 4, 8, 8\) and \(3, 5, 8, 8\)"):
        layers.matmul(net, x, other)
    with pytest.raises(InputError, match=r"view: \(3, 4, 8, 8\) has 768 elements, got the shape \(3, 5\)"):
        x.viewed(3, 5)
    with pytest.raises(InputError, match=r"the output of convolution.1 is never used"):
        net.build(x)
