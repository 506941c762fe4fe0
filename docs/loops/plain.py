"""A plain loop: accumulation over four batches, a scaler under autocast, clipping, evaluation."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.drop(self.outer(nn.functional.gelu(self.inner(self.norm(hidden)))))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), *(Block(32) for _ in range(4)), nn.Linear(32, 10))
optimiser = torch.optim.AdamW(model.parameters(), lr=0.003)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
images, labels = torch.randn(512, 16), torch.randint(10, (512,))

for step in range(50):
    total = 0.0
    for _ in range(4):
        rows = torch.randint(512, (32,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows]) / 4
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimiser)
    scaler.update()
    optimiser.zero_grad()
    print(f"step {step}: loss {total!r}")
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            print(f"evaluated: {nn.functional.cross_entropy(model(images), labels).item()!r}")
        model.train()
