from __future__ import annotations

import pytest

from planwright.collective import COLLECTIVES, allgather, collective_by_name
from planwright.errors import InputError


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
