"""A machine as it is emulated: another topology with its bandwidths scaled, and the latency of the emulating machine.

    {"format": "gapless.topology", "version": 1, "name": "dgx-a100 x 2, emulated",
     "emulates": {"topology": "dgx-a100", "nodes": 2}, "scale": 2.5e-05, "alpha_us": 500}

`emulates` names a topology or a `file` beside this one, perhaps with `nodes`. Times of plans for it are those that an
emulated cluster takes (`gapless emulate`).
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from gapless.topologies.links import Links
from gapless.topologies.topology import Topology
from gapless.units import S_PER_US

__all__ = ["ALPHA_S", "emulated_text", "scaled"]

ALPHA_S = 5e-4
"""About what a message between two idle processes of one machine costs, whatever its size."""


def scaled(topology: Topology, scale: float, alpha_s: float) -> Topology:
    """The topology with all bandwidths times `scale`, and one latency for all links; its switches only pass on."""
    links = topology.columns
    costs = np.full(len(links), alpha_s), links.beta_s_per_byte / scale
    slowed = Links(links.source, links.target, *costs, links.held_start, links.held)
    return replace(topology, links=slowed, switch_groups=())


def emulated_text(name: str, emulates: dict[str, object], scale: float, alpha_s: float) -> str:
    """The file that describes it; `emulates`: topology or file, and nodes."""
    data = {
        "format": "gapless.topology", "version": 1, "name": name, "emulates": emulates, "scale": scale,
        "alpha_us": float(f"{alpha_s / S_PER_US:.12g}"),
    }  # fmt: skip
    return json.dumps(data, indent=2) + "\n"
