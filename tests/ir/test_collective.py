from __future__ import annotations

import pytest

from gapless.errors import InputError
from gapless.ir.collective import (
    COLLECTIVES,
    ROOTED,
    Collective,
    allgather,
    allreduce,
    alltoall,
    collective_by_name,
    inverse,
)


def test_allgather_starts_with_each_ranks_own_chunks_and_ends_with_all_everywhere() -> None:
    collective = allgather(3, chunks_per_rank=2)
    assert collective.inputs == ((0, 1), (2, 3), (4, 5))
    assert collective.outputs == ((0, 1, 2, 3, 4, 5),) * 3
    assert collective.chunk_count == 6
    assert collective.owners == (0, 0, 1, 1, 2, 2)
    assert collective.destinations == ((1, 2), (1, 2), (0, 2), (0, 2), (0, 1), (0, 1))


def test_the_graph_of_allgather_has_a_tensor_per_chunk_and_the_conditions_as_placements() -> None:
    graph = allgather(2).graph(1000)
    assert graph.size_bytes.tolist() == [1000, 1000]
    assert graph.ops == ()
    assert list(zip(graph.initial.tensors.tolist(), graph.initial.devices.tolist(), strict=True)) == [(0, 0), (1, 1)]
    required = list(zip(graph.required.tensors.tolist(), graph.required.devices.tolist(), strict=True))
    assert required == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert not graph.tracks_contributions


@pytest.mark.parametrize(("ranks", "parts", "message"), [(1, 1, "rank_count must be >= 2"), (2, 0, "chunks_per_rank")])
def test_allgather_refuses_too_few_ranks_or_parts(ranks: int, parts: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        allgather(ranks, parts)


def test_collectives_are_found_by_name() -> None:
    assert collective_by_name("allgather", 4, 2) == allgather(4, 2)
    with pytest.raises(InputError, match=f"must be one of {', '.join(sorted(COLLECTIVES))}, got 'gather all'"):
        collective_by_name("gather all", 4)


def test_reducescatter_is_allgather_backwards() -> None:
    collective = collective_by_name("reducescatter", 3)
    assert collective == inverse(allgather(3), "reducescatter")
    assert collective.outputs == ((0,), (1,), (2,))
    assert collective.contributors == ((0, 1, 2),) * 3
    with pytest.raises(InputError, match="already reduces"):
        inverse(collective)


def test_the_graph_of_a_reduction_holds_a_contribution_for_each_rank() -> None:
    graph = allreduce(2).graph(1000)
    assert graph.initial.contributions == (1, 1, 2, 2)
    assert graph.required.contributions == (3, 3, 3, 3)
    with pytest.raises(InputError, match="no single owner"):
        assert allreduce(2).owners


def test_alltoall_transposes_the_buffers() -> None:
    assert alltoall(3).outputs == ((0, 3, 6), (1, 4, 7), (2, 5, 8))
    assert alltoall(2, 4).outputs == ((0, 1, 4, 5), (2, 3, 6, 7))
    with pytest.raises(InputError, match="1 or a multiple of the 3 ranks, got 4"):
        alltoall(3, 4)


@pytest.mark.parametrize("name", ROOTED)
def test_a_root_may_be_any_rank(name: str) -> None:
    collective = collective_by_name(name, 4, root=2)
    rooted = collective.outputs if name in ("gather", "reduce") else collective.inputs
    assert len(rooted[2]) == max(map(len, rooted))
    with pytest.raises(InputError, match=r"root must be in 0\.\.3, got 4"):
        collective_by_name(name, 4, root=4)


def test_a_root_is_refused_where_there_is_none() -> None:
    with pytest.raises(InputError, match="allgather has none"):
        collective_by_name("allgather", 4, root=0)


def test_sendrecv_needs_two_ranks() -> None:
    collective = COLLECTIVES["sendrecv"](3, 1, 2)
    assert collective.inputs == ((), (), (0,))
    assert collective.outputs == ((0,), (), ())
    with pytest.raises(InputError, match="target must differ from root"):
        COLLECTIVES["sendrecv"](3, 1, 2, 2)


def test_a_chunk_with_two_owners_must_be_reduced() -> None:
    with pytest.raises(InputError, match="chunk 0 must be in the input of exactly one rank, got 2"):
        Collective("mine", 2, 1, ((0,), (0,)), ((0,), (0,)))
    with pytest.raises(InputError, match="chunk 0 must be in the input of exactly one rank, got 0"):
        Collective("mine", 2, 1, ((1,), ()), ((0,), (1,)))
