"""From a machine's description to a node: NVLinks, switches or PCIe between GPUs, and the NICs that they use."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from gapless.errors import InputError
from gapless.topologies.descriptions.nccl_tests import Measured
from gapless.topologies.descriptions.readers import is_matrix, is_tree, read_matrix, read_tree
from gapless.topologies.descriptions.wiring import LEVELS, Wiring
from gapless.topologies.node import LocalLink, NicTemplate, NodeTemplate, SwitchTemplate

__all__ = ["Cost", "Rates", "describe"]

_NVLINK_ALPHA_S, _NIC_ALPHA_S = 0.7e-6, 1.7e-6
"""Of the V100 machines of the chapter on communication sketches (Table 5.1); PCIe is taken for as slow as a NIC."""


@dataclass(frozen=True)
class Cost:
    """Latency and inverse bandwidth, and where they are from."""

    alpha_s: float
    beta_s_per_byte: float
    source: str


@dataclass(frozen=True)
class Rates:
    """What a user says of the kinds of links: bytes a second and direction, or what was measured between GPUs 0 and 1.

    `nvlink_bytes_per_s`: of a single NVLink; `pcie_bytes_per_s`: of a GPU's slot; `nic_bytes_per_s`: of a NIC. What is
    measured goes before what is said, and that before what the description says.
    """

    nvlink_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    nic_bytes_per_s: float | None = None
    nvlink_measured: Measured | None = None
    pcie_measured: Measured | None = None
    nic_measured: Measured | None = None


def describe(text: str, name: str, rates: Rates | None = None, where: str = "description") -> NodeTemplate:
    """The node that a text describes: `nvidia-smi topo -m`, NCCL's dump, or hwloc's XML.

    Where NVLinks join all GPUs, they alone are links; else PCIe joins the pairs that have none. What its links share is
    a resource: a GPU's slot, the uplink of a PCIe switch with several GPUs, the link between sockets.
    Raises `InputError` where the text is neither, and where nobody says how fast a kind of link is.
    """
    if is_tree(text):
        wiring = read_tree(text, where)
    elif is_matrix(text):
        wiring = read_matrix(text, where)
    else:
        rule = "must be what `nvidia-smi topo -m` prints, NCCL's topology dump, or hwloc's XML"
        is_one = text.lstrip().startswith("{") and "gapless.topology" in text
        raise InputError(f"{where}: {rule}{'; this is a topology, which --topology-file takes' if is_one else ''}")
    costs = _Costs(wiring, rates or Rates(), where)
    links = _nvlinks(wiring, costs) if wiring.nvlinks.any() else ()
    switches = _switches(wiring, costs) if wiring.switched.any() else ()
    if not wiring.is_joined_by_nvlink:
        links += _pcie_links(wiring, costs)
    nics = _nics(wiring, costs)
    sources = [f"{kind} {cost.source}" for kind, cost in sorted(costs.used.items())]
    source = "; ".join([f"read from {where}", *sources])
    return NodeTemplate(name, wiring.gpus, links, switches, nics, source)


class _Costs:
    """What each kind of link costs; `used`: those that were asked for."""

    def __init__(self, wiring: Wiring, rates: Rates, where: str) -> None:
        self.where = where
        self.used: dict[str, Cost] = {}
        self._measured = {"nvlink": rates.nvlink_measured, "pcie": rates.pcie_measured, "nic": rates.nic_measured}
        self._said = {
            "nvlink": rates.nvlink_bytes_per_s, "pcie": rates.pcie_bytes_per_s, "nic": rates.nic_bytes_per_s
        }  # fmt: skip
        self._described = {"nvlink": wiring.nvlink_bytes_per_s, "pcie": wiring.pcie_bytes_per_s}
        # Two GPUs were measured over all the links that join them.
        self._pair = max(int(wiring.nvlinks[0, 1] or wiring.switched[0]) if wiring.gpus > 1 else 1, 1)

    def of(self, kind: str, described: float | None = None) -> Cost:
        """The cost of a link of a kind, a single NVLink for `nvlink`. `described`: its own bandwidth."""
        alpha_s = _NVLINK_ALPHA_S if kind == "nvlink" else _NIC_ALPHA_S
        measured, said = self._measured[kind], self._said[kind]
        described = described or self._described.get(kind)
        if measured is not None:
            beta = measured.beta_s_per_byte * (self._pair if kind == "nvlink" else 1)
            cost = Cost(measured.alpha_s, beta, f"measured, {measured.spread:.0%} off the line in the median")
        elif said is not None:
            cost = Cost(alpha_s, 1 / said, "as given, its latency assumed")
        elif described is not None:
            cost = Cost(alpha_s, 1 / described, "by data sheet, its latency assumed")
        else:
            raise InputError(
                f"{kind}: {self.where} doesn't say how fast it is; give a bandwidth (--{kind} 25GB/s) "
                f"or what sendrecv_perf measured (--{kind}-measured FILE)"
            )
        self.used[kind] = cost
        return cost


def _nvlinks(wiring: Wiring, costs: _Costs) -> tuple[LocalLink, ...]:
    cost = costs.of("nvlink")
    pairs = zip(*np.nonzero(wiring.nvlinks), strict=True)
    return tuple(
        LocalLink(int(i), int(j), cost.alpha_s, cost.beta_s_per_byte / int(wiring.nvlinks[i, j])) for i, j in pairs
    )


def _switches(wiring: Wiring, costs: _Costs) -> tuple[SwitchTemplate, ...]:
    """All NVSwitches as one, whose ports are as wide as the NVLinks of the GPU that has fewest."""
    ranks = np.flatnonzero(wiring.switched).tolist()
    if len(ranks) < 2:
        return ()
    cost, width = costs.of("nvlink"), int(wiring.switched[ranks].min())
    return (SwitchTemplate(tuple(ranks), cost.alpha_s, cost.beta_s_per_byte / width),)


def _pcie_links(wiring: Wiring, costs: _Costs) -> tuple[LocalLink, ...]:
    """Between GPUs without NVLinks, with what such links share."""
    cost = costs.of("pcie")
    switch, socket = wiring.groups(LEVELS.index("PXB")), wiring.groups(LEVELS.index("NODE"))
    shared = np.bincount(switch) > 1
    found = []
    for i, j in permutations(range(wiring.gpus), 2):
        if wiring.nvlinks[i, j] or (wiring.switched[i] and wiring.switched[j]):
            continue
        held = [f"gpu{i}:up"]
        if switch[i] != switch[j]:
            held += [f"bridge{switch[i]}:up"] if shared[switch[i]] else []
            held += [f"socket{socket[i]}:out", f"socket{socket[j]}:in"] if socket[i] != socket[j] else []
            held += [f"bridge{switch[j]}:down"] if shared[switch[j]] else []
        held.append(f"gpu{j}:down")
        found.append(LocalLink(i, j, cost.alpha_s, cost.beta_s_per_byte, tuple(held)))
    return tuple(found)


def _nics(wiring: Wiring, costs: _Costs) -> tuple[NicTemplate, ...]:
    """NICs that some GPU uses, in the order of the description."""
    chosen = wiring.nic_of_gpu()
    found = []
    for nic in sorted(set(chosen.tolist()) - {-1}):
        cost = costs.of("nic", wiring.nic_bytes_per_s[nic])
        ranks = tuple(np.flatnonzero(chosen == nic).tolist())
        found.append(NicTemplate(ranks, cost.alpha_s, cost.beta_s_per_byte))
    return tuple(found)
