"""The baselines by name: each algorithm in the variant (channels, order, pieces) that the replay finds fastest."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gapless.encodings.taccl.baselines.cut import Cut, cut, standard_name
from gapless.encodings.taccl.baselines.transfers import (
    Network,
    backwards,
    end_s_of,
    lay,
    one_after_the_other,
    paced,
    work_of,
)
from gapless.encodings.taccl.baselines.variants import Structure, Variant, series
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.errors import InputError
from gapless.ir.collective import Collective
from gapless.ir.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["ALGORITHMS", "BASES", "Accepts", "Baseline", "Baselines", "Effort", "baselines"]

_MOST_TRANSFERS = 40_000
"""More pieces are not tried where they would take more transfers than this."""

_SPREAD = {"ring": "ring", "hierarchical": "hierarchical", "direct": "direct"}
ALGORITHMS = {
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

_OTHERS = 3
"""A form of more than one part is only built where so many algorithms of as many parts would fit into the work."""

Accepts = Callable[[Collective, list[Transfer]], bool]
"""Whether transfers may be used, of a collective that may have been cut."""


def _accepts_all(collective: Collective, transfers: list[Transfer]) -> bool:
    return True


BASES = {"allreduce": "allgather", "reducescatter": "allgather", "reduce": "broadcast"}
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


@dataclass(frozen=True)
class Effort:
    """How much a search among the algorithms may take: `transfers` laid out for the first variants of all forms, and
    variants of more pieces as long as `further` are not laid out.
    """

    transfers: int
    further: int


@dataclass
class _Limits:
    """What holds the choice of variants back; `transfers_left`: how many may still be laid out."""

    may_cut: bool
    is_over: Callable[[], bool]
    transfers_left: float
    accepts: Accepts


@dataclass(frozen=True)
class _Laid:
    """A variant along the links: its transfers in order, and when the last one ends."""

    variant: Variant
    share: Cut
    transfers: list[Transfer]
    end_s: float = math.inf


@dataclass(frozen=True)
class _Form:
    """Variants of an algorithm that differ in the number of pieces, the first of them and the others.

    `work`: about how much one of them takes.
    """

    name: str
    work: Callable[[Variant], int]
    first: Variant
    variants: Iterator[Variant]


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
        accepts: Accepts = _accepts_all,
    ) -> list[Baseline]:
        """Every algorithm in the variant that is fastest for chunks of that size, in order of the names.

        `topology`: the same with other costs. Unless chunks `may_cut` be, only variants count that take them as they
        are. Once there are `most_transfers` in all variants, no more are tried but the first of each algorithm;
        once it `is_over`, none. `accepts`: says which of them count. Raises `InputError` where a rank is out of reach.
        """
        if chunk_bytes < 1:
            raise InputError(f"chunk_bytes must be >= 1, got {chunk_bytes}")
        network = Network(topology or self.topology, chunk_bytes)
        limits = _Limits(may_cut, is_over, most_transfers, accepts)
        found = [(name, self._fastest(name, chunk_bytes, network, limits)) for name in self.names]
        return [self._baseline(name, laid, network) for name, laid in found if laid is not None]

    @cached_property
    def _structure(self) -> Structure:
        return Structure(self.topology, self.collective)

    @cached_property
    def _algorithms(self) -> dict[str, str]:
        name = standard_name(self.collective)
        return {"direct": "direct"} if name is None else ALGORITHMS[name]

    def quickest(
        self, chunk_bytes: int, may_cut: bool, most: Effort, accepts: Accepts = _accepts_all
    ) -> tuple[Baseline | None, int]:
        """The fastest of all algorithms, and how many transfers were laid out to find it.

        First one variant of each form of an algorithm, those of few messages first; then more pieces of the form that
        is the fastest in its last variant, as long as that helps. What would take more work than is left is passed
        over, and what needs a path that there isn't.
        """
        network, laid_out = Network(self.topology, chunk_bytes), 0
        best: tuple[float, str, _Laid] | None = None
        forms = sorted(self._forms(most.transfers), key=lambda form: form.work(form.first))
        runs = [(0.0, number, form, form.first) for number, form in enumerate(forms)]
        while runs:
            last_s, number, form, variant = heapq.heappop(runs)
            is_first = not last_s and variant.pace == (1, 1)
            expected, left = form.work(variant), (most.transfers if is_first else most.further) - laid_out
            is_fit = may_cut or self._takes_chunks_whole(variant, chunk_bytes)
            is_fit &= is_first or self._is_worth_it(variant, None, chunk_bytes)
            if expected > left or not is_fit:
                continue
            is_last = laid_out + 3 * expected > most.further  # twice as many pieces are too many
            enough_s = best[0] if best is not None and is_last else last_s or math.inf
            before = network.work + network.reverse.work
            try:
                laid = self._laid(variant, chunk_bytes, network, left, enough_s)
            except InputError:  # a rank is out of reach
                laid = None
            laid_out += network.work + network.reverse.work - before
            laid_out += expected if laid is None else work_of(laid.transfers)
            if laid is None or laid.end_s >= (last_s or math.inf):
                continue
            is_better = best is None or laid.end_s < best[0]
            if is_better and accepts(laid.share.collective, laid.transfers):
                best = laid.end_s, form.name, laid
            further = next(form.variants, None)
            if further is not None:
                heapq.heappush(runs, (laid.end_s, number, form, further))
        return None if best is None else self._baseline(best[1], best[2], network), laid_out

    def _forms(self, most_transfers: float) -> Iterator[_Form]:
        """Every form of every algorithm, with its first variant."""
        base = BASES.get(self.collective.name, self.collective.name)
        phases = 2 if self.collective.name == "allreduce" else 1
        for name in self.names:
            algorithm = self._algorithms[name]

            def work(variant: Variant, algorithm: str = algorithm) -> int:
                return phases * self._structure.work(algorithm, base, variant)

            least = work(Variant("", 1, (1, 1), lambda cut, is_reversed: []))
            if least > most_transfers:
                continue
            for variants in series(self._structure, algorithm, base, most_transfers / max(_OTHERS * least, 1)):
                yield _Form(name, work, next(variants), variants)

    def _fastest(self, name: str, chunk_bytes: int, network: Network, limits: _Limits) -> _Laid | None:
        best: _Laid | None = None
        base = BASES.get(self.collective.name, self.collective.name)
        for variants in series(self._structure, self._algorithms[name], base):
            last: _Laid | None = None
            for variant in variants:
                if limits.is_over():
                    return best
                is_enough = limits.transfers_left <= 0 or not self._is_worth_it(variant, last, chunk_bytes)
                if best is not None and is_enough:
                    break
                if not limits.may_cut and not self._takes_chunks_whole(variant, chunk_bytes):
                    break
                laid = self._laid(variant, chunk_bytes, network)
                assert laid is not None
                limits.transfers_left -= len(laid.transfers)
                is_better = best is None or laid.end_s < best.end_s
                if is_better and limits.accepts(laid.share.collective, laid.transfers):
                    best = laid
                if last is not None and laid.end_s >= last.end_s:  # more pieces cost more than they bring
                    break
                last = laid
        return best

    def _takes_chunks_whole(self, variant: Variant, chunk_bytes: int) -> bool:
        """Whether the variant's parts are made of whole chunks."""
        share = self._share(chunk_bytes, variant)
        return share.collective.chunk_count == self.collective.chunk_count

    def _is_worth_it(self, variant: Variant, last: _Laid | None, chunk_bytes: int) -> bool:
        """Whether chunks keep some bytes, and the number of transfers stays small."""
        per_block = self.collective.chunks_per_rank * chunk_bytes
        few = last is None or 2 * len(last.transfers) <= _MOST_TRANSFERS
        return variant.parts <= per_block and few

    def built(self, name: str, variant: Variant, chunk_bytes: int) -> Baseline:
        """One variant of an algorithm, for chunks of that size."""
        network = Network(self.topology, chunk_bytes)
        laid = self._laid(variant, chunk_bytes, network)
        assert laid is not None
        return self._baseline(name, laid, network)

    def _laid(
        self, variant: Variant, chunk_bytes: int, network: Network, most: float = math.inf, enough_s: float = math.inf
    ) -> _Laid | None:
        """The transfers of a variant, and when the last of them ends.

        None where there are more than `most`, and perhaps where it ends at `enough_s` or later.
        """
        share = self._share(chunk_bytes, variant)
        transfers: list[Transfer] = []
        if self.collective.reduces:
            spread = lay(network.reverse, variant.sends(share, True), most)
            if spread is None:
                return None
            transfers = backwards(spread)
            is_part = self.collective.name == "allreduce" and enough_s < math.inf and not network.topology.congestion
            if is_part and end_s_of(network, paced(transfers, variant.pace), share.chunk_bytes) >= enough_s:
                return None
        if not self.collective.reduces or self.collective.name == "allreduce":
            spread = lay(network, variant.sends(share, False), most - len(transfers))
            if spread is None:
                return None
            transfers = one_after_the_other(transfers, spread)
        laid = _Laid(variant, share, paced(transfers, variant.pace))
        if network.topology.congestion:  # which links the whole uses decides what each of them takes
            end_s = self._baseline("", laid, network).makespan_s
        else:
            end_s = end_s_of(network, laid.transfers, share.chunk_bytes)
        return replace(laid, end_s=end_s)

    def _share(self, chunk_bytes: int, variant: Variant) -> Cut:
        key = (chunk_bytes, variant.parts, variant.whole)
        if key not in self._shares:
            self._shares[key] = cut(self.collective, *key)
        return self._shares[key]

    @cached_property
    def _shares(self) -> dict[tuple[int, int, bool], Cut]:
        return {}

    def _baseline(self, name: str, laid: _Laid, network: Network) -> Baseline:
        """The schedule of transfers."""
        share, title = laid.share, laid.variant.title
        whole = f"{name} ({title}) {self.collective.name} on {network.topology.name}"
        sends = sends_in_turn(laid.transfers)
        schedule = to_schedule(network.topology, share.collective, share.chunk_bytes, *sends, whole)
        return Baseline(name, title, share.collective, share.chunk_bytes, schedule)
