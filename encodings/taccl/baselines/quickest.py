"""The quickest of the libraries' algorithms for a problem, by counted work, so that it is the floor under every answer.

It keeps to the links that a sketch allows. Of process groups each carries out the algorithm among its own ranks, all at
the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gapless.encodings.taccl.baselines.cut import cut, factor_of, standard_name
from gapless.encodings.taccl.baselines.library import ALGORITHMS, BASES, Baselines, Effort
from gapless.encodings.taccl.baselines.transfers import (
    Network,
    Send,
    backwards,
    end_s_of,
    lay,
    one_after_the_other,
    paced,
    work_of,
)
from gapless.encodings.taccl.baselines.variants import Structure, Variant, series
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.errors import InputError
from gapless.ir.collective import Collective, divided
from gapless.ir.process_groups import Group, Groups
from gapless.ir.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["EFFORT", "Quickest", "keeps_to_links", "quickest"]

EFFORT = Effort(transfers=45_000, further=16_000)
"""Some 0.2 processor seconds: a variant of each algorithm on 64 ranks, more rings and pieces on fewer."""

_MOST_LINKS = 20_000
"""Links above which a ring alone takes seconds to find."""


@dataclass(frozen=True)
class Quickest:
    """A schedule of an algorithm, in the chunks of `problem`. `work`: how many transfers were laid out to find it."""

    problem: Chunked
    name: str
    variant: str
    schedule: Schedule
    work: int


def quickest(problem: Chunked, effort: Effort = EFFORT) -> Quickest | None:
    """The quickest of the algorithms that are defined; None where none is, or none keeps to the links.

    With a path slack, which names the paths, there is none.
    """
    collective = problem.collective
    is_asked = problem.path_slack is None and problem.given is None and any(collective.destinations)
    if not is_asked or problem.link_count > _MOST_LINKS:
        return None
    if problem.groups is not None:
        return _of_groups(problem, problem.groups, effort)
    if collective.reduces and standard_name(collective) is None:
        return None
    library = Baselines(problem.logical.topology, collective)
    found, work = library.quickest(problem.chunk_bytes, problem.may_cut, effort, partial(keeps_to_links, problem))
    if found is None:
        return None
    solved = _in_chunks(problem, found.collective, found.chunk_bytes)
    return Quickest(solved, found.name, found.variant, found.schedule, work)


def keeps_to_links(problem: Chunked, collective: Collective, transfers: Sequence[Transfer]) -> bool:
    """Whether every chunk stays on the links that it may use, as a part of a sum and as a sum.

    `collective`: the problem's, perhaps in smaller chunks.
    """
    if problem.is_free:
        return True
    lengths = [len(transfer.chunks) for transfer in transfers]
    link = np.repeat([transfer.link for transfer in transfers], lengths)
    reduces = np.repeat([transfer.reduces for transfer in transfers], lengths)
    cuts = collective.chunk_count // problem.collective.chunk_count
    chunk = np.array([chunk for transfer in transfers for chunk in transfer.chunks], dtype=np.int64) // cuts
    return all(
        phase.problem.logical.allowed[chunk[reduces == phase.backwards], link[reduces == phase.backwards]].all()
        for phase in problem.phases
    )


def _in_chunks(problem: Chunked, collective: Collective, chunk_bytes: int) -> Chunked:
    """The problem in the chunks of a plan."""
    if collective.chunk_count == problem.collective.chunk_count:
        return problem
    return replace(problem, collective=collective, chunk_bytes=chunk_bytes)


# -- process groups ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """A group with its collective, the part of the topology that joins its ranks, and the number of its first chunk."""

    group: Group
    collective: Collective
    structure: Structure
    first: int

    @property
    def base(self) -> str:
        """What the collective does, or undoes where it reduces."""
        return BASES.get(self.group.collective, self.group.collective)

    def forms(self, kind: str) -> list[Variant]:
        """The first variants of an algorithm, of a message a pair where it isn't defined."""
        is_defined = kind in ALGORITHMS[self.group.collective].values()
        is_defined &= kind != "hierarchical" or self.structure.is_hierarchical
        return [next(variants) for variants in series(self.structure, kind if is_defined else "direct", self.base)]

    def sends(self, variant: Variant, chunks: Collective, chunk_bytes: int, is_reversed: bool) -> Iterator[Send]:
        """What a variant sends, in chunks that are cut from the group's, by the numbers of the whole."""
        ranks, first = self.group.ranks, self.first * (chunks.chunk_count // self.collective.chunk_count)
        for send in variant.sends(cut(chunks, chunk_bytes, variant.parts, variant.whole), is_reversed):
            numbers = tuple(first + chunk for chunk in send.chunks)
            yield Send(send.piece, send.step, ranks[send.source], ranks[send.target], numbers)


def _of_groups(problem: Chunked, groups: Groups, effort: Effort) -> Quickest | None:
    """The same algorithm in every group that has it, one piece of each form."""
    members, first = list[_Member](), 0
    for group, alone in zip(groups.groups, groups.alone, strict=True):
        collective = divided(alone, problem.collective.chunks_per_rank)
        structure = Structure(_among(problem.logical.topology, group.ranks), collective)
        members.append(_Member(group, collective, structure, first))
        first += collective.chunk_count
    network, best, laid_out = Network(problem.logical.topology, problem.chunk_bytes), None, 0
    for kind in ("doubling", "tree", "hierarchical", "ring", "direct"):
        forms = [member.forms(kind) for member in members]
        for number in range(max(map(len, forms))):
            chosen = [variants[min(number, len(variants) - 1)] for variants in forms]
            found, work = _together(problem, members, chosen, network, effort.transfers - laid_out)
            laid_out += work
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, kind, chosen[0].title)
    if best is None:
        return None
    _, solved, transfers, kind, title = best
    topology = problem.logical.topology
    sends = sends_in_turn(transfers, solved)
    schedule = to_schedule(topology, solved.collective, solved.chunk_bytes, *sends, f"{kind} on {topology.name}")
    return Quickest(solved, kind, title, schedule, laid_out)


