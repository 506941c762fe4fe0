"""Problem: the question, which collective on which machine for how many bytes; into how many chunks is left open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, cast

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.failures import among_those_left, check_reach, has_failures, machine_left
from gapless.encodings.taccl.question import AUTO, COLLECTIVE, Method, Question
from gapless.encodings.taccl.repair.earlier import Earlier, earlier_plan
from gapless.encodings.taccl.sketch.format import Sketch, load_sketch, read_sketch
from gapless.encodings.taccl.unequal.asked import amounts_asked, experts_asked, is_unequal
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.errors import InputError
from gapless.io.formats.collective_file import read_collective
from gapless.io.formats.groups_file import read_groups
from gapless.ir.collective import Collective
from gapless.ir.process_groups import Group, Groups, groups_of
from gapless.options import SolveOptions
from gapless.question import from_question
from gapless.report.short_repr import BriefQuestion
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

__all__ = ["Problem", "find_sketch", "find_topology", "problem", "problem_of"]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Carry out a collective on a topology as fast as possible.

    `collective`: a name, which `root` and `target` go with, one of your own, or those of process groups. `size_bytes`:
    of the largest input buffer of a rank (of groups, that of the largest). `sketch`: what a plan keeps to, `auto` for
    the best that is found, None for all links. With a `path_slack` s, a chunk takes only links that bring it to its end
    within (1 + s) times the shortest time. `method`: one, or `auto` for the best of all. `chunks`: what is for one
    rank, or comes from one, in so many chunks; None leaves it to the sketch, or else to the search. `earlier`: a
    plan from before a failure, to go on from.

    Raises `InputError` for a value out of its range, and where sketch, collective and topology don't fit.
    """

    topology: Topology
    collective: str | Collective | Groups
    size_bytes: int
    sketch: Sketch | Literal["auto"] | None = None
    root: int | None = None
    target: int | None = None
    path_slack: float | None = None
    method: Method = cast("Method", Question.method)
    chunks: int | None = None
    earlier: Earlier | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.size_bytes < 1:
            raise InputError(f"size_bytes must be >= 1, got {self.size_bytes}")
        if self.chunks is not None and self.chunks < 1:
            raise InputError(f"chunks must be >= 1, got {self.chunks}")
        if isinstance(self.sketch, str) and self.sketch != AUTO:
            raise InputError(f"sketch must be a Sketch, 'auto' or None, got {self.sketch!r}")
        if self.searches_sketches:
            for name, left_open in (("path_slack", None), ("chunks", None), ("method", "auto")):
                if getattr(self, name) != left_open:
                    raise InputError(f"{name}: is for one sketch, not for sketch auto; got {getattr(self, name)!r}")
        if not isinstance(self.collective, str) and (self.root, self.target) != (None, None):
            raise InputError(f"{self.collective.name}: root and target must be left out with a collective of your own")
        assert self.coarsest is not None  # it is checked as it is made

    @property
    def system(self) -> str:
        """`taccl`."""
        return "taccl"

    @property
    def description(self) -> dict[str, object]:
        """What is asked, in plain values; the description of the `Chunked` that was solved has the chunks as well."""
        data = self.coarsest.description
        sketch = AUTO if self.searches_sketches else data["sketch"]
        return {**data, "input_bytes": self.size_bytes, "sketch": sketch, "chunks": self.chunks}

    @property
    def default_options(self) -> SolveOptions:
        """Within 5 % of the best possible; of all sketches, the best that a minute finds."""
        return SolveOptions(gap=0.05, time_limit_s=60.0 if self.searches_sketches else None)

    @property
    def searches_sketches(self) -> bool:
        """Whether the sketch is to be found."""
        return self.sketch == AUTO

    @property
    def is_open(self) -> bool:
        """Whether nobody has said into how many chunks the data are cut."""
        return self.chunks is None and self.sketch is None

    @cached_property
    def coarsest(self) -> Chunked:
        """The problem in as few chunks as there can be."""
        return self.in_chunks(self.chunks)

    def in_chunks(self, chunks: int | None) -> Chunked:
        """The problem in so many chunks; None for the sketch's number, or 1."""
        sketch = None if isinstance(self.sketch, str) else self.sketch
        return Chunked.of(
            self.topology, self.collective, self.size_bytes, sketch, self.path_slack, self.method, chunks, self.root,
            self.target, self.is_open,
        )  # fmt: skip

    def under(self, sketch: Sketch | None, chunks: int) -> Chunked:
        """The problem under a sketch, or under none, in so many chunks."""
        return replace(self, sketch=sketch, chunks=chunks).coarsest


def problem_of(asked: Question) -> Problem | Unequal:
    """The collective that is asked for. Raises `InputError` naming a field that doesn't go with the others."""
    if is_unequal(asked):
        machine = find_topology(asked.topology, asked.topology_file, asked.nodes, None)
        machine = machine.without_switch_groups() if asked.no_switch_reduction else machine  # else its bounds know them
        if asked.from_plan is not None:
            raise InputError("from: must be left out with bytes by pair, which are planned anew")
        if asked.without_ranks is not None:
            raise InputError("without_ranks: must be left out with bytes by pair: give a matrix without the ranks")
        return _unequal(machine_left(machine, asked), asked)
    sketch = find_sketch(asked.sketch, asked.sketch_file)
    chosen = None if isinstance(sketch, str) else sketch
    size_bytes = asked.size or (None if chosen is None else chosen.input_bytes)
    sought: Sketch | Literal["auto"] | None = AUTO if sketch == AUTO else chosen
    if _is_among_groups(asked):
        machine = _machine(asked, chosen)
        groups = Groups(_find_groups(asked, machine.device_count, size_bytes), asked.relays != "no")
        return _after_failures(machine, groups, max(each.size_bytes for each in groups.groups), sought, asked)
    if size_bytes is None:
        raise InputError("size: must be given, such as 1MB" + ("; the sketch names no input_size" if chosen else ""))
    collective = _find_collective(asked)
    machine = _machine(asked, chosen)
    return _after_failures(machine, collective, size_bytes, sought, asked)


