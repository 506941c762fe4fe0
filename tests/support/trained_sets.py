"""Index sets of a small character model that is really trained, on English that comes with Python."""

from __future__ import annotations

from functools import cache
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from gapless.profiles.sparsity.index_sets import IndexSets

TEXT = "".join(topics[name] for name in sorted(topics))[:60_000]
"""Of Python's reference: it doesn't change when pages of this project do."""

WIDTH, LENGTH, BATCH = 96, 32, 4


@cache
def trained_sets(ranks: int, steps: int, density: float, warm_up: int, seed: int = 0) -> IndexSets:
    """Each rank's largest gradients over `steps` steps of data-parallel training, after `warm_up` steps of one rank.

    A GRU of two layers between an embedding and two linear layers, Adam, 32 characters; every rank has its own batch.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    alphabet = sorted(set(TEXT))
    letters = torch.tensor([alphabet.index(letter) for letter in TEXT])
    model = _model(torch, len(alphabet))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(seed + 1)

    def gradient() -> np.ndarray[Any, Any]:
        starts = torch.randint(0, len(letters) - LENGTH - 1, (BATCH,), generator=generator)
        rows = torch.stack([letters[start : start + LENGTH + 1] for start in starts])
        model.zero_grad()
        outputs = model(rows[:, :-1]).reshape(-1, len(alphabet))
        torch.nn.functional.cross_entropy(outputs, rows[:, 1:].reshape(-1)).backward()
        return np.concatenate([weight.grad.reshape(-1).numpy() for weight in model.parameters()])

    for _ in range(warm_up):
        gradient()
        optimizer.step()
    held, values = [], []
    elements = sum(weight.numel() for weight in model.parameters())
    for _ in range(steps):
        total = np.zeros(elements, dtype=np.float32)
        for _ in range(ranks):
            entries = gradient()
            total += entries / ranks
            top = np.sort(np.argpartition(-np.abs(entries), round(density * elements))[: round(density * elements)])
            held.append(top.astype(np.int32))
            values.append(entries[top])
        first = 0
        for weight in model.parameters():
            weight.grad = torch.from_numpy(total[first : first + weight.numel()]).reshape(weight.shape)
            first += weight.numel()
        optimizer.step()
    starts = np.append(0, np.cumsum([len(one) for one in held]))
    sizes = [weight.numel() for weight in model.parameters()]
    return IndexSets(
        "characters", elements, steps, ranks, starts, np.concatenate(held), np.concatenate(values),
        np.append(0, np.cumsum(sizes)[:-1]), tuple(name for name, _ in model.named_parameters()),
    )  # fmt: skip


def _model(torch: Any, letters: int) -> Any:
    class Characters(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(letters, WIDTH)
            self.recurrent = torch.nn.GRU(WIDTH, WIDTH, 2, batch_first=True)
            self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
            self.output = torch.nn.Linear(WIDTH, letters)

        def forward(self, rows: Any) -> Any:
            hidden, _ = self.recurrent(self.embedding(rows))
            return self.output(hidden + self.narrow(torch.relu(self.wide(hidden))))

    return Characters()
