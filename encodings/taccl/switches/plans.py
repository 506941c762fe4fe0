"""Plans that let switches add up and multicast: each rank reduces its shard by the switch, and multicasts the sum.

A piece of an ALLREDUCE is some shards, one for each of some roots. In each node a step reduces the shards of a piece to
their roots, and multicasts those of an earlier piece, whose sums are complete. Between nodes, each shard goes among the
roots of its number: by a switch that joins them, by halving and doubling, or around a ring. How many roots and pieces,
and how many steps lie between the two, is tried out. Process groups behind switches do the same, each for itself; those
behind one switch share its steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import Switches
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.switches.program import Bundle, SwitchProgram
from gapless.ir.process_groups import Groups
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["switched_plan", "why_not"]


_MANY_ROOTS = 8
"""Of so many and fewer no part is tried: a shard for each root costs little then."""


@dataclass(frozen=True)
class _Shape:
    """Of an ALLREDUCE: the `roots` of a piece in each node, the number of `pieces`, and the steps between a piece's
    reductions and its multicasts (`delay`). `cut`: chunks of a shard, as many for each node where nodes exchange them.
    """

    roots: int
    pieces: int
    delay: int
    cut: int

    @classmethod
    def of(cls, nodes: _Nodes, roots: int, pieces: int, delay: int) -> _Shape:
        """With as few chunks as there can be: a multiple of the ranks, and for each node as many in each shard."""
        shards = roots * pieces
        return cls(roots, pieces, delay, math.lcm(shards * nodes.cut, nodes.count) // shards)

    @property
    def chunks(self) -> int:
        """The chunks of all pieces."""
        return self.roots * self.pieces * self.cut

    def shard(self, piece: int, place: int) -> tuple[int, ...]:
        """The chunks of a piece's shard."""
        first = (piece * self.roots + place) * self.cut
        return tuple(range(first, first + self.cut))


@dataclass(frozen=True)
class _Nodes:
    """The switch groups that reduce and multicast, each rank in one, all of one size; and how they exchange sums.

    `groups`: numbers in the topology. `turns`: half of the transfers of each rank for a shard between nodes.
    `exchange`: appends to a program what makes sums of a shard, of which rank k of the tuple has its node's, complete
    in all of them. `is_apart`: each is a process group with chunks of its own; several may be behind one switch.
    """

    groups: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    cut: int
    turns: int
    exchange: Callable[[SwitchProgram, tuple[int, ...], tuple[int, ...], int], None]
    is_apart: bool = False

    @property
    def size(self) -> int:
        """The ranks of each node."""
        return len(self.ranks[0])

    @property
    def count(self) -> int:
        """The ranks among which data are added up: of all nodes, or of a process group."""
        return self.size if self.is_apart else len(self.ranks) * self.size

    @property
    def most_behind_one(self) -> int:
        """How many are behind the same switch, at most."""
        return max(Counter(self.groups).values())


def why_not(problem: Problem) -> str:
    """Why no plan by switches is made for a question; empty where one is."""
    if problem.sketch is not None:
        return "a sketch says which links are used"
    if not isinstance(problem.collective, str | Groups):
        return "they are asked for collectives of all ranks, and of process groups"
    if problem.path_slack is not None or problem.method != "auto":
        return "one method is asked for"
    collective = problem.coarsest.collective
    if not collective.reduces and max(map(len, collective.destinations)) <= 1:
        return "each chunk is for one rank"
    if next(_makers(problem), None) is None:
        return f"nothing is known by which they carry out {collective.name}"
    return ""


def switched_plan(problem: Problem, deadline: Deadline, parameters: Switches) -> Candidate | None:
    """The fastest plan by switches, None where there is none in the chunks that are asked for."""
    best: Candidate | None = None
    for make in _makers(problem):
        found = make(problem, deadline, parameters)
        if found is not None and found.is_faster(best):
            best = found
    return best


_Maker = Callable[[Problem, Deadline, Switches], "Candidate | None"]