def _after_failures(
    machine: Topology, collective: str | Collective | Groups, size_bytes: int,
    sketch: Sketch | Literal["auto"] | None, asked: Question,
) -> Problem:  # fmt: skip
    """The problem on the machine that is left, among the ranks that are left."""
    left = machine_left(machine, asked)
    among = among_those_left(collective, asked, machine, size_bytes)
    ends = (None, None) if isinstance(among, Groups) else (asked.root, asked.target)
    if has_failures(asked):
        check_reach(left, among, *ends)
    method = cast("Method", asked.method)
    found = Problem(left, among, size_bytes, sketch, *ends, asked.path_slack, method, asked.chunks)
    return found if asked.from_plan is None else _going_on(found, machine, asked)


def _going_on(problem: Problem, machine: Topology, asked: Question) -> Problem:
    """The problem with the plan to go on from. Raises `InputError` where they don't fit each other."""
    for name in ("sketch", "path_slack"):
        if getattr(problem, name) is not None:
            raise InputError(f"{name}: must be left out with --from, which goes on from a plan on all links")
    earlier = earlier_plan(asked.from_plan)
    if problem.chunks not in (None, earlier.chunks):
        raise InputError(
            f"chunks: must be left out with --from, or {earlier.chunks}, as its plan has; got {asked.chunks}"
        )
    earlier.check(machine, problem.in_chunks(earlier.chunks))
    return replace(problem, earlier=earlier)


def _unequal(machine: Topology, asked: Question) -> Problem | Unequal:
    """The collective of unlike shares; where all are of one size, it is the collective of the plain name."""
    found = Unequal(machine, amounts_asked(asked), experts_asked(asked))
    share_bytes, ranks = found.amounts.equal_bytes, found.amounts.rank_count
    if share_bytes is None:
        return found
    if found.amounts.is_gather:
        return Problem(machine, "allgather", share_bytes)
    return Problem(machine, "alltoall", share_bytes * ranks)


def _machine(asked: Question, sketch: Sketch | None) -> Topology:
    """The topology that is asked for; where that is wanted, without what its switches do besides passing on."""
    machine = find_topology(asked.topology, asked.topology_file, asked.nodes, sketch)
    return machine.without_switch_groups() if asked.no_switch_reduction else machine


problem = from_question(Question)(problem_of)
"""`problem_of` the question that the arguments ask."""


def find_sketch(sketch: str | Sketch | None, sketch_file: str | None) -> Sketch | str | None:
    """The sketch that is named, in a file, or given; `auto` as it is."""
    if sketch is not None and sketch_file is not None:
        raise InputError("give `sketch` or `sketch_file`, not both")
    if sketch_file is not None:
        return read_sketch(sketch_file)
    return load_sketch(sketch) if isinstance(sketch, str) and sketch != AUTO else sketch


def find_topology(
    topology: str | Topology | None, topology_file: str | None, nodes: int | None, sketch: Sketch | None
) -> Topology:
    """The topology that is named, in a file, or given; of so many nodes, or as many as the sketch has, or one."""
    if isinstance(topology, Topology):
        if nodes is not None or topology_file is not None:
            raise InputError("`nodes` and `topology_file`: must be left out with a topology that is given")
        return topology
    if topology is None and topology_file is None:
        raise InputError("give `topology` NAME (`gapless list topologies`) or `topology_file` FILE")
    of_sketch = sketch.node_count if sketch is not None else None
    return load_topology(topology, nodes, topology_file, of_sketch or 1)


def _find_collective(asked: Question) -> str | Collective:
    if asked.collective_file is None:
        return asked.collective or COLLECTIVE
    if asked.collective is not None:
        raise InputError("give `collective` or `collective_file`, not both")
    _leave_out_ranks(asked, "collective_file")
    return read_collective(asked.collective_file)


def _leave_out_ranks(asked: Question, file: str) -> None:
    """Refuse the ranks of a collective that a file says."""
    for name in ("root", "target"):
        if getattr(asked, name) is not None:
            raise InputError(f"{name}: must be left out with `{file}`, which says it all")


def _is_among_groups(asked: Question) -> bool:
    """Whether process groups are named, in one form."""
    given = [name for name in ("ranks", "group", "groups_file") if getattr(asked, name)]
    if len(given) > 1:
        raise InputError(f"give {' or '.join(f'`{name}`' for name in given)}, not both")
    if asked.relays != Question.relays and not given:
        raise InputError(f"relays: is for `ranks`, `group` and `groups_file`, got {asked.relays!r} without them")
    if given and (asked.collective_file is not None or isinstance(asked.collective, Collective)):
        raise InputError(f"{given[0]}: goes with the name of a collective, not with one of your own")
    return bool(given)


def _find_groups(asked: Question, rank_count: int, size_bytes: int | None) -> tuple[Group, ...]:
    collective = str(asked.collective or COLLECTIVE)
    if asked.groups_file is not None:
        _leave_out_ranks(asked, "groups_file")
        return tuple(read_groups(asked.groups_file, rank_count, collective, size_bytes))
    texts = asked.group or (asked.ranks or "",)
    return tuple(groups_of(texts, rank_count, collective, size_bytes, asked.root, asked.target))
