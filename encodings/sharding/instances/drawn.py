"""Instances that are made up, for trials: blocks of a model in a row, with parameters that many of their nodes use.

Each node has a few layouts, by number. Two nodes that must agree allow each layout one of the other's; other neighbours
pay for a change of the layout. Nodes of a block live until the block is over, as activations do; parameters throughout.
"""

from __future__ import annotations

import numpy as np

from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance
from gapless.errors import InputError
from gapless.question.fields import Whole

__all__ = ["DRAWN", "drawn_instance", "instance_of_words"]

DRAWN = "drawn:"
_DEFAULTS = {"nodes": 200, "choices": 6, "seed": 0, "tightness": 40}
_LIMITS = {"nodes": (2, 100_000), "choices": (1, 64), "seed": (0, 2**31 - 1), "tightness": (0, 100)}
_BLOCK = 8
_MOST_COST = 10**6
_MOST_USAGE = 10**9
_AGREE, _SHUT = 0.4, 0.2
"""The shares of neighbours that must agree, and of pairs that the others forbid."""


def instance_of_words(words: str) -> Instance:
    """The instance of `drawn:nodes=200,choices=6,seed=0,tightness=40`. Raises `InputError` for other words."""
    values = dict(_DEFAULTS)
    for part in filter(None, words.removeprefix(DRAWN).split(",")):
        name, _, value = part.partition("=")
        if name not in values:
            raise InputError(f"instance: drawn takes {', '.join(values)}, got {name!r}")
        try:
            values[name] = Whole(*_LIMITS[name])(value)
        except InputError as error:
            raise InputError(f"instance: {name} of drawn {error}") from None
    return drawn_instance(**values)


def drawn_instance(nodes: int, choices: int, seed: int, tightness: int) -> Instance:
    """A made-up instance; `choices`: the most of a node. Its first plan, every node's choice 0, fits.

    `tightness`: how many percent of what choices may save the limit asks for, from 0, the usage of that plan.
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(max(1, choices // 2), choices + 1, size=nodes)
    costs = tuple(random.integers(0, _MOST_COST, size=size) for size in sizes.tolist())
    usages = tuple(np.sort(random.integers(0, _MOST_USAGE, size=size)) for size in sizes.tolist())
    blocks = np.arange(nodes) // _BLOCK
    is_parameter = np.arange(nodes) % _BLOCK == 0
    starts = np.where(is_parameter, 0, np.arange(nodes))
    ends = np.where(is_parameter, nodes, np.minimum((blocks + 1) * _BLOCK, nodes))
    pairs = [(node - 1, node) for node in range(1, nodes)]
    pairs += [(int(block) * _BLOCK, node) for node, block in enumerate(blocks) if not is_parameter[node] and node % 2]
    tables = tuple(_table(random, int(sizes[first]), int(sizes[second])) for first, second in pairs)
    name = f"{DRAWN}nodes={nodes},choices={choices},seed={seed},tightness={tightness}"
    free = Instance(name, np.stack([starts, ends], axis=1), costs, usages, np.array(pairs), tables, 2**62)
    least, most = free.peak(np.zeros(nodes, dtype=np.int64)), free.peak(sizes - 1)
    limit = most - (most - least) * tightness // 100
    return Instance(name, free.intervals, costs, usages, free.edges, tables, limit)


def _table(random: np.random.Generator, rows: int, columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Choice 0 of both is always allowed."""
    costs = random.integers(0, _MOST_COST, size=(rows, columns))
    if rows == columns and random.random() < _AGREE:
        is_open = np.eye(rows, dtype=bool)
    else:
        is_open = random.random(size=costs.shape) >= _SHUT
    is_open[0, 0] = True
    return np.where(is_open, costs, FORBIDDEN)
