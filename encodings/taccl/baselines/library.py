"""The baselines by name: each algorithm in the variant (channels, order, pieces) that the replay finds fastest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from gapless.collective import Collective
from gapless.encodings.taccl.baselines.cut import cut, standard_name
from gapless.encodings.taccl.baselines.transfers import (
    Network,
    backwards,
    lay,
    one_after_the_other,
    paced,
)
from gapless.encodings.taccl.baselines.variants import Structure, Variant, series
from gapless.encodings.taccl.sends import Transfer, sends_in_turn, to_schedule
from gapless.errors import InputError
from gapless.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["Baseline", "Baselines", "baselines"]

_MOST_TRANSFERS = 40_000
"""More pieces are not tried where they would take more transfers than this."""

_SPREAD = {"ring": "ring", "hierarchical": "hierarchical", "direct": "direct"}
_ALGORITHMS = {
    "allgather": {**_SPREAD, "recursive-doubling": "doubling"},
    "allreduce": {**_SPREAD, "halving-doubling": "doubling", "double-binary-tree": "tree"},
    "alltoall": {"direct": "direct", "hierarchical": "hierarchical"},
    "broadcast": {**_SPREAD, "double-binary-tree": "tree"},
    "gather": {"direct": "direct"},
    "reduce": {**_SPREAD, "double-binary-tree": "tree"},
    "reducescatter": {**_SPREAD, "recursive-halving": "doubling"},
    "scatter": {"direct": "direct"},
    "sendrecv": {"direct": "direct"},
}
"""For each collective, its algorithms by name, and the kind of each."""

_BASES = {"allreduce": "allgather", "reducescatter": "allgather", "reduce": "broadcast"}
"""What spreads where these collect."""


@dataclass(frozen=True)
class Baseline:
    """An algorithm on a topology, in its fastest variant.

    `collective`: what it carries out, with chunks of `chunk_bytes`, cut as the algorithm needs them. `variant`: which
    one it is, in words.
    """

    name: str
    variant: str
    collective: Collective
    chunk_bytes: int
    schedule: Schedule

    @property
    def makespan_s(self) -> float:
        """When the last transfer ends."""
        return float(self.schedule.end_s.max(initial=0.0))


@dataclass
class _Limits:
    """What holds the choice of variants back; `transfers_left`: how many may still be laid out."""

    may_cut: bool
    is_over: Callable[[], bool]
    transfers_left: float


def baselines(topology: Topology, collective: Collective, chunk_bytes: int) -> dict[str, Schedule]:
    """Every algorithm that is defined for the collective, by name, each in its fastest variant.

    Chunks of `chunk_bytes` may be cut further. Raises `InputError` as `Baselines` does.
    """
    return {found.name: found.schedule for found in Baselines(topology, collective).of_size(chunk_bytes)}


@dataclass(frozen=True)
class Baselines:
    """The baselines of one collective on one topology, for any size; what no size changes is found once.

    Raises `InputError` where the ranks don't fit, or for a collective of the user's own that reduces: no template says
    how.
    """

    topology: Topology
    collective: Collective

    def __post_init__(self) -> None:
        if self.collective.rank_count != self.topology.device_count:
            raise InputError(
                f"{self.collective.name} is over {self.collective.rank_count} ranks, "
                f"the topology has {self.topology.device_count}"
            )
        if self.collective.reduces and standard_name(self.collective) is None:
            raise InputError(
                f"{self.collective.name}: no baseline is defined for a collective of your own that reduces"
            )

    @cached_property
    def names(self) -> list[str]:
        """The algorithms that are defined; hierarchical ones need several nodes of as many ranks each."""
        return [
            name for name, kind in self._algorithms.items() if kind != "hierarchical" or self._structure.is_hierarchical
        ]

    def of_size(
        self,
        chunk_bytes: int,
        topology: Topology | None = None,
        may_cut: bool = True,
        most_transfers: float = math.inf,
        is_over: Callable[[], bool] = lambda: False,
    ) -> list[Baseline]:
        """Every algorithm in the variant that is fastest for chunks of that size, in order of the names.

        `topology`: the same with other costs. Unless chunks `may_cut` be, only variants count that take them as they
        are. Once there are `most_transfers` in all variants, no more are tried but the first of each algorithm;
        once it `is_over`, none. Raises `InputError` where a rank is out of reach.
        """
        if chunk_bytes < 1:
            raise InputError(f"chunk_bytes must be >= 1, got {chunk_bytes}")
        network = Network(topology or self.topology, chunk_bytes)
        limits = _Limits(may_cut, is_over, most_transfers)
        found = [self._fastest(name, chunk_bytes, network, limits) for name in self.names]
        return [baseline for baseline in found if baseline is not None]

    @cached_property
    def _structure(self) -> Structure:
        return Structure(self.topology, self.collective)

    @cached_property
    def _algorithms(self) -> dict[str, str]:
        name = standard_name(self.collective)
        return {"direct": "direct"} if name is None else _ALGORITHMS[name]

    def _fastest(self, name: str, chunk_bytes: int, network: Network, limits: _Limits) -> Baseline | None:
        best: Baseline | None = None
        base = _BASES.get(self.collective.name, self.collective.name)
        for variants in series(self._structure, self._algorithms[name], base):
            last: Baseline | None = None
            for variant in variants:
                if limits.is_over():
                    return best
                is_enough = limits.transfers_left <= 0 or not self._is_worth_it(variant, last, chunk_bytes)
                if best is not None and is_enough:
                    break
                if not limits.may_cut and not self._takes_chunks_whole(variant, chunk_bytes):
                    break
                found = self.built(name, variant, chunk_bytes, network)
                limits.transfers_left -= len(found.schedule)
                best = found if best is None or found.makespan_s < best.makespan_s else best
                if last is not None and found.makespan_s >= last.makespan_s:  # more pieces cost more than they bring
                    break
                last = found
        return best

    def _takes_chunks_whole(self, variant: Variant, chunk_bytes: int) -> bool:
        """Whether the variant's parts are made of whole chunks."""
        share = cut(self.collective, chunk_bytes, variant.parts, variant.whole)
        return share.collective.chunk_count == self.collective.chunk_count

    def _is_worth_it(self, variant: Variant, last: Baseline | None, chunk_bytes: int) -> bool:
        """Whether chunks keep some bytes, and the number of transfers stays small."""
        per_block = self.collective.chunks_per_rank * chunk_bytes
        few = last is None or 2 * len(last.schedule) <= _MOST_TRANSFERS
        return variant.parts <= per_block and few

    def built(self, name: str, variant: Variant, chunk_bytes: int, network: Network | None = None) -> Baseline:
        """One variant of an algorithm, for chunks of that size."""
        network = Network(self.topology, chunk_bytes) if network is None else network
        share = cut(self.collective, chunk_bytes, variant.parts, variant.whole)
        transfers: list[Transfer] = []
        if self.collective.reduces:
            transfers = backwards(lay(network.reverse, variant.sends(share, True)))
        if not self.collective.reduces or self.collective.name == "allreduce":
            transfers = one_after_the_other(transfers, lay(network, variant.sends(share, False)))
        title = f"{name} ({variant.title}) {self.collective.name} on {network.topology.name}"
        sends = sends_in_turn(paced(transfers, variant.pace))
        schedule = to_schedule(network.topology, share.collective, share.chunk_bytes, *sends, title)
        return Baseline(name, variant.title, share.collective, share.chunk_bytes, schedule)
