"""Bandwidth of a port against the number of its connections: tables of congestion, measured.

A rank of a switch, or the ranks of a NIC, send the same bytes in all over 1, 2, 4, ... links at once, and receive them
so. What that takes beside one link alone is the slowdown. One table is for all switches and one for all NICs: a few
ports of each are measured, in both directions, and the slower direction counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

import numpy as np

from gapless.array_types import Floats
from gapless.topologies.measured.experiments import Experiments, Pair, lowest_agreed
from gapless.topologies.measured.structure import Structure
from gapless.topologies.ports.congestion import Slowdown

__all__ = ["measured_tables"]

_PORTS = 3
"""Switch ports, and NICs, that are measured."""
_LEAST = 1.2
"""A table whose largest slowdown is smaller is what many flows cost the processors: 1.14 on a busy emulated cluster."""
_WITHIN = 1.05
"""Of several slowdowns the lowest counts that another one is within this factor of: much is noise."""


def measured_tables(
    experiments: Experiments, structure: Structure, alpha_s: Floats, beta: Floats
) -> tuple[Slowdown | None, Slowdown | None]:
    """The tables of switches and of NICs; None where there are none, or no slowdown is to be seen.

    `alpha_s`, `beta`: rough costs of all ordered pairs, float, shape (ranks, ranks). Raises `OutOfTimeError`.
    """

    def table(fans: Sequence[list[Pair]]) -> Slowdown | None:
        return _table(experiments, [fan for fan in fans if len(fan) > 1][:_PORTS], alpha_s, beta)

    return table(_switch_fans(structure)), table(_nic_fans(structure))


def _switch_fans(structure: Structure) -> list[list[Pair]]:
    """From ranks of nodes with a switch to the others of their node, a rank of each node first."""
    fans = [
        [[(rank, other) for other in _after(node, place)] for place, rank in enumerate(node)]
        for node, inside in zip(structure.nodes, structure.inside, strict=True)
        if {*inside.out_ports} == {*inside.in_ports} == {*node}
    ]
    return _interleaved(fans)


def _nic_fans(structure: Structure) -> list[list[Pair]]:
    """From the ranks of NICs to those of other nodes, which come by their NICs in turn; a NIC of each node first."""
    fans = []
    for here, groups in enumerate(structure.nics):
        away = _interleaved([group for there, other in enumerate(structure.nics) if there != here for group in other])
        fans.append([
            [(rank, away[(step + k) % len(away)]) for step in range(len(away)) for k, rank in enumerate(group)]
            for group in groups
        ])  # fmt: skip
    return [list(dict.fromkeys(fan)) for fan in _interleaved(fans)]


def _after(node: Sequence[int], place: int) -> list[int]:
    return [*node[place + 1 :], *node[:place]]


def _interleaved(rows: Sequence[Sequence[object]]) -> list:  # type: ignore[type-arg]
    """The first of each row, then the second of each, and so on."""
    return [value for value in chain.from_iterable(zip_longest(*rows)) if value is not None]


def _table(experiments: Experiments, fans: Sequence[list[Pair]], alpha_s: Floats, beta: Floats) -> Slowdown | None:
    """The slowdown over the number of connections that all these fans can have."""
    if not fans:
        return None
    most = min(min(map(len, fans)), experiments.prober.rank_count)
    counts = sorted({*(2**k for k in range(most.bit_length())), most})
    slowdown = np.ones(len(counts))
    for is_into in (False, True):
        pairs = [[(b, a) if is_into else (a, b) for a, b in fan] for fan in fans]
        times_s = np.array([
            [[experiments.shared_s(fan[:count], alpha_s, beta) for count in counts] for fan in pairs]
            for _ in range(experiments.settings.tries)
        ])  # fmt: skip
        ratios = (times_s / np.median(times_s[:, :, :1], axis=0)).reshape(-1, len(counts))
        agreed = [lowest_agreed(column, _WITHIN) or np.median(column) for column in ratios.T]
        slowdown = np.maximum(slowdown, [1.0, *agreed[1:]])
    slowdown = np.maximum.accumulate(slowdown)
    if slowdown[-1] < _LEAST:
        return None
    return Slowdown(tuple(counts), tuple(round(float(value), 3) for value in slowdown))
