"""Planned layouts on all ranks of a mesh in one process: every tensor of the graph is what one process makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from sharded_lockstep import Lockstep, drawn_layouts, given_of, tables_of, whole_values  # noqa: E402

from gapless.errors import InputError  # noqa: E402
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout  # noqa: E402
from gapless.torch.run.workload import Workload, load_named  # noqa: E402
from gapless.torch.sharding.baselines import baselines  # noqa: E402
from gapless.torch.sharding.execution.local_calls import Place  # noqa: E402
from gapless.torch.sharding.execution.program import Change, compiled  # noqa: E402
from gapless.torch.sharding.joint import joint_of  # noqa: E402

SEED = 5
GPT = "train:gpt,layers=1,hidden=16,heads=4,vocabulary=32,sequence=8,micro_batch=8"
BERT = "train:bert,layers=1,hidden=16,sequence=8,batch=8"
NET = "train:net,layers=3,width=8,classes=8,size=8,batch=8"


def _wrong(work: Workload, mesh: tuple[int, ...], seeds: range) -> list[str]:
    step, joint = joint_of(work)
    model, given = tables_of(joint, mesh), given_of(step, joint)
    torch.manual_seed(SEED)
    expected = whole_values(joint, given)
    return [name for seed in seeds for name in Lockstep(joint, drawn_layouts(model, seed)).run(given, expected, SEED)]


@pytest.mark.parametrize(("model", "mesh"), [(GPT, (2, 2)), (NET, (2,))])
def test_each_tensor_in_drawn_layouts_is_that_of_one_process(model: str, mesh: tuple[int, ...]) -> None:
    assert _wrong(load_named(model), mesh, range(1)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("mesh", [(8,), (2, 4), (4, 2), (2, 2, 2)])
@pytest.mark.parametrize("model", [f"{GPT},layers=2", BERT, NET, "train:vgg"])
def test_many_drawn_layouts_on_larger_meshes(model: str, mesh: tuple[int, ...]) -> None:
    assert _wrong(load_named(model), mesh, range(10)) == []


class _Random(torch.nn.Module):
    """Dropout, and noise that is drawn beside the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(8, 16), torch.nn.Dropout(0.4), torch.nn.Linear(16, 8)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(self.first(given))
        made: torch.Tensor = self.last(hidden + 0.1 * torch.randn_like(hidden))
        return made


def test_random_numbers_are_those_of_one_process() -> None:
    torch.manual_seed(0)
    work = Workload(_Random(), (torch.randn(8, 8),), torch.nn.functional.mse_loss, (torch.randn(8, 8),))
    assert _wrong(work, (2, 2), range(3)) == []


def test_a_mean_over_targets_of_unequal_weight_is_that_of_one_process() -> None:
    torch.manual_seed(0)
    targets = torch.tensor([1, -100, -100, -100, 2, 3, 0, 1])
    work = Workload(torch.nn.Linear(8, 4), (torch.randn(8, 8),), torch.nn.functional.cross_entropy, (targets,))
    step, joint = joint_of(work)
    given = given_of(step, joint)
    layouts = tables_of(joint, (4,)).layouts(baselines(tables_of(joint, (4,)))["ddp"])
    assert layouts.by_name["nll_loss_forward"].outputs[0] == "P(avg)"
    assert Lockstep(joint, layouts).run(given, whole_values(joint, given), SEED) == []


def test_a_table_split_by_rows_finds_the_rows_of_all_ranks() -> None:
    torch.manual_seed(0)
    work = Workload(torch.nn.Embedding(16, 4), (torch.randint(16, (8,)),), lambda rows: rows.square().sum())
    step, joint = joint_of(work)
    model, given = tables_of(joint, (4,)), given_of(step, joint)
    split = NodeLayout("embedding", "aten.embedding.default", ("S0", "P(mask)"), ("P(mask)",))
    layouts = _with(model.layouts(baselines(model)["ddp"]), split)
    assert Lockstep(joint, layouts).run(given, whole_values(joint, given), SEED) == []


def _with(layouts: MeshLayouts, *nodes: NodeLayout) -> MeshLayouts:
    """Layouts with other ones of some nodes."""
    changed = {node.name: node for node in nodes}
    return replace(layouts, nodes=tuple(changed.get(node.name, node) for node in layouts.nodes))


def test_a_tensor_is_brought_to_a_layout_once_in_a_pass() -> None:
    _, joint = joint_of(load_named(GPT))
    model = tables_of(joint, (2, 2))
    for seed in range(2):
        program = compiled(joint, drawn_layouts(model, seed), Place((2, 2), (0, 1)))
        for part in (program.forward, program.backward):
            made = [(each.source, each.steps) for each in part if isinstance(each, Change)]
            assert len(made) == len(set(made))


def test_uneven_parts_and_other_graphs_are_refused_in_one_line() -> None:
    _, joint = joint_of(load_named(GPT))
    model = tables_of(joint, (2,))
    layouts = model.layouts(baselines(model)["ddp"])
    weight = next(node for node in layouts.nodes if node.op == "parameter")
    with pytest.raises(InputError, match=r"primals_\d+: .*S5 must split a dimension evenly over 2 devices"):
        compiled(joint, _with(layouts, replace(weight, outputs=("S5",))), Place((2,), (0,)))
    _, other = joint_of(load_named(NET))
    with pytest.raises(InputError, match="plan: is for another model"):
        compiled(other, layouts, Place((2,), (0,)))
