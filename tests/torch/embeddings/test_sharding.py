"""Which server has which row."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.errors import InputError
from gapless.profiles.traces.trace import global_ids
from gapless.torch.embeddings.sharding import Sharding


def test_servers_share_all_rows_of_all_tables() -> None:
    sharding = Sharding((3, 1, 4), 3)
    ids = np.concatenate([global_ids(np.array([[0, 0, id_]])).reshape(-1) for id_ in range(4)])
    assert sharding.rows(ids).reshape(4, 3).tolist() == [[0, 3, 4], [0, 3, 5], [0, 3, 6], [0, 3, 7]]
    assert [sharding.rows_of(server).tolist() for server in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    for server in range(3):
        own = sharding.rows_of(server)
        assert (own % 3 == server).all()
        assert (own // 3).tolist() == list(range(len(own)))
    assert not len(sharding.rows(np.empty(0, dtype=np.int64)))


@pytest.mark.parametrize(
    ("table_rows", "servers", "message"),
    [
        ((), 1, "table_rows: must be >= 1, got 0"),
        ((3, 0), 1, "table_rows: must be >= 1"),
        ((3,), 0, "servers: must be"),
    ],
)
def test_sizes_are_checked(table_rows: tuple[int, ...], servers: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sharding(table_rows, servers)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 5]], "table 1: ids must be below its 5 rows, got 5"),
        ([[0, 0, 0]], "table_rows: must have one entry for each table, got 2, table 2"),
    ],
)
def test_ids_are_checked(ids: list[list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sharding((3, 5), 2).rows(global_ids(np.array(ids)).reshape(-1))
