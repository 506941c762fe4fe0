"""The picture of layouts: stripes are what the plan says, by module and pass, and without a model there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

import gapless
from gapless.cli.main import main
from gapless.encodings.sharding.decision import ShardingDecision
from gapless.encodings.sharding.views.picture import ROWS, draw_layouts, kind_of, stripes
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout

NODES = (
    NodeLayout("p1", "parameter", outputs=("R,S1",), title="layer1.one.weight", module="layer1.one"),
    NodeLayout("p2", "parameter", outputs=("R,S0",), title="layer1.two.weight", module="layer1.two"),
    NodeLayout("given", "input", outputs=("S0,R",)),
    NodeLayout("t", "aten.t.default", ("R,S1",), ("R,S0",), module="layer1.one"),
    NodeLayout("mm", "aten.mm.default", ("S0,R", "R,S0"), ("S0,S1",), module="layer1.one"),
    NodeLayout("mm_1", "aten.mm.default", ("S0,S1", "R,S0"), ("S0,P",), module="layer1.two"),
    NodeLayout("mm_2", "aten.mm.default", ("S0,R", "S0,R"), ("P,S0",), module="layer1.two", is_backward=True),
)
LAYOUTS = MeshLayouts((2, 2), "digest", NODES)


def test_stripes_are_of_parameters_and_of_ops_that_compute() -> None:
    assert stripes(LAYOUTS) == {
        ("layer1.one", "parameters"): ["R,S1"],
        ("layer1.two", "parameters"): ["R,S0"],
        ("layer1.one", "forward"): ["S0,S1"],
        ("layer1.two", "forward"): ["S0,P"],
        ("layer1.two", "backward"): ["P,S0"],
    }


def test_each_part_of_a_layout_has_a_kind() -> None:
    kinds = [kind_of(part) for part in ("R", "S0", "S1", "S2", "S3", "S4", "P")]
    assert len(set(kinds)) == 7
    assert kind_of("P(mask)") == kind_of("P(avg)") == kind_of("P")
    assert kind_of("S7") == kind_of("S4")


def test_an_instance_without_a_model_has_no_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    gapless.sharding.solve("drawn:nodes=12").save(file)
    assert main(["plot", str(file), "--kind", "layouts", "-o", str(tmp_path / "plan.png")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gapless: error: --kind layouts: the plan has no layouts, as its instance is of no model; ")
    assert said.count("\n") == 1
    assert not (tmp_path / "plan.png").exists()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    from gapless.torch.run.workload import Workload

    blocks = [torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)) for _ in range(2)]
    data, target = torch.randn(8, 16), torch.randn(8, 16)
    model = Workload(torch.nn.Sequential(*blocks), (data,), torch.nn.functional.mse_loss, (target,))
    file = tmp_path_factory.mktemp("picture") / "plan.json"
    gapless.sharding.solve(model=model, mesh="2x2", topology="dgx-h100", method="fsdp").save(file)
    return file


def test_a_models_plan_has_a_row_for_each_pass_and_axis(planned: Path, tmp_path: Path) -> None:
    axes = draw_layouts(read_plan(planned))
    legend = axes.get_legend()
    assert legend is not None
    kinds = {text.get_text() for text in legend.get_texts()}
    assert {"batch, or rows (S0)", "sum not made yet (P)"} <= kinds
    assert len(kinds) <= 8
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert [row.rpartition(" ")[2] for row in rows] == [*ROWS, *ROWS]
    assert rows[3] == "axis 1 (2 devices): parameters"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]
    assert main(["plot", str(planned), "--kind", "layouts", "-o", str(tmp_path / "plan.png"), "--quiet"]) == 0


def test_ops_are_of_modules_in_both_passes(planned: Path) -> None:
    layouts = ShardingDecision.of(read_plan(planned)).layouts
    assert layouts is not None
    known = stripes(layouts)
    modules = ["0.0", "0.2", "1.0", "1.2"]
    assert all(known.get((module, row)) for module in modules for row in ROWS)
    order = [node.module for node in layouts.nodes if node.is_backward]
    assert list(dict.fromkeys(order)) == modules[::-1]
    assert known["0.0", "parameters"] == ["S0,S0", "S0,S0"]


def test_layouts_without_modules_are_refused(planned: Path) -> None:
    plan = read_plan(planned)
    layouts = ShardingDecision.of(plan).layouts
    assert layouts is not None
    without = replace(layouts, nodes=tuple(replace(node, module="") for node in layouts.nodes))
    decision = replace(ShardingDecision.of(plan), layouts=without)
    with pytest.raises(InputError, match="name no modules"):
        draw_layouts(replace(plan, decision=decision.data))
