"""Sharding: tables that lie on the trainers themselves, without servers and without a cache (model parallelism).

This is what TorchRec does (section 5.1, 5.4.1): each row lies for ever in the memory of one trainer, its *shard*.
Before the forward pass of a batch, the shards look up its ids, add up the rows of each bag, and an all-to-all brings
every trainer the pooled vectors of its examples. After the backward pass the gradients of these vectors go back the
same way. No vector is sent once for two examples, however many share a row.

- `table-wise`: a table lies on one trainer, table t on trainer t mod p. A vector is sent for each example and each
  table of another trainer.
- `row-wise`: the rows of every table are spread over all trainers. Each of them has a part of any pooled vector, so
  that a reduce-scatter adds up p parts: each trainer sends one for every example of the others and every table.

How many vectors move depends on the examples of each trainer, not on which examples they are: no partition is better
than another of the same sizes.
"""

from __future__ import annotations

import numpy as np

from gapless.array_types import Ints
from gapless.profiles.traces.trace import TABLE_SHIFT

__all__ = ["pooled_vectors", "shard_of"]


def shard_of(ids: Ints, trainers: int, design: str) -> Ints:
    """The trainer on which each row lies, of global ids; `design`: of `SHARDED`."""
    table = ids >> TABLE_SHIFT
    if design == "table-wise":
        return table % trainers
    return (table + ids) % trainers  # the first rows, the hottest, of different tables on different trainers


def pooled_vectors(examples: Ints, tables: int, design: str) -> tuple[int, int, int]:
    """Vectors that all trainers send in a batch; of the busiest, those it sends or those it gets, and both.

    `examples`: of each trainer, int64, shape (p,). Gradients go back the same way, as many.
    """
    trainers = len(examples)
    elsewhere = int(examples.sum()) - examples
    if design == "table-wise":
        own = (tables + trainers - 1 - np.arange(trainers)) // trainers
        sent, got = own * elsewhere, (tables - own) * examples
    else:
        sent, got = tables * elsewhere, tables * examples * (trainers - 1)
    return int(sent.sum()), int(np.maximum(sent, got).max()), int((sent + got).max())