def _makers(problem: Problem) -> Iterator[_Maker]:
    """What may carry out a collective on its machine."""
    topology, collective = problem.topology, problem.coarsest.collective
    if isinstance(problem.collective, Groups):
        apart = _apart(topology, problem.collective)
        if apart is not None:
            yield partial(_in_pieces, apart)
        return
    whole = [
        (number, group.reduction)
        for number, group in enumerate(topology.switch_groups)
        if len(group.ranks) == topology.device_count and _is_joined(topology, group.ranks)
    ]
    for number, reduction in whole:
        if collective.name == "allreduce" and reduction.reduces_to_all:
            yield partial(_at_once, number)
        if collective.name in ("allgather", "broadcast") and reduction.multicasts:
            yield partial(_at_once, number)
        if collective.name in ("reducescatter", "reduce") and reduction.reduces:
            yield partial(_at_once, number)
    if collective.name == "allreduce":
        nodes = _nodes(topology)
        if nodes is not None:
            yield partial(_in_pieces, nodes)


def _is_joined(topology: Topology, ranks: tuple[int, ...]) -> bool:
    """Whether there is a link between any two of some ranks."""
    inside = np.isin(topology.link_source, ranks) & np.isin(topology.link_target, ranks)
    pairs = topology.link_source[inside] * topology.device_count + topology.link_target[inside]
    return len(np.unique(pairs)) == len(ranks) * (len(ranks) - 1)


def _at_once(which: int, problem: Problem, deadline: Deadline, parameters: Switches) -> Candidate | None:
    """One step, in which each chunk is multicast by its owner, or reduced to who wants it; or as many as slots need."""
    chunked = problem.coarsest
    group, collective = chunked.topology.switch_groups[which], chunked.collective
    program = SwitchProgram(chunked.topology, collective.chunk_count, chunked.chunk_bytes)
    chunks_of: dict[int | None, list[int]] = {}
    for chunk, wants in enumerate(collective.destinations):
        root = (None if len(wants) > 1 else wants[0]) if collective.reduces else collective.owners[chunk]
        chunks_of.setdefault(root, []).append(chunk)
    bundles = [
        Bundle(root, group.ranks, tuple(chunks), collective.reduces)
        for root, chunks in sorted(chunks_of.items(), key=str)
    ]
    most = group.reduction.slots or len(bundles)
    for first in range(0, len(bundles), most):
        program.step(which, bundles[first : first + most])
    return None if deadline.over else _candidate(chunked, program, "at once")


def _candidate(problem: Chunked, program: SwitchProgram, variant: str) -> Candidate:
    return Candidate(problem, program.schedule(problem.collective), "switched", variant, 0.0, {})


# -- an ALLREDUCE in pieces --------------------------------------------------------------------------------------------


