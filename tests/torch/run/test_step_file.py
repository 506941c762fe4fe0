"""Planned steps in files: saved with their capture in one call, made steps again in one; refused where they don't fit.

Without torch these tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn import functional

import gapless.torch
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, read_plan, write_plan
from gapless.options import SolveOptions
from gapless.torch.capture.graph import capture
from gapless.torch.run import StepPlan, plan, run

QUICK = SolveOptions(gap=1.0, time_limit_s=20.0, threads=1)
Given, Target = torch.randn(16, 8), torch.randint(4, (16,))


def network(width: int = 8, layers: int = 3) -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1)) for _ in range(layers)]
    return nn.Sequential(*blocks, nn.Linear(width, 4))


def planned(model: nn.Module, **options: Any) -> StepPlan:
    step = capture(model, (Given,), functional.cross_entropy, targets=(Target,), **options)
    return plan(step, Problem(step.graph, 25_000), QUICK)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What is in the file of a planned step."""
    path = tmp_path_factory.mktemp("saved") / "step.json"
    planned(network()).save(path)
    return path.read_bytes()


@pytest.fixture
def path(saved: bytes, tmp_path: Path) -> Path:
    (tmp_path / "step.json").write_bytes(saved)
    return tmp_path / "step.json"


# -- tomorrow ----------------------------------------------------------------------------------------------------------


def test_step_from_a_file_trains_as_the_plan_does(path: Path) -> None:
    model, other = network(), network()
    train = gapless.torch.load(path, model, functional.cross_entropy, tolerance=0.0)
    today = run(planned(other), other)
    for _ in range(2):
        torch.manual_seed(1)
        loss = train(Given, Target)
        torch.manual_seed(1)
        assert torch.equal(loss, today(Given, Target))
    assert train.difference is not None
    assert train.difference.is_equal
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.grad, its.grad)  # type: ignore[arg-type]
    assert train.plan.peak_bytes == check(read_plan(path).schedule).peak_bytes[0] <= 25_000


@pytest.mark.thorough
def test_another_process_trains_in_three_lines(path: Path, tmp_path: Path) -> None:
    source = """
import torch, gapless.torch
from torch import nn
def make():
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)]
    return nn.Sequential(*blocks, nn.Linear(8, 4))
model = make()
train = gapless.torch.load("step.json", model, nn.functional.cross_entropy)
train(torch.randn(16, 8), torch.randint(4, (16,)))
"""
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "bit-equal to eager's" in done.stderr


def test_file_is_a_plan_file_of_plain_values(path: Path) -> None:
    data = json.loads(path.read_text())
    assert data["format"] == "gapless.plan"
    assert data["details"]["capture"]["inputs"] == {
        "tuple": [{"shape": [16, 8], "strides": [8, 1], "dtype": "float32", "device": "cpu"}]
    }


def test_loaded_plan_can_be_saved_again(path: Path, tmp_path: Path) -> None:
    gapless.torch.load(path, network(), functional.cross_entropy).plan.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())


def test_arguments_by_name_and_close_kinds_are_kept(tmp_path: Path) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)

        def forward(self, words: torch.Tensor, pair: Any) -> dict[str, torch.Tensor]:
            found = self.head(self.words(words) + pair[0] + pair[1]["more"])
            return {"loss": functional.cross_entropy(found.flatten(0, 1), words.flatten())}

    def loss(found: dict[str, torch.Tensor]) -> torch.Tensor:
        return found["loss"]

    model, words = Named(), torch.randint(50, (4, 8))
    inputs = {"words": words, "pair": [torch.randn(4, 8, 8), {"more": torch.randn(8).double().float()}]}
    step = capture(model, inputs, loss, close=("loss",), name="named")
    plan(step, Problem(step.graph, 10**6), QUICK).save(tmp_path / "step.json")
    train = gapless.torch.load(tmp_path / "step.json", model, loss)
    train(**inputs)
    assert train.plan.step.close == ("loss",)
    assert train.plan.step.graph.name == "named"
    assert train.difference is not None


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusal(path: Path, model: nn.Module, loss: Any = functional.cross_entropy) -> str:
    with pytest.raises(InputError) as caught:
        gapless.torch.load(path, model, loss)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_other_models_are_refused(path: Path) -> None:
    assert "step.json: plan must be for the step 'Sequential', is for another" in refusal(path, network(layers=2))
    assert "is for another: it has" in refusal(path, network(layers=4))
    assert "can't be captured as one graph" in refusal(path, network(width=9))
    assert "is for training mode; set the model to it" in refusal(path, network().eval())
    frozen = network()
    frozen[0].requires_grad_(False)  # type: ignore[index]
    assert "is for another" in refusal(path, frozen)


