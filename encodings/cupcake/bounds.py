"""Lower bounds: what the gradients that are not grouped yet must cost at least, however they are grouped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cupcake.fusion import Costs
from gapless.options import Deadline
from gapless.profiles.gradients.cost_functions import CostFunction

__all__ = ["Rest", "rest_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rest:
    """The least costs of the gradients from k on, float, shape (N + 1,), 0 at the end.

    `compress_s`, `send_s`: the least sum of h, and of g, over all groupings. `last_send_s`: the least g that the last
    group can have, 0 where no group is left to come.
    """

    compress_s: Floats
    send_s: Floats
    last_send_s: Floats

    def bound_s(self, costs: Costs, k: int, compress_s: Floats, sent_s: Floats) -> Floats:
        """The least end of a step whose first k gradients were compressed in `compress_s` and sent at `sent_s`.

        Either backward, all compression and the last collective follow each other, or all collectives do.
        """
        computed = costs.ready_s[-1] + compress_s + self.compress_s[k] + self.last_send_s[k]
        return np.asarray(np.maximum(computed, sent_s + self.send_s[k]))


def rest_of(costs: Costs, deadline: Deadline) -> Rest:
    """The least costs of all suffixes: a min-plus pass over the cuts, O(N^2) in array operations.

    Where the deadline comes first, the longest suffixes have 0 for their least cost, which is true as well.
    """
    last_send_s = np.append(_least_last(costs), 0.0)
    compress_s, send_s = (_least_sums(costs, cost, deadline) for cost in (costs.compression, costs.communication))
    return Rest(compress_s, send_s, last_send_s)


def _least_sums(costs: Costs, cost: CostFunction, deadline: Deadline) -> Floats:
    least_s = np.zeros(costs.count + 1)
    for k in range(costs.count - 1, -1, -1):
        if deadline.over:
            break
        sizes = costs.prefix_bytes[k + 1 :] - costs.prefix_bytes[k]
        least_s[k] = (cost(sizes) + least_s[k + 1 :]).min()
    return least_s


def _least_last(costs: Costs) -> Floats:
    """The last group begins at k or later, so this is a running minimum from the end."""
    alone = costs.communication(costs.suffix_bytes[:-1])
    return np.asarray(np.minimum.accumulate(alone[::-1])[::-1])