def _in_pieces(nodes: _Nodes, problem: Problem, deadline: Deadline, parameters: Switches) -> Candidate | None:
    """The best numbers of roots and pieces: pieces are doubled as long as that helps, then the delay is tried."""
    best: tuple[float, Chunked, SwitchProgram, _Shape] | None = None

    def tried(shape: _Shape) -> float:
        nonlocal best
        if deadline.over or not _fits(shape, nodes, problem, parameters):
            return np.inf
        chunked = problem.in_chunks(shape.chunks // nodes.count)
        program = _allreduce(nodes, shape, chunked)
        if best is None or program.end_s < best[0]:
            best = program.end_s, chunked, program, shape
        return program.end_s

    apart = 2 if nodes.turns else 1
    for roots in _root_counts(nodes, problem.topology):
        spread = -(-nodes.size // roots)
        known_s = np.inf
        for doubling in range(parameters.most_doublings):
            end_s = tried(_Shape.of(nodes, roots, 1 << doubling, 1 if apart == 1 else apart * spread))
            if end_s >= known_s and np.isfinite(known_s):
                break
            known_s = min(known_s, end_s)
    if best is None:
        return None
    shape = best[3]
    spread = -(-nodes.size // shape.roots)
    for pieces in (shape.pieces * 3 // 4, shape.pieces * 3 // 2):
        if pieces > 0:
            tried(_Shape.of(nodes, shape.roots, pieces, shape.delay))
    for delay in () if apart == 1 or best[3].pieces == 1 else (1, 3, 4):
        tried(_Shape.of(nodes, best[3].roots, best[3].pieces, delay * spread))
    _, chunked, program, shape = best
    return _candidate(chunked, program, f"{shape.roots} roots a node, {shape.pieces} pieces")


def _fits(shape: _Shape, nodes: _Nodes, problem: Problem, parameters: Switches) -> bool:
    """Whether there are bytes for so many chunks, slots for the operations of a step, and not too many transfers."""
    chunks = shape.chunks // nodes.count
    if problem.chunks not in (None, chunks) or (chunks > 1 and shape.chunks > problem.size_bytes):
        return False
    groups = [problem.topology.switch_groups[each].reduction for each in nodes.groups]
    if any(one.slots is not None and one.slots < 2 * shape.roots * nodes.most_behind_one for one in groups):
        return False
    transfers = 2 * shape.roots * shape.pieces * len(nodes.groups) * (nodes.size - 1 + nodes.turns)
    return transfers <= parameters.most_transfers


def _root_counts(nodes: _Nodes, topology: Topology) -> list[int]:
    """Numbers of roots that are tried: all ranks, or as many as there are slots for, and fractions of many."""
    slots = [topology.switch_groups[number].reduction.slots for number in nodes.groups]
    most = min([nodes.size, *(each // (2 * nodes.most_behind_one) for each in slots if each is not None)])
    found = [most] if most else []
    while found and found[-1] > _MANY_ROOTS:
        found.append(-(-found[-1] // 2))
    return found


def _allreduce(nodes: _Nodes, shape: _Shape, problem: Chunked) -> SwitchProgram:
    """The program: in each step a piece is reduced, and an earlier one multicast; sums go between nodes after it."""
    program = SwitchProgram(problem.topology, problem.collective.chunk_count, problem.chunk_bytes)
    for step in range(shape.pieces + shape.delay):
        bundles: dict[int, list[Bundle]] = {which: [] for which in nodes.groups}
        for number, (which, ranks) in enumerate(zip(nodes.groups, nodes.ranks, strict=True)):
            first = number * shape.chunks if nodes.is_apart else 0
            for piece, reduces in ((step, True), (step - shape.delay, False)):
                if 0 <= piece < shape.pieces:
                    for place in range(shape.roots):
                        root = ranks[(piece * shape.roots + place) % len(ranks)]
                        chunks = tuple(first + chunk for chunk in shape.shard(piece, place))
                        bundles[which].append(Bundle(root, ranks, chunks, reduces))
        for which, at_once in bundles.items():
            if at_once:
                program.step(which, at_once)
        if step < shape.pieces and nodes.turns:
            for place in range(shape.roots):
                number = (step * shape.roots + place) % nodes.size
                nodes.exchange(program, tuple(ranks[number] for ranks in nodes.ranks), shape.shard(step, place), step)
    return program


def _nodes(topology: Topology) -> _Nodes | None:
    """Groups that reduce and multicast, in which each rank is once, and what joins them; None without."""
    groups = [
        number
        for number, group in enumerate(topology.switch_groups)
        if group.reduction.reduces and group.reduction.multicasts and _is_joined(topology, group.ranks)
    ]
    whole = [number for number in groups if len(topology.switch_groups[number].ranks) == topology.device_count]
    inside = whole[:1] or [
        number
        for number in groups
        if len({topology.node_of_device[rank] for rank in topology.switch_groups[number].ranks}) == 1
    ]
    ranks = tuple(topology.switch_groups[number].ranks for number in inside)
    members = sorted(rank for each in ranks for rank in each)
    if members != list(range(topology.device_count)) or len(set(map(len, ranks))) != 1:
        return None
    if len(ranks) == 1:
        return _Nodes(tuple(inside), ranks, 1, 0, _no_exchange)
    rails = [tuple(each[place] for each in ranks) for place in range(len(ranks[0]))]
    switched = [_rail_switch(topology, rail) for rail in rails]
    by_rail = {rail: which for rail, which in zip(rails, switched, strict=True) if which is not None}
    if len(by_rail) == len(rails):
        return _Nodes(tuple(inside), ranks, 1, len(ranks), partial(_by_switch, by_rail))
    exchange = _halving if len(ranks) & (len(ranks) - 1) == 0 else _around
    if not all(_has_links(topology, rail, exchange) for rail in rails):
        return None
    turns = len(_bits(len(ranks))) if exchange is _halving else len(ranks) - 1
    return _Nodes(tuple(inside), ranks, len(ranks), turns, exchange)


def _apart(topology: Topology, asked: Groups) -> _Nodes | None:
    """Process groups for an ALLREDUCE of as many bytes among as many ranks each, apart, each behind a switch that
    reduces and multicasts to them; None where they aren't.
    """
    first = asked.groups[0]
    alike = {(group.collective, group.size_bytes, len(group.ranks)) for group in asked.groups}
    if alike != {("allreduce", first.size_bytes, len(first.ranks))} or not asked.is_disjoint:
        return None
    behind = [_behind(topology, group.ranks) for group in asked.groups]
    found = [which for which in behind if which is not None]
    limits = {which: topology.switch_groups[which].reduction.groups for which in found}
    if len(found) < len(behind) or any(
        most is not None and found.count(which) > most for which, most in limits.items()
    ):
        return None
    return _Nodes(tuple(found), tuple(group.ranks for group in asked.groups), 1, 0, _no_exchange, is_apart=True)


def _behind(topology: Topology, ranks: tuple[int, ...]) -> int | None:
    """The switch group that reduces to a rank of these and multicasts from it, which are all of its ranks, or some."""
    for number, group in enumerate(topology.switch_groups):
        reduction, members = group.reduction, set(group.ranks)
        fits = members == set(ranks) or (reduction.subsets and members.issuperset(ranks))
        if fits and reduction.reduces and reduction.multicasts and _is_joined(topology, ranks):
            return number
    return None


def _no_exchange(program: SwitchProgram, ranks: tuple[int, ...], chunks: tuple[int, ...], step: int) -> None:
    """Of a single node, or of a process group: its sums are complete."""


def _rail_switch(topology: Topology, rail: tuple[int, ...]) -> int | None:
    """The switch group that joins just these ranks, and reduces to all of them."""
    for number, group in enumerate(topology.switch_groups):
        if sorted(group.ranks) == sorted(rail) and group.reduction.reduces_to_all and _is_joined(topology, group.ranks):
            return number
    return None


def _has_links(topology: Topology, rail: tuple[int, ...], exchange: Callable[..., None]) -> bool:
    pairs = set(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True))
    count = len(rail)
    if exchange is _around:
        wanted = [(rail[k], rail[(k + 1) % count]) for k in range(count)]
    else:
        wanted = [(rail[k], rail[k ^ bit]) for k in range(count) for bit in _bits(count)]
    return pairs.issuperset(wanted)


def _bits(count: int) -> list[int]:
    """The powers of two below it, the largest first."""
    return [1 << k for k in reversed(range(count.bit_length() - 1))]


def _by_switch(
    by_rail: dict[tuple[int, ...], int],
    program: SwitchProgram,
    ranks: tuple[int, ...],
    chunks: tuple[int, ...],
    step: int,
) -> None:
    """By the switch that joins the ranks, to all of them."""
    which = by_rail[ranks]
    program.step(which, [Bundle(None, program.topology.switch_groups[which].ranks, chunks, True)])


def _parts(chunks: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Equal runs of chunks."""
    size = len(chunks) // count
    return [chunks[size * k : size * (k + 1)] for k in range(count)]


def _halving(program: SwitchProgram, ranks: tuple[int, ...], chunks: tuple[int, ...], step: int) -> None:
    """Recursive halving, then doubling: partners swap halves of what they still have to add, then all that is whole."""
    count, parts = len(ranks), _parts(chunks, len(ranks))
    for bit in _bits(count):
        for k, rank in enumerate(ranks):
            # What both have to add so far: the chunks whose higher bits are the rank's; the partner's half is sent.
            mine = [c for c in range(count) if (c ^ k) < 2 * bit and (c ^ k) & bit]
            program.send(rank, ranks[k ^ bit], tuple(chunk for c in mine for chunk in parts[c]), True)
    for bit in reversed(_bits(count)):
        for k, rank in enumerate(ranks):
            mine = [c for c in range(count) if (c ^ k) < bit]
            program.send(rank, ranks[k ^ bit], tuple(chunk for c in mine for chunk in parts[c]), False)


def _around(program: SwitchProgram, ranks: tuple[int, ...], chunks: tuple[int, ...], step: int) -> None:
    """Around a ring, twice: each chunk is added up on the first, handed on on the second."""
    count, parts = len(ranks), _parts(chunks, len(ranks))
    for turn in range(2 * count - 2):
        for k, rank in enumerate(ranks):
            shift = turn if turn < count - 1 else turn - count
            program.send(rank, ranks[(k + 1) % count], parts[(k - shift) % count], turn < count - 1)
