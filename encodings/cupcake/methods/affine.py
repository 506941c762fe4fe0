"""The exact dynamic programme for affine costs.

With h(x) = a_h + b_h x, the first k gradients in y groups are compressed at R_k + a_h y + b_h S_k, whatever the groups
are; the end of their communication, C(k, y), enters the rest monotonically. So the least C for each (k, y) is enough::

    C(j, y + 1) = min over k < j of max(C(k, y), compressed(j, y + 1)) + a_g + b_g (S_j - S_k)

Among k whose communication is over by then the last one is best; among the others the one with the least
C(k, y) - b_g S_k. Both are at hand in one monotone queue, which makes O(N Y) of it. Pairs (k, y) that can't lead below
the incumbent, or that are no better than (k, y') with fewer groups, are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.cupcake.methods.pareto import Bounded
from gapless.options import Deadline
from gapless.profiles.gradients.cost_functions import FREE, AffineCost
from gapless.profiles.gradients.fusion import Costs, Fusion, timeline

__all__ = ["affine_costs", "solve_affine"]


@dataclass(frozen=True)
class _Layer:
    """The prefixes that are worth going on from with y groups: their k, the end of their communication, C(k, y)."""

    k: Ints
    sent_s: Floats


def affine_costs(costs: Costs) -> tuple[AffineCost, AffineCost] | None:
    """Compression and communication where this programme may run: one mode, both affine, nothing decoded at the end,
    and nothing but the stream at work."""
    if len(costs.modes) > 1 or costs.modes[0].decodes_after:
        return None
    mode = costs.modes[0].mode
    if costs.cores and mode.communication_work != FREE:
        return None
    parts = [mode.encode, mode.decode, mode.communication]
    affine = [cost for cost in parts if isinstance(cost, AffineCost)]
    if len(affine) < len(parts):
        return None
    encode, decode, communication = affine
    both = AffineCost(encode.alpha_s + decode.alpha_s, encode.beta_s_per_byte + decode.beta_s_per_byte)
    return both, communication


def solve_affine(costs: Costs, incumbent: Fusion, incumbent_end_s: float, deadline: Deadline) -> Bounded:
    """The fusion with the least step time, or the best found and a bound where the deadline came first.

    `incumbent_end_s`: end of the incumbent's time line, without forward. `costs` must have `affine_costs`. Counted are
    the `states`, the pairs (k, y) that were looked at.
    """
    known = affine_costs(costs)
    assert known is not None
    compression, communication = known
    mode, last = costs.modes[0], costs.count
    if compression.alpha_s == communication.alpha_s == 0:  # splitting a group costs nothing and sends its parts sooner
        alone = Fusion.uniform(range(1, last + 1), mode.name)
        return Bounded(alone, timeline(costs, alone).end_s, {"states": 0})
    line_s = costs.ready_s + compression.beta_s_per_byte * mode.encoded_bytes
    send_s = communication.beta_s_per_byte * mode.sent_bytes
    rest_s = send_s[-1] - send_s  # of the collectives still to come, but for alphas
    least_last_s = float(mode.send_s(last - 1, last))
    best_end_s, best_at = incumbent_end_s, 0
    fewest_s = np.full(last + 1, np.inf)  # the least C(k, y) of all y so far
    layer, ahead_s = _Layer(np.zeros(1, dtype=np.int64), np.zeros(1)), line_s[-1:]
    layers: list[tuple[Ints, Ints]] = []
    bound_s, states, y = math.inf, 0, 0
    while len(layer.k):
        if deadline.over:  # every better fusion goes on from one of these
            bound_s = float(ahead_s.min())
            break
        y += 1
        compressed_s = line_s + compression.alpha_s * y
        hopeless = compressed_s + communication.alpha_s + rest_s >= best_end_s
        targets = np.flatnonzero(~hopeless[layer.k[0] + 1 :]) + layer.k[0] + 1
        sent_s, parent = _next_layer(layer, targets, compressed_s, send_s, communication.alpha_s)
        states += len(targets)
        if len(targets) and targets[-1] == last and sent_s[-1] < best_end_s:
            best_end_s, best_at = float(sent_s[-1]), y
        layers.append((targets, parent))
        ahead_s = np.maximum(line_s[-1] + compression.alpha_s * (y + 1) + least_last_s,
                             sent_s + communication.alpha_s + rest_s[targets])  # fmt: skip
        keep = (ahead_s < best_end_s) & (sent_s < fewest_s[targets]) & (targets < last)
        fewest_s[targets] = np.minimum(fewest_s[targets], sent_s)
        layer, ahead_s = _Layer(targets[keep], sent_s[keep]), ahead_s[keep]
    fusion = Fusion.uniform(_walk_back(layers, best_at, last), mode.name) if best_at else incumbent
    return Bounded(fusion, min(bound_s, best_end_s), {"states": states})


def _next_layer(
    layer: _Layer, targets: Ints, compressed_s: Floats, send_s: Floats, alpha_s: float
) -> tuple[Floats, Ints]:
    """C(j, y + 1) and the best k for each j in `targets`.

    The queue holds k in rising order whose communication is not over yet when j is compressed, with rising C - b_g S:
    one that came earlier and has no less of it can never be the best again.
    """
    starts = layer.k.tolist()
    end_of, key_of = layer.sent_s.tolist(), (layer.sent_s - send_s[layer.k]).tolist()
    send, compressed = send_s.tolist(), compressed_s[targets].tolist()
    queue, head, over, new = [0] * len(starts), 0, -1, 0
    tail = 0
    sent, parent = [], []
    for j, compressed_at in zip(targets.tolist(), compressed, strict=True):
        while new < len(starts) and starts[new] < j:
            key = key_of[new]
            while tail > head and key_of[queue[tail - 1]] >= key:
                tail -= 1
            queue[tail] = new
            tail += 1
            new += 1
        while head < tail and end_of[queue[head]] <= compressed_at:
            over = queue[head]
            head += 1
        if head < tail and (over < 0 or key_of[queue[head]] < compressed_at - send[starts[over]]):
            chosen, least = queue[head], key_of[queue[head]]
        else:
            chosen, least = over, compressed_at - send[starts[over]]
        sent.append(least + alpha_s + send[j])
        parent.append(starts[chosen])
    return np.array(sent), np.array(parent, dtype=np.int64)


def _walk_back(layers: list[tuple[Ints, Ints]], y: int, last: int) -> list[int]:
    ends = [last]
    for targets, parent in layers[y - 1 : 0 : -1]:
        ends.append(int(parent[np.searchsorted(targets, ends[-1])]))
    return ends[::-1]
