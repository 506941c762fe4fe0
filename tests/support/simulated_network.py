"""A network that isn't there: flows share what is exclusive in a topology fairly, with noise and outliers.

Each resource carries as much as the fastest link that holds it; rates of flows are max-min fair. A port with a table of
congestion is slower the more links of it are in use at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gapless.topologies.measured.experiments import Flow
from gapless.topologies.ports.congestion import Congestion
from gapless.topologies.topology import Topology


@dataclass
class SimulatedNetwork:
    """A `Prober`. `noise`: the spread of times, as a share. `outliers`: the share of times that are up to 6-fold.

    `early`: the share of times that are half of what they should be. `burst_bytes`: what a link lets pass at once
    before it is warm. `times`: experiments so far.
    """

    topology: Topology
    noise: float = 0.0
    outliers: float = 0.0
    early: float = 0.0
    burst_bytes: int = 0
    seed: int = 0
    times: int = 0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        rate = 1 / self.topology.beta_s_per_byte
        self.capacity = np.zeros(len(self.topology.resources))
        np.maximum.at(self.capacity, self.topology.held, rate[self.topology.held_by])
        pairs = zip(self.topology.link_source.tolist(), self.topology.link_target.tolist(), strict=True)
        self.link = {pair: number for number, pair in enumerate(pairs)}

    @property
    def rank_count(self) -> int:
        return self.topology.device_count

    def time(self, flows: Sequence[Flow]) -> np.ndarray:
        self.times += 1
        ends_s = self._ends(flows)
        taken = ends_s * np.exp(self.rng.normal(0.0, self.noise, len(flows)) if self.noise else 0.0)
        late = self.rng.random(len(flows)) < self.outliers
        taken = np.where(late, taken * self.rng.uniform(1, 6, len(flows)), taken)
        if self.early:
            taken = np.where(self.rng.random(len(flows)) < self.early, taken / 2, taken)
        return taken

    def _ends(self, flows: Sequence[Flow]) -> np.ndarray:
        """When the last chunk of each flow is acknowledged: a chunk waits for alpha, flows, and takes alpha back."""
        links = [self.link[flow.source, flow.target] for flow in flows]
        alpha_s = self.topology.alpha_s[links]
        phases = [1 if flow.at_once else flow.chunks for flow in flows]
        burst = [0 if flow.warm_bytes >= self.burst_bytes else self.burst_bytes for flow in flows]
        amount = [max(flow.sent_bytes - burst[k], 1) / phases[k] for k, flow in enumerate(flows)]
        left, starts_s, ends_s = np.array(amount), alpha_s.copy(), np.full(len(flows), np.nan)
        done, now_s = [0] * len(flows), 0.0
        while np.isnan(ends_s).any():
            active = [k for k in range(len(flows)) if np.isnan(ends_s[k]) and starts_s[k] <= now_s + 1e-15]
            coming = [starts_s[k] for k in range(len(flows)) if np.isnan(ends_s[k]) and k not in active]
            rates = self._rates([links[k] for k in active])
            spans = [left[k] / rate for k, rate in zip(active, rates, strict=True)]
            step_s = min([*spans, *(start - now_s for start in coming)])
            for k, rate, span in zip(active, rates, spans, strict=True):
                left[k] -= rate * step_s
                if span <= step_s * (1 + 1e-12):
                    done[k] += 1
                    left[k] = amount[k]
                    if done[k] == phases[k]:
                        ends_s[k] = now_s + step_s + (-alpha_s[k] if flows[k].follows else alpha_s[k])
                    else:
                        starts_s[k] = now_s + step_s + 2 * alpha_s[k]
            now_s += step_s
        return ends_s

    def _rates(self, links: Sequence[int]) -> list[float]:
        """Max-min fair rates of links that are in use: the fullest resource first."""
        slowed = self.topology.beta_s_per_byte
        if self.topology.congestion:
            slowed = self.topology.slowed_beta_s(np.array(links, dtype=np.int64))
        limit = [1 / slowed[link] for link in links]
        held = [
            set(self.topology.held[self.topology.held_start[x] : self.topology.held_start[x + 1]].tolist())
            for x in links
        ]
        rates: dict[int, float] = {}
        free = self.capacity.copy()
        for one in self.topology.congestion:
            self._slow_down(one, links, held, free)
        while len(rates) < len(links):
            open_ = [k for k in range(len(links)) if k not in rates]
            share = {k: limit[k] for k in open_}
            for resource in set().union(*(held[k] for k in open_)):
                users = [k for k in open_ if resource in held[k]]
                for k in users:
                    share[k] = min(share[k], max(free[resource], 0.0) / len(users))
            k = min(open_, key=lambda k: share[k])
            rates[k] = share[k]
            for resource in held[k]:
                free[resource] -= share[k]
        return [max(rates[k], 1e-9) for k in range(len(links))]

    @staticmethod
    def _slow_down(one: Congestion, links: Sequence[int], held: Sequence[set[int]], free: np.ndarray) -> None:
        """What the ports of a table carry with the links that are in use now."""
        for port in one.ports:
            used = len({link for link, holds in zip(links, held, strict=True) if holds & {*port}})
            if used:
                free[list(port)] /= one.table.at(np.array([used]))[0]


def links_in_turn(topology: Topology) -> set[frozenset[tuple[int, int]]]:
    """The pairs of links that share a resource: what plans have to know of the structure."""
    ends = list(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True))
    holders: dict[int, list[int]] = {}
    for resource, link in zip(topology.held.tolist(), topology.held_by.tolist(), strict=True):
        holders.setdefault(resource, []).append(link)
    return {frozenset((ends[a], ends[b])) for links in holders.values() for a in links for b in links if a < b}
