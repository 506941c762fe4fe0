"""Models as tables of choices, and baselines as choices of them."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gapless.encodings.sharding.instances.instance import Evaluation, Instance  # noqa: E402
from gapless.profiles.devices import named_device  # noqa: E402
from gapless.profiles.gradients.communication import FlatNetwork  # noqa: E402
from gapless.profiles.layouts.costs import MeshCosts  # noqa: E402
from gapless.torch.run.workload import Workload  # noqa: E402
from gapless.torch.sharding.baselines import baseline_choices, baselines  # noqa: E402
from gapless.torch.sharding.columns import split_weights  # noqa: E402
from gapless.torch.sharding.joint import joint_of  # noqa: E402
from gapless.torch.sharding.tables import ModelTables, model_tables  # noqa: E402

DEVICE = named_device("h100")
COSTS = MeshCosts((FlatNetwork(2, 1e9, 1e-6), FlatNetwork(2, 4e9, 1e-6)), DEVICE)
WIDTH, BATCH = 16, 8
WEIGHTS = (WIDTH * 4 * WIDTH, 4 * WIDTH, 4 * WIDTH * WIDTH, WIDTH)
"""Numbers of each parameter of the model of two layers."""


def _mlp(layers: int) -> Workload:
    torch.manual_seed(0)
    blocks = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH))
        for _ in range(layers)
    ]
    given = torch.randn(BATCH, WIDTH)
    return Workload(torch.nn.Sequential(*blocks), (given,), torch.nn.functional.mse_loss, (torch.randn(BATCH, WIDTH),))


@functools.cache
def _model(layers: int = 1, share: bool = True, state_bytes: int = 8) -> ModelTables:
    _, joint = joint_of(_mlp(layers))
    return model_tables(joint, COSTS, state_bytes, share=share)


def _evaluated(model: ModelTables, choices: np.ndarray) -> Evaluation:
    tables = model.tables
    return Instance(
        "model", tables.intervals, tables.costs_ns, tables.usages, tables.edges, tables.tables, 10**9
    ).evaluate(choices)


def _edge_cost(model: ModelTables, choices: np.ndarray, kind: str) -> int:
    """Of all edges to nodes of a kind."""
    pairs = zip(model.tables.edges.tolist(), model.tables.tables, strict=True)
    return sum(int(table[choices[a], choices[b]]) for (a, b), table in pairs if model.variables[b].kind == kind)


def test_data_parallelism_sends_the_gradients_and_the_loss_alone() -> None:
    model = _model()
    choices = baseline_choices(model, "ddp")
    assert choices is not None
    rings_s = [2 * DEVICE.launch_s + sum(2 * (4 * count / 2 / rate + 1e-6) for rate in (1e9, 4e9)) for count in WEIGHTS]
    assert _edge_cost(model, choices, "gradient") == sum(math.ceil(ring_s * 1e9) for ring_s in rings_s)
    assert _edge_cost(model, choices, "op") == 0
    times_ns = sum(int(cost[choice]) for cost, choice in zip(model.tables.costs_ns, choices, strict=True))
    left = _evaluated(model, choices).cost - times_ns - _edge_cost(model, choices, "gradient")
    assert left == _edge_cost(model, choices, "output") > 0


def test_sharded_parameters_take_less_memory_and_more_time() -> None:
    model = _model(2)
    known = {name: _evaluated(model, choices) for name, choices in baselines(model).items()}
    assert {"ddp", "fsdp", "hsdp", "megatron", "megatron_fsdp"} == set(known)
    assert not any(each.forbidden for each in known.values())
    assert known["fsdp"].peak < known["hsdp"].peak < known["ddp"].peak
    assert known["fsdp"].cost > known["ddp"].cost


def test_memory_is_that_of_parameters_gradients_states_and_activations() -> None:
    for state_bytes in (0, 8):
        model = _model(state_bytes=state_bytes)
        choices = baseline_choices(model, "ddp")
        assert choices is not None
        numbers = sum(WEIGHTS)
        at_the_end = numbers * (4 + 4 + state_bytes) + 2 * BATCH // 4 * WIDTH * 4 + 4 + 4
        used = [
            int(usage[choice])
            for usage, choice, (_, end) in zip(model.tables.usages, choices, model.tables.intervals, strict=True)
            if end == model.tables.intervals.max()
        ]
        assert sum(used) == at_the_end
        assert _evaluated(model, choices).peak >= at_the_end


def test_products_are_priced_by_their_shards() -> None:
    model = _model()
    number = next(n for n, each in enumerate(model.variables) if str(each.node.target) == "aten.addmm.default")
    costs = dict(zip(model.variables[number].choices, model.tables.costs_ns[number].tolist(), strict=True))
    for choice, cost_ns in costs.items():
        if choice.inputs == ("R,R", "S0,S0", "R,R"):
            moved = 4 * (4 * WIDTH + BATCH // 4 * WIDTH + WIDTH * 4 * WIDTH + BATCH // 4 * 4 * WIDTH)
            flops = 2 * BATCH * WIDTH * 4 * WIDTH / 4
            assert cost_ns == math.ceil(DEVICE.seconds(flops, moved) * 1e9)
            return
    pytest.fail("the batch can be split along both axes")


def test_equal_layers_are_laid_out_alike_unless_asked_otherwise() -> None:
    shared, free = _model(3), _model(3, share=False)
    assert shared.tied > 0
    assert free.tied == 0
    choices = baseline_choices(shared, "megatron")
    assert choices is not None
    layouts = shared.layouts(choices).parameters
    assert [layouts[f"{layer}.0.weight"] for layer in range(3)] == ["R,S0"] * 3
    assert [layouts[f"{layer}.2.weight"] for layer in range(3)] == ["R,S1"] * 3
    named = {each.title: number for number, each in enumerate(shared.variables) if each.kind == "parameter"}
    other = choices.copy()
    other[named["1.0.weight"]] = 0
    assert _evaluated(shared, other).forbidden


def test_products_that_add_up_split_columns_are_split_by_rows() -> None:
    _, joint = joint_of(_mlp(2))
    found = {joint.inputs[node].name.removeprefix("model."): split for node, split in split_weights(joint).items()}
    assert found == {
        "0.0.weight": 0, "0.0.bias": 0, "0.2.weight": 1, "1.0.weight": 0, "1.0.bias": 0, "1.2.weight": 1
    }  # fmt: skip


def test_layouts_name_each_node_of_the_graph_with_its_layouts() -> None:
    model = _model(2)
    choices = baseline_choices(model, "fsdp")
    assert choices is not None
    layouts = model.layouts(choices)
    assert layouts.mesh == (2, 2)
    names = {node.name for node in model.joint.module.graph.nodes if node.op in ("placeholder", "call_function")}
    assert set(layouts.by_name) <= names
    assert layouts.parameters["0.0.weight"] == "S0,S0"
    product = next(node for node in layouts.nodes if node.op == "aten.addmm.default")
    assert product.inputs == ("R,R", "S0,S0", "R,R")
    assert product.outputs == ("S0,S0",)


def test_a_batch_that_the_mesh_does_not_divide_has_no_data_parallel_baseline() -> None:
    work = Workload(torch.nn.Linear(4, 4), (torch.randn(3, 4),), torch.sum)
    _, joint = joint_of(work)
    assert baselines(model_tables(joint, COSTS)) == {}
