"""The joint graph whose layouts are planned."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gapless.torch.run.workload import Workload  # noqa: E402
from gapless.torch.sharding.joint import graph_digest, is_getitem, joint_of, tensor_arguments, tensors_of  # noqa: E402


def _workload(width: int = 8) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16))
    return Workload(model, (torch.randn(4, width),), torch.nn.functional.mse_loss, (torch.randn(4, 16),))


def test_names_are_the_same_each_time_and_the_digest_tells_models_apart() -> None:
    (_, first), (_, second), (_, other) = joint_of(_workload()), joint_of(_workload()), joint_of(_workload(12))
    assert [node.name for node in first.module.graph.nodes] == [node.name for node in second.module.graph.nodes]
    assert graph_digest(first) == graph_digest(second) != graph_digest(other)


def test_arguments_and_tensors_of_nodes() -> None:
    _, joint = joint_of(_workload())
    by_name = {node.name: node for node in joint.module.graph.nodes}
    norm = by_name["native_layer_norm"]
    shapes = [tuple(value.shape) for value in tensors_of(norm)]
    assert shapes == [(4, 16), (4, 1), (4, 1)]
    assert len(tensor_arguments(norm)) == 3
    assert is_getitem(by_name["getitem"])
    assert not is_getitem(norm)
