"""Layers of any module, measured in whole steps. Without torch these tests are skipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.cli.main import main
from gapless.errors import InputError
from gapless.torch.fsdp.layers import layers_of
from gapless.torch.fsdp.measuring import measure_step
from gapless.torch.run.workload import Workload

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORY = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, scale=1.0):
        return x + self.narrow(self.wide(scale * self.norm(x)).relu()), scale  # a tuple, as many have it

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 11)
        self.decoder = nn.Module()
        self.decoder.tokens = nn.Embedding(11, 8)
        self.decoder.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, ids, labels):
        x = self.decoder.tokens(ids)
        for block in self.decoder.blocks:
            x, _ = block(nn.functional.dropout(x, 0.1, self.training), scale=0.5)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

def net():
    ids = torch.randint(0, 11, (2, 5))
    return Net(), {"ids": ids, "labels": ids}
"""


@pytest.fixture
def work() -> Workload:
    names: dict[str, object] = {}
    exec(FACTORY, names)
    model, inputs = names["net"]()  # type: ignore[operator]
    return Workload(model, inputs)


def test_layers_are_entries_of_lists_and_what_stands_beside_them(work: Workload) -> None:
    blocks = [f"decoder.blocks.{number}" for number in range(3)]
    assert list(layers_of(work.model)) == ["head", "decoder.tokens", *blocks]
    assert list(layers_of(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1)))) == ["0.0", "1"]
    assert list(layers_of(work.model, ["decoder.tok*", "*.blocks.*", "head"])) == ["head", "decoder.tokens", *blocks]


def test_parameters_in_no_layer_or_in_two_are_refused(work: Workload) -> None:
    with pytest.raises(InputError, match=r"parameter head.weight must be in a layer.*; name 'head' in layers"):
        layers_of(work.model, ["decoder.*"])
    with pytest.raises(InputError, match="no module of the model is named 'tail'"):
        layers_of(work.model, ["*", "tail"])
    work.model.head.weight = work.model.decoder.tokens.weight
    with pytest.raises(InputError, match=r"layers head and decoder\.tokens share a parameter; untie it"):
        layers_of(work.model)


def test_a_profile_has_layers_in_the_order_in_which_they_run(work: Workload) -> None:
    profile = measure_step("net", work, repeats=2)
    assert profile.layer_names == ("decoder.tokens", *(f"decoder.blocks.{number}" for number in range(3)), "head")
    block = 4 * (16 + 8 * 16 + 16 + 16 * 8 + 8)
    assert profile.parameter_bytes.tolist() == [4 * 8 * 11, block, block, block, 4 * 9 * 11]
    assert (profile.forward_s > 0).all()
    assert (profile.backward_s > 0).all()
    assert profile.boundary_bytes.tolist() == [4 * 2 * 5 * 8] * 4 + [0]
    assert profile.stash_bytes[2] == profile.stash_bytes[3] > 4 * 2 * 5 * (8 + 16), "equal layers keep equally much"


def test_a_layer_runs_once_and_gradients_come_in_reverse(work: Workload) -> None:
    head, twice = nn.Linear(2, 1), nn.Linear(2, 2)
    with pytest.raises(InputError, match="layer decoder is never called; FSDP2 gathers a layer where it is called"):
        measure_step("net", work, ["decoder", "head"])
    with pytest.raises(InputError, match="layer 0 is called 2 times"):
        measure_step("net", Workload(nn.Sequential(twice, twice, head), (torch.ones(1, 2),)))
    with pytest.raises(InputError, match=r"the loss must be a tensor of one number, got a tensor of \(3, 1\)"):
        measure_step("net", Workload(nn.Sequential(head), (torch.ones(3, 2),)))


@pytest.mark.thorough
def test_a_model_of_any_shape_runs_by_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tuple between layers, a loss of the model's own, dropout, and modules in another order than they run."""
    (tmp_path / "own.py").write_text(FACTORY, encoding="utf-8")
    model, profile, plan = (str(tmp_path / name) for name in ("own.py:net", "profile.json", "plan.json"))
    assert main(["profile", "fsdp", "--model", model, "--repeats", "1", "-o", profile]) == 0
    assert "solve with --stored fp32" in capsys.readouterr().out
    asked = ["--profile", profile, "--stored", "fp32", "--gather", "fp32", "--ranks", "2", "--bandwidth", "1MB/s"]
    assert main(["solve", "fsdp", *asked, "--quiet", "-o", plan]) == 0
    assert main(["run", "fsdp", "--plan", plan, "--model", model, "--repeats", "1", "--dilation", "5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["equal"] == row["gradients"] > 0 and row["in_order"] for row in rows)
