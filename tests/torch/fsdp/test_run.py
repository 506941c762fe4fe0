"""Plans run by FSDP2 in processes of their own, beside FSDP2 as it is. Without torch these are skipped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main
from gapless.encodings.fsdp.execution.run import execute, row_of
from gapless.encodings.fsdp.question import RunQuestion
from gapless.encodings.fsdp.step.costs import Costs, Inner, Replicas
from gapless.errors import InputError
from gapless.io.formats.fsdp2 import Fsdp2Group, Fsdp2Wrapping
from gapless.options import SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile, write_pipeline_profile
from gapless.system import Session
from gapless.torch.fsdp import apply
from gapless.torch.fsdp.comparison import Collective, Ran
from gapless.torch.library import torch
from gapless.torch.pipeline.layers import load_layers

MODEL = "train:gpt,layers=3,hidden=16,sequence=8"
pytestmark = pytest.mark.usefixtures("one_thread")


def solved(folder: Path, ranks: int, method: str, *options: str, gather: str = "fp32") -> str:
    """A plan of the small GPT, with passes of a twentieth of a second in all."""
    layers = load_layers(MODEL).untied().layers
    sizes = np.array([4 * sum(each.numel() for each in layer.parameters()) for _, layer in layers], np.int64)
    none = np.zeros(len(layers), np.int64)
    third = np.full(len(layers), 3e-3)
    names = tuple(name for name, _ in layers)
    write_pipeline_profile(
        folder / "profile.json", PipelineProfile("small", names, third, third, third, sizes, sizes, none, none)
    )
    plan = str(folder / "plan.json")
    asked = ["--profile", str(folder / "profile.json"), "--stored", "fp32", "--gather", gather, "--ranks", str(ranks)]
    network = ["--bandwidth", "10MB/s", "--latency", "1ms", "--method", method, "--quiet", "-o", plan]
    assert main(["solve", "fsdp", *asked, *network, *options]) == 0
    return plan


def ran(plan: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    code = main(["run", "fsdp", "--plan", plan, "--model", MODEL, "--repeats", "1", "--json", *options])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if found["valid"] else 5)
    return found


@pytest.mark.parametrize(
    ("ranks", "method", "gather"),
    [
        (2, "labels", "fp32"),
        pytest.param(4, "saturated", "fp32", marks=pytest.mark.thorough),
        pytest.param(2, "last-kept", "bf16", marks=pytest.mark.thorough),
        pytest.param(4, "kept", "fp32", marks=pytest.mark.thorough),
    ],
)
def test_a_plan_runs_in_its_order_with_the_bits_of_fsdp2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ranks: int, method: str, gather: str
) -> None:
    found = ran(solved(tmp_path, ranks, method, gather=gather), capsys)
    assert found["valid"]
    assert found["ranks"] == ranks
    assert [row["name"] for row in found["rows"]] == ["plan", "fsdp2"]
    for row in found["rows"]:
        assert row["in_order"]
        assert row["equal"] == row["gradients"] > 0
        assert row["gathered_bytes"]["observed"] == pytest.approx(row["gathered_bytes"]["predicted"])
        assert row["emulated_s"] == pytest.approx(row["predicted_s"])
        assert row["measured_s"] >= row["predicted_s"] * (1 - 1e-6)  # emulated time is waited for
    assert found["rows"][1]["groups"] == [[layer, layer] for layer in range(5)]


NODES = ("--ranks-per-node", "2", "--inner-bandwidth", "50MB/s", "--inner-latency", "300us")


@pytest.mark.thorough
@pytest.mark.parametrize("kinds", ["full,secondary", "full,secondary,hybrid"])
def test_a_plan_of_two_networks_runs_with_the_bits_of_hybrid_sharding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kinds: str
) -> None:
    """Two nodes of two ranks; of the small GPT memory has room for shares and some replicas."""
    memory = ("--memory", "80KB", "--state-bytes", "2", "--sharding", kinds)
    found = ran(solved(tmp_path, 4, "labels", *NODES, *memory), capsys)
    assert found["valid"]
    assert [row["name"] for row in found["rows"]] == ["plan", "fsdp2", *kinds.split(",")[1:]]
    for row in found["rows"]:
        assert row["in_order"]
        assert row["equal"] == row["gradients"] > 0
        assert row["gathered_bytes"]["observed"] == pytest.approx(row["gathered_bytes"]["predicted"])
        assert row["emulated_s"] == pytest.approx(row["predicted_s"])
        assert row["measured_s"] >= row["predicted_s"] * (1 - 1e-6)


def test_two_networks_run_as_two_nodes_of_two_ranks(tmp_path: Path) -> None:
    """More than two summands have other bits elsewhere in a message."""
    plan = solved(tmp_path, 8, "fsdp2", *NODES)
    session = Session(SolveOptions(), print)
    with pytest.raises(InputError, match="nodes of 2 ranks, got 8 ranks in nodes of 2; solve with --ranks 4"):
        execute(RunQuestion(plan=plan, model=MODEL), session)


def test_a_nodes_share_counts_from_the_first_gather_to_the_backward_pass() -> None:
    """Two layers of four bytes, of which a rank holds two after the forward pass; passes and parts take a second."""
    groups = (
        Fsdp2Group(0, 0, False, "fp32", "fp32", sharding="secondary"), Fsdp2Group(1, 1, True, "fp32", "fp32"),
    )  # fmt: skip
    wrapping = Fsdp2Wrapping("two", ("a", "b"), (1, 1), groups, ranks_per_node=2)
    second = np.full(2, 1.0)
    inner = Inner(1.0, {"fp32": 0.0}, {"fp32": 0.0})
    costs = Costs(
        np.array([1, 1]), second, second, 1.0, {"fp32": 0.0}, {"fp32": 0.0}, 4.0, 4.0, takes_when_begun=True,
        inner=inner, replicas=Replicas(0.5),
    )  # fmt: skip
    seen = [  # group, scatter, networks, begun, from, to, until
        (0, False, (0, 1), 0.0, 0.0, 2.0, 3.0), (1, False, (0, 1), 3.0, 3.0, 5.0, 7.0),
        (1, True, (1, 0), 7.0, 7.0, 9.0, 0.0), (0, False, (1,), 7.0, 8.0, 9.0, 10.0),
        (0, True, (1, 0), 10.0, 10.0, 12.0, 0.0),
    ]  # fmt: skip
    found = Ran("plan", [12.0], [Collective(*each) for each in seen], equal=4, gradients=4)
    row = row_of(costs, wrapping, found, 1.0, is_timed=True)
    assert row.is_as_planned
    assert row.gathered_bytes == (4 + 2, 4 + 2)
    assert row.predicted.step_s == 12


def test_what_differs_is_not_as_planned() -> None:
    """Two layers, each by itself; passes take 2 and 3 s, collectives 1 s."""
    groups = (Fsdp2Group(0, 0, False, "fp32", "fp32", (1,)), Fsdp2Group(1, 1, True, "fp32", "fp32", (), (0,)))
    wrapping = Fsdp2Wrapping("two", ("a", "b"), (1, 1), groups)
    second = np.full(2, 1.0)
    costs = Costs(np.array([1, 1]), 2 * second, 3 * second, 1.0, {"fp32": 0.0}, {"fp32": 0.0}, 4.0, 4.0)
    seen = [  # group, scatter, begun, from, to, until
        (0, False, 0.0, 0.0, 1.0, 3.0), (1, False, 1.0, 1.0, 2.0, 8.0), (0, False, 5.0, 5.0, 6.0, 11.0),
        (1, True, 8.0, 8.0, 9.0, 0.0), (0, True, 11.0, 11.0, 12.0, 0.0),
    ]  # fmt: skip
    collectives = [Collective(group, is_scatter, (0,), *instants) for group, is_scatter, *instants in seen]
    found = Ran("plan", [12.0], collectives, equal=4, gradients=4)

    def is_as_planned(**other: Any) -> bool:
        return row_of(costs, wrapping, replace(found, **other), 1.0, is_timed=True).is_as_planned

    assert is_as_planned()
    assert not is_as_planned(equal=3)
    assert not is_as_planned(is_same=False)
    assert not is_as_planned(collectives=[*collectives[:3], *reversed(collectives[3:])])
    assert not is_as_planned(collectives=[*collectives[:4], replace(collectives[4], end_s=12.1)])
    elsewhere = replace(collectives[2], networks=(1,))
    assert not is_as_planned(collectives=[*collectives[:2], elsewhere, *collectives[3:]])
    late = replace(collectives[0], released_s=5.5)  # the first layer's parameters are there twice
    assert not is_as_planned(collectives=[late, *collectives[1:]])


def wrapping_of(model: torch.nn.Sequential) -> Fsdp2Wrapping:
    """All in one group."""
    names = tuple(name for name, _ in model.named_children())
    sizes = tuple(sum(each.numel() for each in layer.parameters()) for layer in model)
    return Fsdp2Wrapping("small", names, sizes, (Fsdp2Group(0, len(names) - 1, False, "fp32", "fp32"),))


def test_a_model_that_isnt_the_plans_is_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    wrapping = wrapping_of(model)
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"layer 1 must have 10 parameters as in the plan, got 15"):
        apply(other, wrapping)
    with pytest.raises(InputError, match="must have the plan's layer '1'"):
        apply(torch.nn.Sequential(model[0]), wrapping)
    with pytest.raises(InputError, match="layers: must be the plan's 2, 0 to 1, got 1"):
        apply(model, wrapping, layers=[model[0]])


def test_what_no_layer_has_is_refused_and_what_two_share() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    wrapping = wrapping_of(model)
    model.register_parameter("scale", torch.nn.Parameter(torch.ones(1)))
    with pytest.raises(InputError, match="parameter scale must be in a layer of the plan"):
        apply(model, wrapping)
    model[1].weight = model[0].weight
    with pytest.raises(InputError, match="layers 0 and 1 share a parameter"):
        apply(model, wrapping)