def test_other_losses_are_refused(path: Path) -> None:
    def other(found: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.nll_loss(found, target)

    assert "is for another" in refusal(path, network(), other)
    assert "the loss must be one scalar tensor" in refusal(path, network(), lambda found, target: found)


def test_plan_of_another_pytorch_is_refused(path: Path) -> None:
    data = json.loads(path.read_text())
    data["details"]["capture"]["pytorch"] = "1.13.1"
    path.write_text(json.dumps(data))
    assert "got one of 1.13, whose operators may differ" in refusal(path, network())


def test_plan_without_its_capture_is_refused(path: Path, tmp_path: Path) -> None:
    saved = read_plan(path)
    write_plan(tmp_path / "bare.json", SavedPlan(saved.system, saved.problem, saved.claim, {}, saved.schedule))
    assert "must be a plan with the record of its capture" in refusal(tmp_path / "bare.json", network())


def test_plan_that_no_solve_has_made_is_not_saved(tmp_path: Path) -> None:
    found = planned(network())
    with pytest.raises(InputError, match="was not solved for"):
        StepPlan.of(found.step, found.schedule).save(tmp_path / "step.json")


@pytest.mark.parametrize(
    ("place", "value", "rule"),
    [
        (("inputs",), 3, "inputs: must be a JSON object"),
        (("inputs",), {"list": []}, "must be as `save` wrote it"),
        (("inputs", "tuple"), [{"pickle": "cos\nsystem"}], "field 'shape' is missing"),
        (("inputs", "tuple", 0, "shape"), [-1], "must be a whole number in 0"),
        (("inputs", "tuple", 0, "strides"), [1], "can't be made"),
        (("inputs", "tuple", 0, "dtype"), "os.system", "must be one of"),
        (("inputs", "tuple", 0, "device"), "cuda:7000", "can't be made"),
        (("inputs", "tuple", 0, "device"), "nowhere", "can't be made"),
        (("close",), [["loss"]], "must be as `save` wrote it"),
        (("close",), "loss", "must be a list"),
        (("name",), 3, "must be a string"),
        (("is_training",), "yes", "must be true or false"),
    ],
)
def test_spoilt_records_are_refused(path: Path, place: tuple[Any, ...], value: Any, rule: str) -> None:
    data = json.loads(path.read_text())
    record = data["details"]["capture"]
    for key in place[:-1]:
        record = record[key]
    record[place[-1]] = value
    path.write_text(json.dumps(data))
    found = refusal(path, network())
    assert found.startswith(f"{path}: details: capture")
    assert rule in found


def test_arguments_of_other_kinds_are_not_saved(tmp_path: Path) -> None:
    from collections import OrderedDict

    model = network()
    step = capture(model, {"input": Given}, lambda found, pair: (found.mean(0) + pair["a"]).sum(), targets=(
        OrderedDict(a=torch.ones(4)),
    ))  # fmt: skip
    found = plan(step, Problem(step.graph, 10**6), QUICK)
    with pytest.raises(InputError, match="nested tuples, lists and dicts of tensors, got a OrderedDict"):
        found.save(tmp_path / "step.json")
    assert not (tmp_path / "step.json").exists()
