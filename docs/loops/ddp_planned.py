"""DistributedDataParallel: torchrun --standalone --nproc-per-node=2 docs/loops/ddp.py."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gapless.torch import planned

torch.distributed.init_process_group("gloo")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 128), *(layer for _ in range(6) for layer in (nn.GELU(), nn.Linear(128, 128))))
model = DistributedDataParallel(planned(model, budget="0.7x"), bucket_cap_mb=0.1)
optimiser = torch.optim.AdamW(model.parameters(), lr=0.003)

for step in range(50):
    optimiser.zero_grad()
    given = torch.randn(256, 16, generator=torch.Generator().manual_seed(ranks * step + rank))
    loss = (model(given) - given.repeat(1, 8)).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    print(f"rank {rank}, step {step}: loss {loss.item()!r}\n", end="")  # in one piece
torch.distributed.destroy_process_group()
