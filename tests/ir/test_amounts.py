"""Amounts: what ALLTOALLV and ALLGATHERV ask of the chunks that their shares are cut into."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.ir.amounts import Amounts, pieces_of
from gapless.ir.collective import divided


@examples(500)
@given(size=st.integers(0, 10**6), count=st.integers(1, 50))
def test_pieces_add_up_and_are_alike(size: int, count: int) -> None:
    pieces = pieces_of(size, count)
    assert sum(pieces) == size
    assert len(pieces) <= count
    if pieces:
        assert min(pieces) >= 1
        assert max(pieces) - min(pieces) <= 31


def test_alltoallv_has_a_share_for_each_pair_with_bytes() -> None:
    amounts = Amounts("alltoallv", ((1, 5, 0), (0, 0, 0), (7, 0, 2)))
    collective = amounts.cut([[1], [2, 3], [], [], [], [], [7], [], [2]])
    assert collective.inputs == ((0, 1, 2), (), (3, 4))
    assert collective.outputs == ((0, 3), (1, 2), (4,))
    assert collective.chunk_sizes == (1, 2, 3, 7, 2)
    assert collective.destinations == ((), (1,), (1,), (0,), ())
    assert collective.graph(0).size_bytes.tolist() == [1, 2, 3, 7, 2]
    assert (amounts.input_bytes, amounts.output_bytes) == (9, 8)
    assert amounts.sent.tolist() == [[0, 5, 0], [0, 0, 0], [7, 0, 0]]
    assert amounts.turned.rows == ((1, 0, 7), (5, 0, 0), (0, 0, 2))


def test_allgatherv_brings_every_share_to_all() -> None:
    amounts = Amounts("allgatherv", ((4, 0, 6),))
    collective = amounts.cut([[2, 2], [], [6]])
    assert collective.inputs == ((0, 1), (), (2,))
    assert collective.outputs == ((0, 1, 2),) * 3
    assert amounts.sent.tolist() == [[0, 4, 4], [0, 0, 0], [6, 6, 0]]
    assert (amounts.input_bytes, amounts.output_bytes) == (6, 10)


@pytest.mark.parametrize(
    ("name", "rows", "rule"),
    [
        ("alltoallv", ((1, 2), (3,)), "must be square"),
        (
            "alltoallv",
            ((1, 2, 3), (3, 4, 5)),
            "must be square, bytes from row to column, for alltoallv, got 2 rows of 3",
        ),
        ("alltoallv", ((1, -2), (3, 4)), "row 0, column 1: must be bytes in 0..10"),
        ("alltoallv", ((1, 10**16), (3, 4)), "row 0, column 1: must be bytes in 0..10"),
        ("alltoallv", ((9, 0), (0, 9)), "must have bytes for another rank"),
        ("alltoallv", ((9,),), "at least 2 ranks"),
        ("allgatherv", ((1, 2), (3, 4)), "must be one row"),
        ("alltoall", ((1, 2), (3, 4)), "must be one of allgatherv, alltoallv"),
    ],
)
def test_bad_amounts_are_refused(name: str, rows: tuple[tuple[int, ...], ...], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        Amounts(name, rows)


def test_unlike_chunks_are_not_divided_and_must_all_have_a_size() -> None:
    collective = Amounts("allgatherv", ((4, 6),)).cut([[4], [6]])
    with pytest.raises(InputError, match="unlike sizes"):
        divided(collective, 2)
    with pytest.raises(InputError, match="chunk_sizes must be 2 of at least 1 byte, got 1 of at least 4"):
        type(collective)("one", 2, 1, ((0,), (1,)), ((0, 1), (0, 1)), chunk_sizes=(4,))


def test_equal_bytes_are_those_of_what_is_sent() -> None:
    matrix = np.full((3, 3), 7)
    np.fill_diagonal(matrix, [1, 2, 3])
    assert Amounts("alltoallv", tuple(map(tuple, matrix.tolist()))).equal_bytes == 7
    assert Amounts("allgatherv", ((7, 7),)).equal_bytes == 7
    assert Amounts("allgatherv", ((7, 8),)).equal_bytes is None
