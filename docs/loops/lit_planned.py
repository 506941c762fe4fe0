"""Lightning: accumulation, bf16, clipping, validation, checkpoints, a small last batch."""

import tempfile

import lightning
import torch
from torch import nn

from gapless.torch.lightning import PlannedCallback


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        print(f"step {self.global_step}: loss {loss.item()!r}")
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        images, labels = batch
        print(f"validated: {nn.functional.cross_entropy(self.model(images), labels).item()!r}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.003)


torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(148, 16), torch.randint(10, (148,)))
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_steps=50, accumulate_grad_batches=2, precision="bf16-mixed", gradient_clip_val=1.0, accelerator="cpu",
        default_root_dir=folder, logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[PlannedCallback("0.9x")],
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    trainer.fit(Classifier(), loader, torch.utils.data.DataLoader(data, batch_size=148))
