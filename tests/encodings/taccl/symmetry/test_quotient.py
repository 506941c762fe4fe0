"""QuotientProblem: one chunk of each orbit, and what it unfolds to."""

from __future__ import annotations

import numpy as np
from rails import rails
from shapes import ring

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.symmetry.quotient import quotient_problem
from gapless.ir.collective import allgather, alltoall, broadcast
from gapless.topologies.files import load_topology


def test_one_chunk_stands_for_those_of_all_ranks() -> None:
    board = quotient_problem(Chunked(rails(4), allgather(32), 1000))
    assert board.chunks.tolist() == [0]
    assert sorted(board.images[:, 0].tolist()) == list(range(32))


def test_chunks_of_an_alltoall_go_with_both_ends() -> None:
    topology = rails(2, 4)
    collective = alltoall(8)
    board = quotient_problem(Chunked(topology, collective, 1000))
    assert len(board.chunks) == 7  # what a rank keeps is not sent
    for ranks, images in zip(board.rotations.ranks, board.images, strict=True):
        for chunk, image in zip(board.chunks.tolist(), images.tolist(), strict=True):
            assert collective.owners[image] == ranks[collective.owners[chunk]]
            assert collective.destinations[image] == (int(ranks[collective.destinations[chunk][0]]),)


def test_a_root_leaves_no_symmetry() -> None:
    assert len(quotient_problem(Chunked(ring(4, lambda _: (1e-6, 1e-10)), broadcast(4), 1000)).rotations) == 1


def test_columns_hold_every_image_once() -> None:
    topology = rails(2, 4)
    board = quotient_problem(Chunked(topology, allgather(8), 1000))
    link = next(k for k, end in enumerate(topology.links) if (end.source, end.target) == (0, 4))
    one = np.zeros(1)
    columns = board.columns(np.array([0]), np.array([link]), one, one + 1, np.array([0]))
    sends = {(topology.link_source[k], topology.link_target[k]) for k in columns.link}
    assert sends == {(rank, (rank + 4) % 8) for rank in range(8)}
    assert (columns.chunk == topology.link_source[columns.link]).all()


def test_single_doors_leave_one_link_between_two_nics() -> None:
    topology = load_topology("ndv2", 3)
    doors = quotient_problem(Chunked(topology, allgather(24), 1000)).with_single_ports()
    assert doors is not None
    kept = [link for its in doors.links_of for link in its if topology.is_inter_node[link]]
    assert len(kept) == 3 * 2
    assert quotient_problem(Chunked(rails(2, 4), allgather(8), 1000)).with_single_ports() is None