def _together(
    problem: Chunked, members: Sequence[_Member], chosen: Sequence[Variant], network: Network, most: int
) -> tuple[tuple[float, Chunked, list[Transfer]] | None, int]:
    """When all groups are done, in which chunks, by which transfers; and how much work that was.

    Nothing is found where it would be more than `most`, where chunks may not be cut, or leave their links.
    """
    pairs = list(zip(members, chosen, strict=True))
    expected = sum(
        member.structure.work("ring", member.base, variant) * (1 + (member.group.collective == "allreduce"))
        for member, variant in pairs
    )
    factor = math.lcm(*(factor_of(member.collective, variant.parts, variant.whole) for member, variant in pairs))
    if expected > most or (factor > 1 and not problem.may_cut):
        return None, 0
    chunk_bytes = -(-problem.chunk_bytes // factor)
    before = network.work + network.reverse.work
    into: list[Send] = []
    out: dict[bool, list[Send]] = {False: [], True: []}  # by whether it follows a sum
    for member, variant in pairs:
        chunks = divided(member.collective, factor)
        if chunks.reduces:
            into += member.sends(variant, chunks, chunk_bytes, True)
        if not chunks.reduces or member.group.collective == "allreduce":
            out[chunks.reduces] += member.sends(variant, chunks, chunk_bytes, False)
    try:
        laid = [lay(side, sends, most) for side, sends in
                ((network.reverse, into), (network, out[True]), (network, out[False]))]  # fmt: skip
    except InputError:  # a rank is out of reach
        return None, expected
    work = network.work + network.reverse.work - before
    if any(transfers is None for transfers in laid):
        return None, work + expected
    collected, spread, others = (transfers or [] for transfers in laid)
    transfers = paced([*one_after_the_other(backwards(collected), spread), *others], (1, 0))
    work += work_of(transfers)
    solved = _in_chunks(problem, divided(problem.collective, factor), chunk_bytes)
    if not keeps_to_links(problem, solved.collective, transfers):
        return None, work
    return (end_s_of(network, transfers, chunk_bytes), solved, transfers), work


def _among(topology: Topology, ranks: Sequence[int]) -> Topology:
    """The links between some ranks, which are numbered anew in their order."""
    nodes = {node: number for number, node in enumerate(sorted({topology.node_of_device[rank] for rank in ranks}))}
    node_of_device = tuple(nodes[topology.node_of_device[rank]] for rank in ranks)
    links, _ = topology.links_among(ranks)
    return Topology(f"{len(ranks)} ranks of {topology.name}", node_of_device, links, topology.resources)
