"""A training loop by a run, in each of two processes: to its end, and with a stop in between. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gapless import bagpipe
from gapless.encodings.bagpipe.training.loop import Planned, planned
from gapless.errors import InputError
from gapless.profiles.traces.generators import zipf_trace
from gapless.torch.embeddings.sharding import Sharding

TABLE_ROWS, BATCH_SIZE, DIMENSION, RANKS = (60, 9, 150), 16, 8, 2
TRACE = zipf_trace(TABLE_ROWS, 1.1, BATCH_SIZE * 8 + 5, seed=5, pooling=[1, 3, 2])
DESIGNS = ("lrpp-fine-grained", "partitioned", "lrpp-delayed")
STOP = 5


def solved(design: str) -> Any:
    """The plan of a run."""
    asked = {"lookahead": None if design == "table-wise" else 2, "design": design, "dimension": DIMENSION}
    return bagpipe.solve(TRACE, trainers=RANKS, batch_size=BATCH_SIZE, optimizer="adagrad", **asked).plan


def loop_of(design: str) -> tuple[Planned, torch.Tensor]:
    """This process's batches, and the rows of its server, at their beginning."""
    sharding = Sharding(TABLE_ROWS, RANKS)
    table = 0.1 * torch.randn(sum(TABLE_ROWS), DIMENSION, generator=torch.Generator().manual_seed(1))
    weights = table[sharding.rows_of(torch.distributed.get_rank())].clone()
    return planned(solved(design), sharding, weights, step_size=0.1, optimizer="adagrad", trace=TRACE), weights


def trained(batches: Planned, model: torch.nn.Linear, stop: int | None = None) -> list[list[int]]:
    """The examples of each batch."""
    optimiser, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
    for batch in batches:
        loss = model(batch.pooled().flatten(1)).square().sum() / batch.batch_examples
        optimiser.zero_grad()
        loss.backward()
        batch.update(model.parameters())
        optimiser.step()
        seen.append(batch.examples.tolist())
        if batch.number + 1 == stop:
            return seen
    return seen


def model_of() -> torch.nn.Linear:
    """The dense part."""
    torch.manual_seed(0)
    return torch.nn.Linear(len(TABLE_ROWS) * DIMENSION, 1)


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """By each design at once; and with a stop, from whose state another loop goes on."""
    found: dict[str, Any] = {}
    for design in DESIGNS:
        model = model_of()
        batches, weights = loop_of(design)
        seen = trained(batches, model)
        first, again = model_of(), model_of()
        begun, _ = loop_of(design)
        before = trained(begun, first, STOP)
        assert list(begun.examples()) == seen
        state = begun.state_dict()
        again.load_state_dict(first.state_dict())
        rest = trained(begun, first)  # goes on where it was
        resumed, other = loop_of(design)
        resumed.load_state_dict(state)
        after = trained(resumed, again)
        assert before + rest == before + after == seen
        found[design] = {
            "weights": weights, "resumed": other, "model": [each.detach() for each in model.parameters()],
            "again": [each.detach() for each in again.parameters()],
            "first": [each.detach() for each in first.parameters()],
            "examples": seen, "at_stop": state["weights"],
        }  # fmt: skip
    found["refused"] = refused()
    return found


def refused() -> dict[str, str]:
    """What is said of states and calls that make no sense."""
    said = {}
    batches, weights = loop_of(DESIGNS[0])
    state = batches.state_dict()
    for name, change in {
        "ids": {"ids": "0"}, "optimizer": {"optimizer": "adam"}, "batch": {"batch": 99},
        "shape": {"weights": weights[:3]},
    }.items():  # fmt: skip
        try:
            batches.load_state_dict({**state, **change})
        except InputError as error:
            said[name] = str(error)
    try:
        planned(solved("table-wise"), Sharding(TABLE_ROWS, RANKS), weights, step_size=0.1, optimizer="sgd", trace=TRACE)
    except InputError as error:
        said["design"] = str(error)
    try:
        planned(solved(DESIGNS[0]), Sharding(TABLE_ROWS, 3), weights, step_size=0.1, optimizer="sgd", trace=TRACE)
    except InputError as error:
        said["servers"] = str(error)
    for name in ("no backward", "not updated"):
        batches = iter(loop_of(DESIGNS[0])[0])
        try:
            batch = next(batches)
            if name == "no backward":
                batch.update(())
            next(batches)
        except InputError as error:
            said[name] = str(error)
    return said
