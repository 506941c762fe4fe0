"""A compiled loop: Inductor's kernels, AdamW, a small last batch."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), *(layer for _ in range(4) for layer in (nn.GELU(), nn.Linear(64, 64))))
optimiser = torch.optim.AdamW(model.parameters(), lr=0.003)
model = torch.compile(model, backend="gapless", options={"budget": "0.8x"})
given = torch.randn(512, 16)

for step in range(50):
    optimiser.zero_grad()
    rows = given[: 100 if step % 5 == 4 else 256]
    loss = (model(rows) - rows.repeat(1, 4)).pow(2).mean()
    loss.backward()
    optimiser.step()
    print(f"step {step}: loss {loss.item()!r}")
