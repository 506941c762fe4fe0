"""The private capture API, as gapless relies on it: when PyTorch changes it, one of these says what has changed.

Without torch these tests are skipped.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch.capture.joint import trace_joint
from gapless.torch.joint_graph import JointGraph


class Small(nn.Module):
    """A parameter under two names, a batch norm with its buffers, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(self.norm(self.first(given)))).sum()


@pytest.fixture(scope="module")
def joint() -> JointGraph:
    return trace_joint(Small(), (torch.randn(3, 4),))


# -- the contract ------------------------------------------------------------------------------------------------------


def test_api_is_where_it_was() -> None:
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with contextlib.ExitStack() as stack:
        module = aot_export_joint_with_descriptors(stack, Small(), (torch.randn(3, 4),)).graph_module
    assert isinstance(module, torch.fx.GraphModule)


def test_placeholders_are_described(joint: JointGraph) -> None:
    kinds = [role.kind for role in joint.inputs.values()]
    assert kinds.count("tangent") == 1
    assert kinds.count("input") == 1
    names = {role.name for role in joint.inputs.values() if role.kind == "parameter"}
    assert names == {"first.weight", "first.bias", "norm.weight", "norm.bias", "second.weight", "second.bias"}
    assert {role.name for role in joint.inputs.values() if role.kind == "buffer"} >= {"norm.running_mean"}


def test_outputs_are_the_loss_new_buffers_and_gradients(joint: JointGraph) -> None:
    found: dict[str, set[str]] = {}
    for _, role in joint.outputs:
        found.setdefault(role.kind, set()).add(role.name)
    assert found["buffer"] == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert found["gradient"] >= {"first.weight", "first.bias", "norm.weight", "norm.bias", "second.bias"}
    assert "output" in found


def test_graph_is_functional_and_holds_fake_values(joint: JointGraph) -> None:
    nodes = [node for node in joint.module.graph.nodes if node.op == "call_function"]
    operators = [node.target for node in nodes if isinstance(node.target, torch._ops.OpOverload)]  # noqa: SLF001
    assert operators
    assert not [its for its in operators if its._schema.is_mutable]  # noqa: SLF001
    assert all("val" in node.meta for node in joint.inputs)


def test_forward_and_backward_pair_up_by_sequence_number(joint: JointGraph) -> None:
    sequence: dict[str, Any] = {
        str(node.target): node.meta.get("seq_nr") for node in joint.module.graph.nodes if node.op == "call_function"
    }
    norm = "aten._native_batch_norm_legit_functional.default"
    assert sequence[norm] == sequence["aten.native_batch_norm_backward.default"]


def test_dropout_and_batch_norm_are_single_operators(joint: JointGraph) -> None:
    targets = {node.target for node in joint.module.graph.nodes}
    assert torch.ops.aten.native_dropout.default in targets
    assert torch.ops.aten.native_dropout_backward.default in targets


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_control_flow_on_data_is_refused_with_op_and_line() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            if given.sum() > 0:
                return (given * self.weight).sum()
            return self.weight.sum()

    with pytest.raises(InputError, match=r"_local_scalar_dense.*test_joint\.py:[0-9]+") as caught:
        trace_joint(Branching(), (torch.randn(3),))
    assert "\n" not in str(caught.value)


class Counting(nn.Module):
    """Looks into places that it counts, where `mixed` together with its input."""

    def __init__(self, mixed: bool) -> None:
        super().__init__()
        self.weight, self.mixed = nn.Parameter(torch.ones(3)), mixed

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        places = torch.arange(3)
        if self.mixed:
            places[1] = given.long()[0]
        packed = torch.diff(places, prepend=places[:1] - 1) != 1
        return (given * self.weight).sum() if not packed.any() else self.weight.sum()


def test_values_that_depend_on_no_argument_are_known() -> None:
    joint = trace_joint(Counting(mixed=False), (torch.randn(3),))
    assert torch.ops.aten.mul.Tensor in {node.target for node in joint.module.graph.nodes}
    with pytest.raises(InputError, match="it looks into its data"):
        trace_joint(Counting(mixed=True), (torch.randn(3),))


def test_input_that_is_written_to_is_refused() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return (given.add_(1) * self.weight).sum()

    with pytest.raises(InputError, match="changes its input 0 in place"):
        trace_joint(Writing(), (torch.randn(3),))
