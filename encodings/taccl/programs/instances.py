"""Instances: what it does to the costs of links that each chunk is cut into n parts on n thread blocks.

A thread block can't keep a fast link busy alone (thesis, section 5.6.2): n of them move n times as much, up to what
the link carries. Each of them has its own synchronisation on the link at the start of a send, so that the latency grows
with n (section 5.8.3, where Figure 5.13 shows both effects and prints no numbers)::

    beta_n  = max(beta, 1 / (n * block_bytes_per_s))
    alpha_n = alpha * (1 + alpha_growth * (n - 1))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["InstanceCosts", "with_instances"]


@dataclass(frozen=True)
class InstanceCosts:
    """The two numbers of the model.

    `block_bytes_per_s`: what one thread block moves. 20 GB/s is what NCCL's tuning table has as the most of a channel
    on Volta and Ampere GPUs (LL128, ring and tree); for Hopper it has 36.7. `alpha_growth`: the part of a link's alpha
    that each further instance adds. 0.05 is no measurement: it puts the size above which 8 instances of the ALLGATHER
    plans for two NDv2 nodes beat one between 1 and 2 MB, where the thesis has it (section 5.8.2).

    Raises `InputError` for a bandwidth that isn't above 0, or a growth below 0.
    """

    block_bytes_per_s: float = 20e9
    alpha_growth: float = 0.05

    def __post_init__(self) -> None:
        if not self.block_bytes_per_s > 0:
            raise InputError(f"block_bytes_per_s must be > 0, got {self.block_bytes_per_s}")
        if not self.alpha_growth >= 0:
            raise InputError(f"alpha_growth must be >= 0, got {self.alpha_growth}")


def with_instances(topology: Topology, instances: int, costs: InstanceCosts | None = None) -> Topology:
    """The same machine as a program of so many instances sees it: same links and resources, other alphas and betas."""
    if instances < 1:
        raise InputError(f"instances must be >= 1, got {instances}")
    costs = costs or InstanceCosts()
    factor = 1 + costs.alpha_growth * (instances - 1)
    least_s_per_byte = 1 / (instances * costs.block_bytes_per_s)
    links = tuple(
        replace(link, alpha_s=link.alpha_s * factor, beta_s_per_byte=max(link.beta_s_per_byte, least_s_per_byte))
        for link in topology.links
    )
    return replace(topology, links=links)
