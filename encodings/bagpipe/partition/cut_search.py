"""Local search on cuts: blocks of examples are placed anew, each by an exact transport, as in `search.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.encodings.bagpipe.parameters import Search
from gapless.encodings.bagpipe.partition.cuts import Cuts, Ints
from gapless.encodings.bagpipe.partition.search import blocks
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.options import Deadline

__all__ = ["Placed", "place_all", "search_cuts"]


@dataclass(frozen=True)
class Placed:
    """The partition found, what it costs, and how many rounds of how many were steps down or sideways.

    `is_cut`: whether the deadline came before the last round.
    """

    trainer: Ints
    cost: float
    rounds: int
    accepted: int
    is_cut: bool


def place_all(cuts: Cuts, capacity: Ints) -> Ints:
    """All examples at once, each where its rows cost least if nobody shared them."""
    nobody = np.zeros((cuts.rows, cuts.trainers), np.int32)
    return transport(cuts.marginal_costs(np.arange(cuts.examples), nobody), capacity).trainer


def search_cuts(cuts: Cuts, start: Ints, parameters: Search, seed: int, deadline: Deadline) -> Placed:
    """What rounds of blocks make of a partition, or what they have when time is up; never worse."""
    trainer, counts = start.copy(), cuts.counts(start)
    cost = cuts.cost(counts)
    done = accepted = 0
    is_cut = False
    for block in blocks(cuts.examples, np.random.default_rng(seed), parameters):
        if deadline.over:
            is_cut = True
            break
        done += 1
        before = trainer[block]
        cuts.add_uses(counts, block, before, -1)
        places = np.bincount(before, minlength=cuts.trainers)
        after = transport(cuts.marginal_costs(block, counts), places).trainer
        cuts.add_uses(counts, block, after, 1)
        now = cuts.cost(counts)
        if now > cost:
            cuts.add_uses(counts, block, after, -1)
            cuts.add_uses(counts, block, before, 1)
            continue
        trainer[block], cost = after, now
        accepted += 1
    return Placed(trainer, cost, done, accepted, is_cut)
