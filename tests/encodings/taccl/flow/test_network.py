"""The network of a matching: what its links hold, where they lead, and what may pass them."""

from __future__ import annotations

from rails import rails
from shapes import even, line

from gapless.collective import allgather, collective_by_name
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.flow.network import Network, network_of
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations


def _network(problem: Chunked, sets: tuple[tuple[int, ...], ...] = ()) -> Network:
    return network_of(problem, quotient_problem(problem, no_rotations(problem.logical.topology)), sets)


def test_ports_are_clocks_that_several_links_hold() -> None:
    assert _network(Chunked(rails(1, 3), allgather(3), 1000)).shares_clocks
    assert not _network(Chunked(line(4, even), allgather(4), 1000)).shares_clocks


def test_links_enter_the_sets_that_their_source_is_not_in() -> None:
    network = _network(Chunked(line(4, even), allgather(4), 1000), ((0, 1), (2, 3)))
    ends = {(s, t): entered for s, t, entered in zip(network.source, network.target, network.enters, strict=True)}
    assert ends[1, 2] == (1,)
    assert ends[2, 1] == (0,)
    assert ends[0, 1] == ()


def test_a_chunk_for_one_rank_passes_links_that_lead_nearer_to_it() -> None:
    network = _network(Chunked(line(3, even), collective_by_name("alltoall", 3, 3), 1000))
    for link, (source, target) in enumerate(zip(network.source, network.target, strict=True)):
        passing = {bit for bit in range(len(network.chunks)) if network.may_pass[link] >> bit & 1}
        wanting = {bit for rank, want in enumerate(network.want) for bit in passing if want >> bit & 1
                   if (rank - source) * (target - source) > 0}  # fmt: skip
        assert passing == wanting
        assert passing
