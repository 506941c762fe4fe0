"""Lower bounds on the makespan, each for the class of plans that it holds for, worked out when somebody asks.

*Chunk by chunk*: every chunk is a transfer of its own inside a node, and chunks are grouped at will between nodes; the
MILP and the greedy make such plans. *Any grouping*: chunks are whole and grouped at will on every link. *Any chunking*:
they are cut and grouped at will; this bound holds for the question itself. Each class holds the one before it, so a
bound for a later one holds for the earlier ones, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.array_types import Ids, Mask
from gapless.encodings.taccl.bounds.any_chunking import (
    any_bandwidth_s_per_byte,
    any_chunking_sources,
    of_one_byte,
    on_the_machine,
)
from gapless.encodings.taccl.bounds.arrival import arrival_bound_s, fluid_arrival_bound_s
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import Bottleneck
from gapless.encodings.taccl.bounds.bandwidth.packing import Bandwidth, bottlenecks_of, exact_bandwidth
from gapless.encodings.taccl.bounds.cuts import (
    Kind,
    across_cuts_s,
    crossing_bound_s,
    cuts_bound_s,
    doubling_bound_s,
    gossip_bound_s,
    kinds_of,
)
from gapless.encodings.taccl.bounds.departure import departure_bound_s
from gapless.encodings.taccl.bounds.link_costs import farthest_s
from gapless.encodings.taccl.bounds.one_sum import one_sum_bound_s
from gapless.encodings.taccl.bounds.spreading import influence_bound_s, spreading_bound_s
from gapless.encodings.taccl.bounds.tradeoffs import byte_trees_bound_s
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.symmetry.quotient import rotations_of
from gapless.encodings.taccl.symmetry.rotations import Rotations
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions

__all__ = ["Bounds", "bounds_of", "class_name"]


_NONE: Mapping[str, float] = {}
_SHARE = 0.3
"""The linear programs of one bound take at most this part of the time that is left."""


def bounds_of(
    problem: Chunked,
    parameters: BoundParameters | None = None,
    options: SolveOptions | None = None,
    one_at_a_time: bool = False,
    s_per_byte: float | None = None,
    question: Bounds | None = None,
) -> Bounds:
    """The bounds of a problem; nothing is computed yet.

    `options`: until when linear programs may be solved; one takes at most a part of the time that is left then.
    `one_at_a_time`: the problem is a sum's backwards in time, where a rank sends a chunk to one rank at a time.
    `s_per_byte`: what `Bounds.s_per_byte` was for another size. `question`: the bounds of the question that the problem
    cuts into chunks; those for any chunking hold for it.
    """
    limits, options = parameters or BoundParameters(), options or SolveOptions()
    return Bounds(problem, limits, options, one_at_a_time, s_per_byte, question)


def class_name(problem: Chunked, is_grouped: bool) -> str:
    """What a class of plans is called: those in the problem's chunks, grouped at will or one at a time."""
    chunks = f"{problem.chunks} chunk" + ("s" if problem.chunks != 1 else "")
    sketch = "" if problem.sketch is None else f", sketch {problem.sketch.name}"
    apart = "one at a time inside nodes" if problem.may_group.any() else "one at a time"
    return f"{chunks}{sketch}, {'any grouping' if is_grouped else apart}"


