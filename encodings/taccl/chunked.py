"""Chunked: one collective on one topology under one sketch, with its data cut into chunks of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.question import METHODS, Method
from gapless.encodings.taccl.sketch.format import Sketch
from gapless.encodings.taccl.sketch.logical import LogicalTopology, apply_sketch, is_part
from gapless.encodings.taccl.sketch.phases import spreads_of
from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations, orbits
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_data
from gapless.ir.collective import Collective, collective_by_name, divided
from gapless.ir.graph import Graph
from gapless.ir.process_groups import Groups
from gapless.options import Deadline, SolveOptions
from gapless.report.short_repr import BriefQuestion
from gapless.solution import Bound, Solution, Status, StopReason, by_class, with_class_exhausted
from gapless.topologies.topology import Topology

__all__ = ["FEW_PAIRS", "MOST_PAIRS", "Chunked", "Phase", "chunks_of", "claim"]

FEW_PAIRS = 100_000
"""Pairs of chunk and link up to which single chunks are looked at: of more, bounds would take longer than a plan."""
MOST_PAIRS = 30_000_000
"""Pairs of chunk and link up to which tables of them all fit into memory."""
_LARGEST_TABLE = 4_000_000
"""Pairs of chunk and link above which orbits aren't counted: no sketch makes so many few enough."""
_LARGEST_SPREAD = 1e12
"""Solvers count in the fastest link's time, and need numbers that differ from zero and from infinity."""


_FEW_CONNECTIONS_BYTES = 1_000_000
"""The policy `by-size` wants few connections for larger chunks (section 5.4.2)."""


