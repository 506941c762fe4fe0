"""The joint graph whose layouts are planned."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sharded_lockstep import given_of, tables_of, whole_values  # noqa: E402
from sharded_training import model  # noqa: E402

from gapless.torch.run.workload import Workload  # noqa: E402
from gapless.torch.sharding.joint import graph_digest, is_getitem, joint_of, tensor_arguments, tensors_of  # noqa: E402

SEED = 5


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


def test_a_tensor_under_two_names_is_one_parameter_whose_gradient_is_the_sum() -> None:
    work = model()
    step, joint = joint_of(work)
    roles = [role.name for role in joint.inputs.values() if role.kind == "parameter"]
    assert roles == ["model.table.weight", "model.inner.weight", "model.inner.bias"]
    assert roles == [role.name for _, role in joint.outputs if role.kind == "gradient"]
    torch.manual_seed(SEED)
    values = whole_values(joint, given_of(step, joint))
    torch.manual_seed(SEED)
    work.loss_of(work.model).backward()
    for node, role in joint.outputs:
        if role.kind == "gradient":
            assert torch.equal(values[node.name], work.model.get_parameter(role.name.removeprefix("model.")).grad)


def test_memory_has_a_tied_parameter_with_gradient_and_state_once() -> None:
    def parts(work: Workload) -> dict[str, int]:
        """The most bytes of parameters with their state, and of gradients, by name."""
        _, joint = joint_of(work)
        made = tables_of(joint, (2,))
        pairs = zip(made.variables, made.tables.usages, strict=True)
        return {f"{each.kind} {each.title}": int(used.max()) for each, used in pairs if each.title}

    tied, apart = model(), model()
    apart.model.last.weight = torch.nn.Parameter(tied.model.last.weight.detach().clone())
    more = parts(apart).items() - parts(tied).items()
    table_bytes = 4 * 16 * 8
    assert more == {("parameter last.weight", 3 * table_bytes), ("gradient last.weight", table_bytes)}
    assert not parts(tied).items() - parts(apart).items()
