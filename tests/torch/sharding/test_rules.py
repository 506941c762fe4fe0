"""Strategies of ops: what DTensor itself makes of their layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: E402

from gapless.profiles.layouts.layouts import is_partial  # noqa: E402
from gapless.torch.run.workload import Workload  # noqa: E402
from gapless.torch.sharding.joint import is_getitem, joint_of, tensor_arguments, tensors_of  # noqa: E402
from gapless.torch.sharding.placements import local_shape, part_of, placements_of  # noqa: E402
from gapless.torch.sharding.rules import axis_rules  # noqa: E402
from gapless.torch.sharding.strategies import Strategies, Strategy, signature_of  # noqa: E402

MESH = (2, 2)


class _Block(torch.nn.Module):
    """An embedding, attention, a feed-forward block with a norm, and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.qkv = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)
        self.rise, self.fall = torch.nn.Linear(8, 32), torch.nn.Linear(32, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits of each token."""
        x = self.embedding(ids)
        heads = [part.view(4, 8, 2, 4).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = self.norm(x + attended.transpose(1, 2).reshape(4, 8, 8))
        x = x + self.fall(torch.nn.functional.gelu(self.rise(x)))
        return (x @ self.embedding.weight.t()).flatten(0, 1)


@pytest.fixture(scope="module")
def nodes() -> list[torch.fx.Node]:
    torch.manual_seed(0)
    loss = torch.nn.functional.cross_entropy
    work = Workload(_Block(), (torch.randint(0, 16, (4, 8)),), loss, (torch.randint(0, 16, (32,)),))
    _, joint = joint_of(work)
    return [node for node in joint.module.graph.nodes if node.op == "call_function" and not is_getitem(node)]


@pytest.fixture(scope="module")
def mesh() -> Iterator[torch.distributed.device_mesh.DeviceMesh]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed = torch.distributed
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield distributed.device_mesh.init_device_mesh("cpu", MESH)
    distributed.destroy_process_group()


def _by_name(nodes: list[torch.fx.Node], name: str) -> torch.fx.Node:
    return next(node for node in nodes if str(node.target).startswith(f"aten.{name}."))


def _rules(nodes: list[torch.fx.Node], name: str) -> set[str]:
    rules = axis_rules(_by_name(nodes, name), 2)
    assert rules is not None
    return {f"{','.join(rule.inputs)}>{','.join(rule.outputs)}" for rule in rules}


def test_rules_of_products_views_norms_and_embeddings(nodes: list[torch.fx.Node]) -> None:
    assert {"R,R,R>R", "P,S1,S0>P", "R,S0,R>S0", "S0,R,S1>S1"} <= _rules(nodes, "addmm")
    assert _rules(nodes, "native_layer_norm") == {"R,R,R>R,R,R", "S0,R,R>S0,S0,S0", "S1,R,R>S1,S1,S1"}
    assert {"S1,R>S2", "S0,R>P(mask)", "R,S0>S0"} <= _rules(nodes, "embedding")
    assert _rules(nodes, "_scaled_dot_product_flash_attention_for_cpu") == {
        "R,R,R>R,R", "S0,S0,S0>S0,S0", "S1,S1,S1>S1,S1"
    }  # fmt: skip
    assert "S2>S2" not in _rules(nodes, "split")


def test_an_op_without_a_rule_is_whole_everywhere_and_counted() -> None:
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.nonzero.default, (given,))
    given.meta["val"] = node.meta["val"] = torch.empty(4, 4, device="meta")
    strategies = Strategies(MESH)
    assert strategies.of(node, "nonzero") == (Strategy(("R,R",), ("R,R",)),)
    assert strategies.without_rule["aten.nonzero.default"] == 1


def test_shards_of_outputs_are_those_that_dtensor_makes(nodes: list[torch.fx.Node], mesh: object) -> None:
    strategies, seen, checked = Strategies(MESH), set(), 0
    for node in nodes:
        signature = signature_of(node)
        if signature in seen or "for_cpu" in str(node.target) or not tensor_arguments(node):
            continue
        seen.add(signature)
        for strategy in itertools.islice(strategies.of(node, signature), 1, None, 11):
            _check(node, strategy, mesh)
            checked += 1
    assert checked > 60


def _check(node: torch.fx.Node, strategy: Strategy, mesh: object) -> None:
    values = [tensors_of(argument)[0] for argument in tensor_arguments(node)]
    given = iter([_given(value, layout, mesh) for value, layout in zip(values, strategy.inputs, strict=True)])
    arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), lambda _: next(given))
    made = node.target(*arguments, **options)
    outputs = made if isinstance(made, tuple | list) else (made,)
    for tensor, layout, value in zip(outputs, strategy.outputs, tensors_of(node), strict=True):
        if layout:
            assert ",".join(str(part_of(placement)) for placement in tensor.placements) == layout, (node, strategy)
            assert tensor.to_local().shape == local_shape(layout, value.shape, MESH), (node, strategy)


def _given(value: torch.Tensor, layout: str, mesh: object) -> DTensor:
    zeros = torch.zeros(value.shape, dtype=value.dtype)
    if is_partial(layout):
        local = torch.zeros(local_shape(layout, value.shape, MESH), dtype=value.dtype)
        return DTensor.from_local(local, mesh, placements_of(layout), run_check=False)
    return distribute_tensor(zeros, mesh, placements_of(layout))