@dataclass(frozen=True, repr=False)
class Chunked(BriefQuestion):
    """Synthesise `collective` for chunks of `chunk_bytes` on the part of `topology` that `sketch` keeps.

    Chunks that travel between nodes may be grouped: n of them take `alpha + n * beta * size`. Inside a node every chunk
    is a transfer of its own, as in TACCL (section 5.4.2), but in the aggregated sends that `auto` tries besides. With a
    `path_slack` s, a chunk takes only links that bring it to their end within (1 + s) times the shortest time: fewer
    variables, and perhaps a worse optimum. `method`: how to plan, `auto` for the best of all methods. `given`: a
    logical topology that takes the place of the one that the sketch makes of the topology. `may_cut`: with `auto`,
    chunks may be cut into smaller ones, so that the plan is one for another problem. `groups`: where the collective is
    that of process groups, these; `topology` has the links that they may use. Raises `InputError` where sketch and
    topology don't fit.

    What reduces is solved in phases, each of which is a problem of its own that doesn't reduce; `owners`, `wanted`
    and what follows from them are for such problems.
    """

    topology: Topology
    collective: Collective
    chunk_bytes: int
    sketch: Sketch | None = None
    path_slack: float | None = None
    method: Method = "auto"
    given: LogicalTopology | None = None
    may_cut: bool = False
    groups: Groups | None = None

    def __post_init__(self) -> None:
        if self.chunk_bytes < 1:
            raise InputError(f"chunk_bytes must be >= 1, got {self.chunk_bytes}")
        if self.collective.rank_count != self.topology.device_count:
            raise InputError(
                f"{self.collective.name} is over {self.collective.rank_count} ranks, "
                f"the topology has {self.topology.device_count}"
            )
        assert self.logical is not None  # the sketch is applied, and so checked, at once
        if self.path_slack is not None and not 0 <= self.path_slack < np.inf:
            raise InputError(f"path_slack must be a finite number >= 0, got {self.path_slack}")
        if self.method not in METHODS:
            raise InputError(f"method: must be one of {', '.join(METHODS)}, got {self.method!r}")
        free = [k for k, duration_s in enumerate(self.duration_s) if duration_s <= 0]
        if free:
            name = self.logical.topology.link_name(free[0])
            raise InputError(f"link {name}: alpha + beta * chunk must be > 0, got 0; give it a latency")
        self._check_spread()
        assert self.phases  # they check that every chunk reaches its ranks

    def _check_spread(self) -> None:
        least_s, most_s = float(self.duration_s.min()), float(self.duration_s.max())
        if not most_s <= _LARGEST_SPREAD * least_s:
            rule = f"times of links for one chunk must lie within a factor of {_LARGEST_SPREAD:g}"
            raise InputError(f"topology {self.topology.name!r}: {rule}, got {least_s:g} s and {most_s:g} s")

    @property
    def system(self) -> str:
        """`taccl`."""
        return "taccl"

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file; `collective_of` reads the collective back from it."""
        parts, biggest = self.collective, max(len(buffer) for buffer in self.collective.outputs)
        return {
            **collective_data(parts),
            "chunk_bytes": self.chunk_bytes,
            "input_bytes": self.chunk_bytes * max(len(buffer) for buffer in parts.inputs),
            "output_bytes": self.chunk_bytes * biggest,
            "topology": self.topology.name,
            "nodes": self.topology.node_count,
            "sketch": None if self.sketch is None else self.sketch.name,
            "path_slack": self.path_slack,
            "method": self.method,
            **({} if self.groups is None else self.groups.description),
        }

    @property
    def default_options(self) -> SolveOptions:
        """Within 5 % of the best possible, as far as the bound can prove it."""
        return SolveOptions(gap=0.05)

    @classmethod
    def of(
        cls,
        topology: Topology,
        collective: str | Collective | Groups,
        input_bytes: int,
        sketch: Sketch | None = None,
        path_slack: float | None = None,
        method: Method = "auto",
        chunks_per_rank: int | None = None,
        root: int | None = None,
        target: int | None = None,
        may_cut: bool = False,
    ) -> Chunked:
        """From a collective, or its name with root and target, and the size of the largest input buffer of a rank.

        `chunks_per_rank`, or the sketch, says into how many chunks a rank's own data are cut, and each chunk of a
        collective that is given: the part that is for one rank (ALLTOALL, SCATTER), that one rank ends with
        (REDUCESCATTER, ALLREDUCE) or starts with (the others). A chunk is rounded up to whole bytes. Of process groups
        it says so for the smallest share; they know their sizes themselves.
        """
        if input_bytes < 1:
            raise InputError(f"input_bytes must be >= 1, got {input_bytes}")
        parts = chunks_per_rank or (1 if sketch is None else sketch.chunks_per_rank)
        if isinstance(collective, Groups):
            joined, kept = divided(collective.joined(topology.device_count), parts), collective.kept(topology)
            chunk_bytes = -(-collective.chunk_bytes // parts)
            return cls(kept, joined, chunk_bytes, sketch, path_slack, method, may_cut=may_cut, groups=collective)
        if isinstance(collective, str):
            cut = parts * topology.device_count if collective == "alltoall" else parts
            definition = collective_by_name(collective, topology.device_count, cut, root, target)
        else:
            definition = divided(collective, parts)
        chunks = max(len(buffer) for buffer in definition.inputs)
        chunk_bytes = -(-input_bytes // chunks)
        return cls(topology, definition, chunk_bytes, sketch, path_slack, method, may_cut=may_cut)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The parts of the problem that are routed one by one: itself, unless it reduces."""
        if not self.collective.reduces:
            return (Phase(self, backwards=False),)
        return tuple(
            Phase(replace(self, collective=spread.collective, given=spread.logical), spread.backwards)
            for spread in spreads_of(self.collective, self.logical, self.sketch)
        )

    @cached_property
    def logical(self) -> LogicalTopology:
        """The logical topology."""
        if self.given is not None:
            return self.given
        logical = apply_sketch(self.topology, self.collective, self.sketch)
        within = None if self.groups is None else self.groups.allowed(logical.topology, self.collective.chunks_per_rank)
        return logical if within is None else replace(logical, allowed=logical.allowed & within)

    @cached_property
    def machine(self) -> Topology:
        """The topology; the logical one where the sketch makes more of it than there is (lanes at once, planes)."""
        is_whole = self.sketch is None or is_part(self.logical.topology, self.topology)
        return self.topology if is_whole else self.logical.topology

    @cached_property
    def rotations(self) -> Rotations:
        """Those of the logical topology, whether or not they keep the collective."""
        return find_rotations(self.logical.topology)

    @cached_property
    def graph(self) -> Graph:
        """The chunks, where they start and where they must end."""
        return self.collective.graph(self.chunk_bytes)

    @property
    def chunks(self) -> int:
        """In how many chunks is what one rank has for one rank, or for all of them, as `Problem.chunks` counts."""
        return chunks_of(self.collective)

    @property
    def link_count(self) -> int:
        """The number of logical links."""
        return len(self.logical.topology.links)

    @property
    def pair_count(self) -> int:
        """The number of pairs of chunk and link."""
        return self.collective.chunk_count * self.link_count

    @cached_property
    def routing_binaries(self) -> int:
        """The binaries of the routing MILPs of all phases, one for each orbit of (chunk, link) under the sketch's
        symmetry; the number of pairs where that is too large to be worth counting.
        """
        pairs, count = self.pair_count, len(self.phases)
        if pairs > _LARGEST_TABLE or not self.logical.symmetry:
            return pairs * count
        images = [(s.chunks[:, None] * self.link_count + s.links[None, :]).reshape(-1) for s in self.logical.symmetry]
        return len(np.unique(orbits(images, pairs))) * count

    @cached_property
    def duration_s(self) -> Floats:
        """lat(l): seconds for one chunk alone on each logical link, float."""
        topology = self.logical.topology
        return np.asarray(topology.alpha_s + topology.beta_s_per_byte * self.chunk_bytes)

    @cached_property
    def may_group(self) -> Mask:
        """Whether several chunks may travel as one transfer on each logical link, bool."""
        return self.logical.topology.is_inter_node

    @cached_property
    def occupancy_s(self) -> Floats:
        """The least time that one chunk holds each link: lat(l), without the shareable alpha where chunks may group."""
        return np.where(self.may_group, self.duration_s - self.logical.topology.alpha_s, self.duration_s)

    @cached_property
    def owners(self) -> Ids:
        """The rank that holds each chunk at the start, int64."""
        return np.array(self.collective.roots, dtype=np.int64)

    @cached_property
    def wanted(self) -> Mask:
        """`wanted[c, r]`: whether chunk c must reach rank r, its owner left out."""
        wanted = np.zeros((self.collective.chunk_count, self.collective.rank_count), dtype=np.bool_)
        ranks = self.collective.destinations
        chunk = np.repeat(np.arange(len(ranks)), np.fromiter(map(len, ranks), np.int64, len(ranks)))
        wanted[chunk, np.fromiter(chain.from_iterable(ranks), np.int64, len(chunk))] = True
        return wanted

    @cached_property
    def useful(self) -> Mask:
        """`useful[c, l]`: the sketch allows chunk c on link l, and l doesn't lead to c's owner."""
        leads_back = self.logical.topology.link_target[None, :] == self.owners[:, None]
        return np.asarray(self.logical.allowed & ~leads_back)

    @cached_property
    def usable(self) -> Mask:
        """The useful links without those that `path_slack` rules out; the shortest paths are always there."""
        if self.path_slack is None:
            return self.useful
        topology = self.logical.topology
        arrival_s = self.earliest_s[:, topology.link_source] + self.duration_s
        latest_s = (1 + self.path_slack) * self.earliest_s[:, topology.link_target] * (1 + 1e-9)
        return np.asarray(self.useful & (arrival_s <= latest_s))

    @cached_property
    def is_free(self) -> bool:
        """Whether every chunk may take every link."""
        allowed = self.logical.allowed
        return self.path_slack is None and bool(allowed.flat[0] if allowed.strides == (0, 0) else allowed.all())

    @property
    def sums_for_all(self) -> bool:
        """Whether it is an ALLREDUCE of all ranks, in which every chunk may take every link."""
        collective, everybody = self.collective, tuple(range(self.collective.rank_count))
        wanted = all(ranks == everybody for ranks in (*collective.contributors, *collective.destinations))
        return collective.reduces and wanted and bool(self.logical.allowed.all())

    @cached_property
    def link_weight(self) -> Floats:
        """What the policies make of using each link: +1 costs (uc-min), -1 pays (uc-max), 0 is the same; float."""
        weight = np.zeros(self.link_count)
        for edge in self.logical.hyperedges:
            by_size = 1.0 if self.chunk_bytes > _FEW_CONNECTIONS_BYTES else -1.0
            weight[list(edge.links)] = {"uc-min": 1.0, "uc-max": -1.0, "freedom": 0.0, "by-size": by_size}[edge.policy]
        return weight

    @cached_property
    def earliest_s(self) -> Floats:
        """`earliest_s[c, r]`: no schedule brings chunk c to rank r sooner; inf where it can't get. Seconds.

        A sketch may allow each chunk its own links: chunks that may use the same ones are looked at together.
        """
        earliest_s = np.full(self.wanted.shape, np.inf)
        alike: dict[bytes, list[int]] = {}  # with the links that lead back, which are on no shortest path
        allowed = self.logical.allowed
        is_free = not allowed.strides[0]  # one row for all chunks
        for chunk in range(len(self.owners)):
            alike.setdefault(b"" if is_free else allowed[chunk].tobytes(), []).append(chunk)
        for chunks in alike.values():
            owners, place = np.unique(self.owners[chunks], return_inverse=True)
            links = np.flatnonzero(allowed[chunks[0]])
            earliest_s[chunks] = distances_s(self.logical.topology, self.duration_s, owners, links)[place]
        return earliest_s


