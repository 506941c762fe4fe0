"""Modes at published costs: a compressor on a network, by bytes or, for low ranks, by the shapes of the tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gapless.profiles.gradients.communication import Network, all_reduce_cost, communication_cost, gathered_bytes
from gapless.profiles.gradients.compressors import NONE, Compressor
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.modes import PLAIN, Mode

__all__ = ["low_rank_bytes", "priced_mode"]

_NUMBER_BYTES = 4
_LOW_RANK_REDUCES = 3
"""All-reduces of a group one after the other in PyTorch's hook: what isn't compressed, then either factor."""


def priced_mode(
    compressor: Compressor, network: Network, shapes: Sequence[Sequence[int]] = (), speed: float = 1.0
) -> Mode:
    """The mode of a compressor (`NONE`: plain) on a network; `speed`: of the device, relative to a V100.

    A low-rank one needs the tensors' `shapes` to say what it sends; without them, and in two levels, where a rank
    encodes a share that is no matrix, it sends a ratio of the bytes.
    """
    share = network.ranks_per_node
    mode = Mode(
        name=PLAIN if compressor is NONE else compressor.name,
        communication=communication_cost(network, compressor),
        encode=compressor.encode_cost(speed).at_ratio(share),
        decode=compressor.decode_cost(network.outer.ranks, speed).at_ratio(share),
        error=compressor.error,
        gathered=gathered_bytes(network, compressor, 1.0),
    )
    if not compressor.rank or not shapes or share > 1:
        return mode
    sizes = [low_rank_bytes(shape, compressor.rank) for shape in shapes]
    reduce = all_reduce_cost(network)
    return replace(
        mode,
        communication=AffineCost(_LOW_RANK_REDUCES * reduce.alpha_s, reduce.beta_s_per_byte),
        encoded_bytes=tuple(float(encoded) for encoded, _ in sizes),
        sent_bytes=tuple(float(sent) for _, sent in sizes),
    )


def low_rank_bytes(shape: Sequence[int], rank: int) -> tuple[int, int]:
    """What is encoded of a tensor in single precision, and what is sent, as PyTorch's PowerSGD hook does it.

    A tensor is a matrix of its first axis and all others, (m, n), sent as two factors of r (m + n) numbers if those are
    less than half of it; else it goes as it is.
    """
    rows, columns = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    factors = min(rank, rows, columns) * (rows + columns)
    if 2 * factors < rows * columns:
        return _NUMBER_BYTES * rows * columns, _NUMBER_BYTES * factors
    return 0, _NUMBER_BYTES * rows * columns