@dataclass(frozen=True)
class Bounds:
    """Seconds; see `bounds_of`. The bounds of a sum are at least those of its phases: its parts must reach their root,
    and what is at a root must reach all that want the sum.
    """

    problem: Chunked
    parameters: BoundParameters
    options: SolveOptions
    one_at_a_time: bool
    known_s_per_byte: float | None
    question: Bounds | None = None
    proven_s: float = 0.0

    def with_proven(self, proven_s: float, anew: bool = False) -> Bounds:
        """The same with what a solver has proven for plans chunk by chunk; `anew`: nothing else counts any more."""
        bounds, proven_s = replace(self), proven_s if anew else max(proven_s, self.proven_s)
        bounds.__dict__.update(self.__dict__, proven_s=proven_s)  # what has been worked out stays so
        return bounds

    @property
    def chunk_by_chunk_s(self) -> float:
        """No plan chunk by chunk takes less."""
        return max(self.proven_s, *self.chunk_by_chunk.values())

    @property
    def greedy_s(self) -> float:
        """What the greedy knows: no plan chunk by chunk takes less, where every chunk may use every link."""
        return max(self.quick_greedy_s, *(phase.bandwidth.time_s for phase in self.phases))

    @property
    def quick_greedy_s(self) -> float:
        """Of that, what takes no linear program."""
        of_phases = [phase.chunk_by_chunk_s for phase in self.phases]
        return max(self.crossing_s if len(of_phases) > 1 else 0.0, *of_phases)

    @property
    def quick_any_grouping_s(self) -> float:
        """No plan of whole chunks takes less: what is worked out at once."""
        return max(self.any_chunking_s, *self.quick_any_grouping.values())

    @property
    def any_grouping_s(self) -> float:
        """No plan of whole chunks takes less."""
        return max(self.any_chunking_s, *self.any_grouping.values())

    @property
    def asked_s(self) -> float:
        """No plan that answers the question takes less: cut at will, unless the question names its chunks."""
        return max(self._quick_asked_s, self.one_sum_s)

    @cached_property
    @charge("bounds: one_sum")
    def one_sum_s(self) -> float:
        """See `one_sum_bound_s`; it takes longer than all others, so that only the bound of a question has it."""
        machine = on_the_machine(self.problem)
        if not machine.collective.reduces or Deadline(self.options).over:
            return 0.0
        topology, kinds = machine.logical.topology, kinds_of(machine)
        return one_sum_bound_s(topology, kinds, self._quick_asked_s, self.parameters, self._stage)

    @property
    def _quick_asked_s(self) -> float:
        return self.any_chunking_s if self.problem.may_cut else max(self.any_grouping_s, self.any_chunking_s)

    @property
    def quick_asked_s(self) -> float:
        """The same, of what is worked out at once."""
        return self.any_chunking_s if self.problem.may_cut else self.quick_any_grouping_s

    @property
    def asked_class(self) -> str:
        """What `asked_s` holds for."""
        return "any chunking" if self.problem.may_cut else class_name(self.problem, is_grouped=True)

    @property
    def any_chunking_s(self) -> float:
        """No plan takes less."""
        return max(self.any_chunking.values())

    @cached_property
    def chunk_by_chunk(self) -> dict[str, float]:
        """By where they come from: shortest paths, cuts around ranks and nodes, and for sums how fast parts come
        together, and how often they cross cuts.
        """
        if not self.problem.collective.reduces:
            return self._in_time(
                latency=lambda: self.latency_s, cuts=lambda: self._cuts_s(self.problem.may_group)
            )  # fmt: skip
        return self._in_time(
            latency=lambda: self.latency_s,
            cuts=lambda: max(phase.chunk_by_chunk["cuts"] for phase in self.phases),
            reduction=lambda: doubling_bound_s(self.problem, self.kinds),
            crossing=lambda: self.crossing_s,
        )

    @cached_property
    def any_grouping(self) -> dict[str, float]:
        """By where they come from: the quick ones, how many ranks can know of something by when, and for sums how fast
        parts come to all.
        """
        if not self.problem.collective.reduces:
            known_s = max(self.quick_any_grouping.values())
            return self._in_time(self.quick_any_grouping, spreading=lambda: self.spreading_s(known_s))
        return self._in_time(
            self.quick_any_grouping,
            spreading=lambda: max(phase.any_grouping["spreading"] for phase in self.phases),
            gossip=lambda: gossip_bound_s(self.problem, self.kinds),
        )

    @cached_property
    def quick_any_grouping(self) -> dict[str, float]:
        """Those of them that are worked out at once: shortest paths, cuts, and by when a rank or a node can have what
        it wants.
        """
        if not self.problem.collective.reduces:
            return self._in_time(
                latency=lambda: self.latency_s,
                cuts=lambda: self._cuts_s(self._all_links),
                arrival=lambda: arrival_bound_s(self.problem, self.parameters.most_counted_chunks),
            )
        quick = [phase.quick_any_grouping for phase in self.phases]
        return self._in_time(
            latency=lambda: self.latency_s,
            cuts=lambda: max(self._crossing_s(self._all_links), *(phase["cuts"] for phase in quick)),
            arrival=lambda: max(phase["arrival"] for phase in quick),
        )

    def _in_time(self, known: Mapping[str, float] = _NONE, /, **bounds_s: Callable[[], float]) -> dict[str, float]:
        """Bounds by name after known ones, 0 for those that there is no time for; the first of all there always is."""
        deadline, found = Deadline(self.options), dict(known)
        for name, bound_s in bounds_s.items():
            found[name] = 0.0 if found and deadline.over else _charged(name, bound_s)
        return found

    def spreading_s(self, known_s: float = 0.0) -> float:
        """How fast something can reach many ranks, of a problem that doesn't reduce; see `influence_bound_s`."""
        steps, most = self.parameters.time_steps, self.parameters.most_counted_chunks
        influence_s = influence_bound_s(self.problem, self.one_at_a_time, steps, most // 2, known_s)
        return max(spreading_bound_s(self.problem, self.one_at_a_time), influence_s)

    @cached_property
    def any_chunking(self) -> dict[str, float]:
        """By where they come from, see `any_chunking_sources`; what is quick alone, where the time is up.

        `one_byte`: spreading and gossip of single bytes; `arrival`: by when a rank or a node can have its bytes;
        `byte_trees`: alphas of small messages against the wait for large ones; `departure`: likewise, out of a source.
        """
        if self.question is not None:
            return self.question.any_chunking
        if self.known_s_per_byte is None and Deadline(self.options).over:
            return any_chunking_sources(self.problem, 0.0)
        machine = on_the_machine(self.problem)
        later: dict[str, Callable[[], float]] = {
            "one_byte": self._one_byte_s,
            "arrival": self._arrival_s,
            "byte_trees": lambda: byte_trees_bound_s(machine),
            "departure": lambda: max(departure_bound_s(phase.problem) for phase in machine.phases),
        }
        with charge("bounds: any_chunking"):
            found = any_chunking_sources(self.problem, self.s_per_byte)
        return {**found, **{name: _charged(name, bound_s) for name, bound_s in later.items()}}

    def _arrival_s(self) -> float:
        """See `fluid_arrival_bound_s`; 0 where there are too many pairs of chunk and rank to look at."""
        collective = self.problem.collective
        if collective.chunk_count * collective.rank_count > self.parameters.most_rank_pairs:
            return 0.0
        return max(fluid_arrival_bound_s(phase.problem) for phase in on_the_machine(self.problem).phases)

    def _one_byte_s(self) -> float:
        """See `of_one_byte`."""
        single = of_one_byte(self.problem, self.parameters.most_rank_pairs)
        if single is None:
            return 0.0
        bounds = bounds_of(single, self.parameters, self.options, self.one_at_a_time)
        kinds = bounds.kinds if single.collective.reduces else []
        spreading_s = max(phase.spreading_s() for phase in bounds.phases)
        return max(spreading_s, gossip_bound_s(single, kinds))

    @cached_property
    @charge("bounds: bandwidth")
    def s_per_byte(self) -> float:
        """Seconds for each byte of a chunk that no plan can beat, in linear programs that take a while."""
        if self.known_s_per_byte is not None:
            return self.known_s_per_byte
        return any_bandwidth_s_per_byte(self.problem, self.parameters, self._stage)

    @cached_property
    @charge("bounds: bandwidth")
    def bandwidth(self) -> Bandwidth:
        """What links take chunk by chunk at least, of a problem that doesn't reduce and whose chunks use every link."""
        occupancy_s = self.problem.occupancy_s
        return exact_bandwidth(self.problem, occupancy_s, self._rotations, self._stage, self.parameters, short=True)

    @cached_property
    @charge("bounds: bandwidth")
    def bottlenecks(self) -> tuple[Bottleneck, ...]:
        """Of `bandwidth` the cuts alone, which are there at once."""
        return bottlenecks_of(self.problem, self.problem.occupancy_s, self._rotations)

    @property
    def even_roots_s(self) -> float:
        """What bandwidth allows a sum whose phases are in turn, with the problem's roots: of an ALLREDUCE on all ranks
        alike. Plans whose phases overlap may take less.
        """
        return sum(phase.problem.chunk_bytes * phase.s_per_byte for phase in self.phases)

    @property
    def _stage(self) -> SolveOptions:
        """The options for the linear programs of one bound."""
        deadline = Deadline(self.options)
        return replace(deadline.stage(_SHARE * deadline.remaining_s), gap=0.0, threads=1, on_progress=None)

    @cached_property
    def phases(self) -> tuple[Bounds, ...]:
        """The bounds of each phase, itself where it doesn't reduce."""
        phases = self.problem.phases
        if not self.problem.collective.reduces:
            return (self,)
        asked = (None,) * len(phases) if self.question is None else self.question.phases
        return tuple(
            bounds_of(phase.problem, self.parameters, self.options, phase.backwards, question=question)
            for phase, question in zip(phases, asked, strict=True)
        )

    @cached_property
    @charge("bounds: latency")
    def latency_s(self) -> float:
        """The longest of the shortest paths."""
        problem = self.problem
        if problem.collective.reduces:
            return max(phase.latency_s for phase in self.phases)
        if self._is_small or problem.sketch is not None:
            return float(problem.earliest_s[problem.wanted].max(initial=0.0))
        owned = problem.owners[:, None] == np.arange(problem.collective.rank_count)
        starts = np.unique(self._rotations.rank_orbit)
        return farthest_s(problem.logical.topology, problem.duration_s, owned, problem.wanted, starts)

    @cached_property
    @charge("bounds: crossing")
    def crossing_s(self) -> float:
        """What a sum's parts take across cuts, chunk by chunk; both phases together."""
        return self._crossing_s(self.problem.may_group)

    def _crossing_s(self, may_group: Mask) -> float:
        crossing_s = crossing_bound_s(self.problem, self.kinds, may_group)
        if not self._is_small:
            return crossing_s
        return max(crossing_s, across_cuts_s(self.problem, self.kinds, may_group, self._symmetry))

    def _cuts_s(self, may_group: Mask) -> float:
        if not self._is_small:
            return 0.0
        return cuts_bound_s(self.problem, may_group, self.parameters.cut_times, self._symmetry)

    @cached_property
    def _symmetry(self) -> list[Ids]:
        """Permutations of the ranks that keep the problem: those of its sketch, or else all rotations."""
        problem = self.problem
        if not problem.is_free:
            return [images.ranks for images in problem.logical.symmetry]
        of_phases = [rotations_of(phase.problem).ranks for phase in problem.phases]
        is_same = all(np.array_equal(ranks, of_phases[0]) for ranks in of_phases)
        return list(of_phases[0]) if is_same else []

    @cached_property
    def kinds(self) -> list[Kind]:
        """The chunks of a sum by who has parts of them and who wants them."""
        return kinds_of(self.problem)

    @cached_property
    def _rotations(self) -> Rotations:
        return rotations_of(self.problem)

    @property
    def _all_links(self) -> Mask:
        return np.ones(self.problem.link_count, dtype=np.bool_)

    @property
    def _is_small(self) -> bool:
        pairs = self.problem.pair_count
        return pairs <= self.parameters.most_pairs


def _charged(name: str, bound_s: Callable[[], float]) -> float:
    """A bound, worked out in its own time."""
    with charge(f"bounds: {name}"):
        return bound_s()