@dataclass(frozen=True)
class Phase:
    """A problem that doesn't reduce. `backwards`: its links and its time run against those of the whole."""

    problem: Chunked
    backwards: bool


def chunks_of(collective: Collective) -> int:
    """In how many chunks is what one rank has for one rank, or for all of them, as a question says it."""
    shares = collective.rank_count if collective.name == "alltoall" else 1
    return max(collective.chunks_per_rank // shares, 1)


def claim(
    makespan_s: float | None, best_bound_s: float, solver: str, version: str, options: SolveOptions, deadline: Deadline,
    source: str = "", narrower: Sequence[Bound] = (), confined: bool = False,
) -> Solution:  # fmt: skip
    """What is claimed of a plan of this length, None for no plan, and of a bound for all plans of its kind.

    `narrower`: bounds of narrower classes. `confined`: whether the question keeps the search to these.
    """
    assert makespan_s is None or best_bound_s <= makespan_s * (1 + 1e-6), "a schedule beats its lower bound"
    bound_s = best_bound_s if makespan_s is None else min(best_bound_s, makespan_s)
    missing_s = float("inf") if makespan_s is None else makespan_s - bound_s
    proven = makespan_s is not None and missing_s <= 1e-6 * makespan_s
    reason = StopReason.FINISHED
    if not proven and makespan_s is not None and missing_s <= options.gap * makespan_s:
        reason = StopReason.GAP_REACHED
    elif not proven and deadline.over:
        reason = StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT
    status = Status.NO_SOLUTION if makespan_s is None else Status.OPTIMAL if proven else Status.FEASIBLE
    within = () if makespan_s is None else by_class(makespan_s, bound_s, narrower)[0]
    solution = Solution(
        status, reason, solver, version, options.seed, deadline.elapsed_s, objective=makespan_s, bound=bound_s,
        bound_source=source, narrower=within,
    )  # fmt: skip
    return with_class_exhausted(solution, options) if confined and reason is StopReason.FINISHED else solution
