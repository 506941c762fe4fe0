"""Callbacks that let the models of trainers follow plans: losses have eager's bits, and models are as before after it.

Those of a trainer that isn't installed are left out.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch import planned, unplanned

pytestmark = [pytest.mark.extra("trainers"), pytest.mark.filterwarnings("ignore")]  # theirs

ROWS = 10


class Net(nn.Module):
    """Takes what a Trainer gives, and returns the loss as it wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop, self.outer = nn.Linear(6, 24), nn.Dropout(0.2), nn.Linear(24, 3)

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.outer(self.drop(self.inner(given).relu()))
        return {"loss": nn.functional.cross_entropy(found, labels), "logits": found}


def data() -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    return [{"given": torch.randn(6), "labels": torch.tensor(row % 3)} for row in range(ROWS)]


def net() -> Net:
    torch.manual_seed(0)
    return Net()


# -- transformers ------------------------------------------------------------------------------------------------------


def trainer(model: nn.Module, folder: Path, *callbacks: Any, **more: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    options = {"bf16": True, "num_train_epochs": 2, **more}
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1, save_steps=2,
        eval_strategy="epoch", use_cpu=True, report_to=[], disable_tqdm=True, **options,
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=data(), eval_dataset=data()[:4], callbacks=list(callbacks))


def logged(its: Any) -> list[Any]:
    names = ("loss", "grad_norm", "eval_loss")
    return [(name, line[name]) for line in its.state.log_history for name in names if name in line]


def test_trainer_with_the_callback_has_eagers_losses_and_leaves_the_model_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gapless.torch.huggingface import PlannedCallback

    eager = trainer(net(), tmp_path / "a")  # sets the seed
    eager.train()
    with_plans = trainer(net(), tmp_path / "b", PlannedCallback("1.0x"))
    with_plans.train()
    assert len(logged(eager)) >= 6
    assert logged(with_plans) == logged(eager)
    assert capsys.readouterr().err.count("gapless: planned a call of") == 2  # of 4 rows, and of the last 2
    with pytest.raises(InputError, match="follows no plans"):
        unplanned(with_plans.model)


@pytest.mark.thorough
def test_trainer_goes_on_from_a_checkpoint_with_eagers_losses(tmp_path: Path) -> None:
    from gapless.torch.huggingface import PlannedCallback

    found = []
    for name, callbacks in (("a", []), ("b", [PlannedCallback("1.0x")])):
        trainer(net(), tmp_path / name, *callbacks).train()
        again = trainer(net(), tmp_path / name, *callbacks, num_train_epochs=4)
        again.train(resume_from_checkpoint=True)
        found.append(logged(again))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["gradient_checkpointing", "torch_compile"])
def test_what_leaves_a_plan_no_room_is_refused_when_training_begins(name: str) -> None:
    from types import SimpleNamespace

    from gapless.torch.huggingface import PlannedCallback

    with pytest.raises(InputError, match=f"PlannedCallback: {name} .*leave it out"):
        PlannedCallback("0.9x").on_train_begin(SimpleNamespace(**{name: True}), None, None, model=net())


@pytest.mark.thorough
@pytest.mark.parametrize("plans_first", [True, False])
def test_accelerate_in_bf16_has_eagers_losses(plans_first: bool) -> None:
    from accelerate import Accelerator

    found = []
    for with_plans in (False, True):
        accelerator = Accelerator(mixed_precision="bf16", cpu=True)
        model = net()
        if with_plans and plans_first:
            planned(model, "1.0x")
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimiser = accelerator.prepare(model, optimiser)
        if with_plans and not plans_first:
            planned(model, "1.0x")
        batch = torch.utils.data.default_collate(data())
        losses = []
        for step in range(3):
            torch.manual_seed(step)
            loss = model(**batch)["loss"]
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
        inner = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        losses.append(inner(**batch)["loss"].dtype)
        found.append(losses)
    assert found[0] == found[1]


# -- Lightning ---------------------------------------------------------------------------------------------------------


def fitted(name: str, folder: Path, *callbacks: Any, **more: Any) -> tuple[list[float], nn.Module]:
    """Losses and module of a fit whose `training_step` calls the named module of its own, or itself."""
    import lightning

    losses: list[float] = []

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.other = net(), nn.Linear(2, 2)

        if not name:

            def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
                return self.model(**batch)

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss = (getattr(self, name) if name else self)(**batch)["loss"]
            losses.append(loss.item())
            return loss

        def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
            losses.append(self.model(**batch)["loss"].item())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    options = {
        "max_epochs": 2, "accumulate_grad_batches": 2, "precision": "bf16-mixed", "gradient_clip_val": 0.5,
        "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": False, "default_root_dir": folder, **more,
    }  # fmt: skip
    torch.manual_seed(0)
    lit = Lit()
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    lightning.Trainer(callbacks=list(callbacks), **options).fit(lit, loader, loader)
    return losses, lit


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["model", ""])
def test_lightning_with_the_callback_has_eagers_losses_and_leaves_the_module_as_it_was(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gapless.torch.lightning import PlannedCallback

    expected, _ = fitted(name, tmp_path)
    found, lit = fitted(name, tmp_path, PlannedCallback("1.0x", module=name))
    assert found == expected
    assert "gapless: planned a call of [4, 6], [4]" in capsys.readouterr().err
    assert not any("forward" in vars(module) for module in lit.modules())
    assert pickle.dumps(lit.model)


@pytest.mark.thorough
def test_module_that_training_doesnt_call_is_one_line(tmp_path: Path) -> None:
    from gapless.torch.lightning import PlannedCallback

    with pytest.raises(InputError, match=r"training_step has not called other, .* module= one of 'model', 'other'"):
        fitted("model", tmp_path, PlannedCallback("1.0x", module="other"))
    with pytest.raises(InputError, match=r"Lit has no forward of its own; name .* module= one of model, other"):
        fitted("model", tmp_path, PlannedCallback("1.0x"))
    with pytest.raises(InputError, match=r"module: must be one of model, other, or within one, got 'no'"):
        fitted("model", tmp_path, PlannedCallback("1.0x", module="no"))
