"""Small models with bags, trained by plans under each optimiser: programs of one rank. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.question import MODELS
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace_question import OPTIMIZERS
from gapless.torch.embeddings.task import Task
from gapless.torch.embeddings.workers import train_rank

TABLE_ROWS, DIMENSION, BATCH_SIZE = (60, 9, 150), 8, 16
STEP_SIZES = {"sgd": 2.0, "rowwise-adagrad": 0.1, "adagrad": 0.1, "adam": 0.01}


CASES = (*OPTIMIZERS, *MODELS[1:])
"""A DLRM by each optimiser; the other models by plain descent."""


def task(case: str, ranks: int) -> Task:
    """What is trained."""
    optimizer, model = (case, MODELS[0]) if case in OPTIMIZERS else ("sgd", case)
    return Task(ranks, TABLE_ROWS, DIMENSION, optimizer, STEP_SIZES[optimizer], seed=3, wait_s=120.0, model=model)


def plans(ranks: int) -> list[BatchPlan]:
    """Of unequal trainers, three of which replicate a table; the last batch is short."""
    trace = zipf_trace(TABLE_ROWS, 1.1, BATCH_SIZE * 8 + 5, seed=5, pooling=[1, 3, 2])
    replicated = (1,) if ranks == 3 else ()
    planning = Planning(ranks, BATCH_SIZE, 3, shares=(3.0, 2.0, 1.0)[:ranks], replicated=replicated)
    return list(batch_plans(trace, planning))


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """One rank of training in each case."""
    ranks = torch.distributed.get_world_size()
    return {name: train_rank(rank, task(name, ranks), plans(ranks)) for name in CASES}
