"""Gist as published: which tensors are kept how, what that takes, and that its plans replay."""

from __future__ import annotations

import pytest
from hypothesis import given
from random_training import training_graphs

import gapless
from gapless import SolveOptions
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.parameters import Encoding, Parameters
from gapless.encodings.monet.study.baselines import store_all
from gapless.encodings.monet.study.gist import encode, encoded_graph
from gapless.errors import InputError
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build

GIB = 2**30


def test_rows_take_five_bytes_a_value_and_a_pointer_a_row() -> None:
    rows = encode(4 * 256 * 10, 0.75, 1e9)
    assert rows.size_bytes == 5 * 64 * 10 + 4 * 11
    assert rows.encode_s == pytest.approx((2 * 10240 + rows.size_bytes) / 1e9)
    assert rows.decode_s == pytest.approx((rows.size_bytes + 10240 + 4 * 640) / 1e9)
    assert encode(10240, 0.75, 1e9, csr_bytes_per_s=1e6).encode_s == pytest.approx(0.01024)


def test_half_precision_takes_half_and_a_pass_each_way() -> None:
    half = encode(1000, None, 1e9)
    assert (half.size_bytes, half.workspace_bytes) == (500, 0)
    assert half.encode_s == half.decode_s == pytest.approx(1.5e-6)


def kept_by_op(name: str) -> set[tuple[str, str]]:
    """How the outputs of each kind of operator are kept."""
    graph = encoded_graph(build(name, 4), Encoding())
    return {
        (graph.forward[node.creator].op, node.op)
        for number, node in enumerate(graph.forward)
        if node.creator is not None and any(number in back.variants[0].needs for back in graph.backward)
    }


def test_vgg_keeps_bits_before_pools_rows_before_convolutions_and_halves_elsewhere() -> None:
    assert {pair for pair in kept_by_op("vgg16") if pair[0] in ("relu_", "max_pool")} == {
        ("relu_", "relu_sign_bits"), ("relu_", "compressed_rows"), ("relu_", "half_precision"),
        ("max_pool", "max_pool_packed_indices"), ("max_pool", "half_precision"),
    }  # fmt: skip


def test_batch_norms_keep_their_input_in_half_precision() -> None:
    assert ("convolution", "half_precision") in kept_by_op("resnet50")
    assert ("batch_norm", "half_precision") not in kept_by_op("resnet50")


def test_a_rival_that_saves_much_and_costs_time() -> None:
    graph = build("resnet50", 16)
    whole, eager = peak_without_saving_bytes(graph), solved(graph, "eager").report
    plain = solved(graph, "gist").report
    rate = gapless.solve(
        Problem(graph, 16 * GIB, method="gist"), parameters=Parameters(encoding=Encoding(csr_bytes_per_s=15.7e9))
    ).report
    assert 0.45 < plain.peak_bytes[0] / whole < 0.65
    assert 1.1 < plain.makespan_s / eager.makespan_s < 1.3
    assert 1.5 < rate.makespan_s / eager.makespan_s < 1.9
    assert rate.peak_bytes == plain.peak_bytes


def solved(graph: TrainingGraph, method: str) -> gapless.Result:
    result = gapless.solve(Problem(graph, 16 * GIB, method=method), SolveOptions(threads=1, gap=0.0))
    assert result.valid
    return result


def test_more_zeros_take_less_memory_and_time() -> None:
    graph = build("mobilenet_v2", 8)
    peaks, costs = [], []
    for zeros in (0.1, 0.5, 0.9):
        encoded = encoded_graph(graph, Encoding(zeros=(zeros,)))
        report = check(to_schedule(encoded, store_all(encoded)))
        assert report.valid
        peaks.append(report.peak_bytes[0])
        costs.append(report.makespan_s)
    assert peaks == sorted(peaks, reverse=True)
    assert costs == sorted(costs, reverse=True)


def test_shares_of_zeros_may_be_one_for_each_relu() -> None:
    graph = build("vgg16", 2)
    count = sum(node.op.startswith("relu_") and node.creator is None for node in graph.forward)
    same = encoded_graph(graph, Encoding(zeros=(0.5,) * count))
    assert same == encoded_graph(graph, Encoding(zeros=(0.5,)))
    with pytest.raises(InputError, match=rf"one for each of the {count} ReLUs of 'vgg16', got 2"):
        encoded_graph(graph, Encoding(zeros=(0.5, 0.6)))
    with pytest.raises(InputError, match=r"encoding\.zeros must be in 0\.\.1, got 1\.5"):
        Encoding(zeros=(1.5,))


@given(graph=training_graphs())
def test_its_decisions_can_be_executed(graph: TrainingGraph) -> None:
    encoded = encoded_graph(graph, Encoding())
    decisions = store_all(encoded)
    assert evaluate(encoded, decisions).faults == ()
    assert check(to_schedule(encoded, decisions)).valid
