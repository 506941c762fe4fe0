"""`gapless run monet`: the table, the JSON object, the plan file, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from extras import needs_torch

from gapless.cli.main import main

_SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, share):
        super().__init__()
        layers = []
        for _ in range(4):
            layers.append(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(share)))
        self.layers = nn.ModuleList(layers)

    def forward(self, given):
        for layer in self.layers:
            given = layer(given)
        return given

def dropping():
    torch.manual_seed(0)
    return Model(0.1), torch.randn(256, 64), nn.functional.mse_loss, (torch.randn(256, 64),)

def plain():
    torch.manual_seed(0)
    return Model(0.0), (torch.randn(256, 64),), nn.functional.mse_loss, (torch.randn(256, 64),)

class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(300, 32), nn.Linear(32, 96), nn.Linear(32, 300)

    def forward(self, words, labels):
        query, key, value = self.inner(self.words(words)).chunk(3, -1)
        found = nn.functional.dropout((query @ key.transpose(1, 2)).softmax(-1), 0.1) @ value
        return nn.functional.cross_entropy(self.head(found).flatten(0, 1), labels.flatten())

def attending():
    torch.manual_seed(0)
    return Attending(), (torch.randint(300, (8, 64)), torch.randint(300, (8, 64)))

def nothing():
    return None

class Other(Model):
    def forward(self, given):
        return super().forward(given) * (2 if type(given) is torch.Tensor else 1)  # while tracing, it is no such thing

def other():
    torch.manual_seed(0)
    return Other(0.0), (torch.randn(256, 64),), nn.functional.mse_loss, (torch.randn(256, 64),)

def wrapped():
    return nn.DataParallel(Model(0.0)), (torch.randn(256, 64),), nn.functional.mse_loss, (torch.randn(256, 64),)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "made.py"
    path.write_text(_SOURCE)
    return path


def test_core_imports_no_torch() -> None:
    script = (
        "import sys, gapless, gapless.cli.main, gapless.checker, gapless.encodings.monet.solve\n"
        "import gapless.profiles.training.networks, gapless.profiles.training.graph_file\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@needs_torch
class TestWithTorch:
    """What needs PyTorch."""

    @pytest.mark.thorough
    def test_table_has_a_line_for_each_method(self, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        options = ["--budget", "0.8x", "--gap", "1", "--time-limit", "20", "--steps", "1"]
        assert main(["run", "monet", "--model", f"{source}:dropping", *options]) == 0
        shown = capsys.readouterr().out
        for method in ("eager", "checkpoint per block", "selective checkpointing", "gapless"):
            (line,) = [line for line in shown.splitlines() if line.startswith(f"{method} ")]
            assert line.endswith("equal to eager's")
        assert "\nactivation_memory_budget 0." in shown

    def test_json_object_and_plan_file_hold_what_was_measured(
        self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        written, cache = tmp_path / "plan.json", tmp_path / "ops.json"
        options = [
            "--budget",
            "0.85x",
            "--gap",
            "1",
            "--steps",
            "1",
            "--json",
            "-o",
            str(written),
            "--cache",
            str(cache),
        ]
        assert main(["run", "monet", "--model", f"{source}:plain", *options]) == 0
        data = json.loads(capsys.readouterr().out)
        methods = {method["name"].split()[0]: method for method in data["methods"]}
        ours = methods["gapless"]
        assert ours["is_equal"]
        assert ours["peak_bytes"] <= data["peak_bytes"] <= data["budget_bytes"] < methods["eager"]["peak_bytes"]
        assert methods["activation_memory_budget"]["is_equal"] is not None
        assert cache.exists()
        assert main(["check", str(written)]) == 0

    @pytest.mark.thorough
    def test_close_implementations_are_used_where_asked_for_and_their_difference_reported(
        self, source: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--model", f"{source}:attending", "--budget", "0.7x", "--gap", "1", "--steps", "1"]
        assert main(["run", "monet", *options, "--close", "all", "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        ours = data["methods"][-1]
        assert data["close"] == {"attention": 1, "loss": 1}
        assert not ours["is_equal"]
        assert 0 < ours["difference"] < 1e-5
        assert main(["run", "monet", *options, "--close", "attention,loss", "--time-limit", "20"]) == 0
        shown = capsys.readouterr().out
        assert "attention 1, loss 1" in shown
        assert "of their norm" in shown

    @pytest.mark.thorough
    def test_step_that_differs_from_eager_ends_with_exit_code_5(
        self, source: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = ["--model", f"{source}:other", "--budget", "0.9x", "--gap", "1", "--steps", "1"]
        assert main(["run", "monet", *options]) == 5
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "must equal eager's" in line]
        assert "the tolerance is 0.0001" in line
        assert main(["run", "monet", *options, "--tolerance", "1"]) == 0

    def test_wrapped_model_is_refused_in_one_line(self, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "monet", "--model", f"{source}:wrapped", "--budget", "0.9x", "--quiet"]) == 2
        shown = capsys.readouterr().err
        assert "pass model.module" in shown
        assert shown.count("\n") == 1

    @pytest.mark.thorough
    def test_plan_file_trains_in_one_call(self, source: Path, tmp_path: Path) -> None:
        import torch

        import gapless.torch
        from gapless.torch.run import load_workload

        written = tmp_path / "plan.json"
        options = ["--budget", "0.85x", "--gap", "1", "--steps", "1", "--quiet", "-o", str(written)]
        assert main(["run", "monet", "--model", f"{source}:plain", *options]) == 0
        work = load_workload(f"{source}:plain")
        train = gapless.torch.load(written, work.model, work.loss, tolerance=0.0)
        assert torch.isfinite(train(*work.inputs, *work.targets))

    def test_unknown_kind_of_close_implementations_is_refused(
        self, source: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["run", "monet", "--model", f"{source}:plain", "--budget", "0.7x", "--close", "attention,fast"])
        assert raised.value.code == 2
        assert "must be one of attention, loss, norm, all, got 'fast'" in capsys.readouterr().err

    @pytest.mark.thorough
    def test_impossible_budget_ends_with_exit_code_3(self, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "monet", "--model", f"{source}:plain", "--budget", "1KB", "--quiet"]) == 3
        assert "every plan needs at least" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            ("made", "must be MODULE:FACTORY or FILE.py:FACTORY, got 'made'"),
            ("no_such_module:make", "can't be imported"),
            ("{}:missing", "has no function 'missing'"),
            ("{}:nothing", "must return (model, inputs) or (model, inputs, loss, targets)"),
        ],
    )
    def test_what_is_no_factory_is_refused(
        self, source: Path, capsys: pytest.CaptureFixture[str], model: str, message: str
    ) -> None:
        assert main(["run", "monet", "--model", model.format(source), "--budget", "0.5x"]) == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert shown.count("\n") == 1
