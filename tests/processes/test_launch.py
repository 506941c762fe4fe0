"""What a launcher leaves in the environment."""

from __future__ import annotations

import pytest

from gapless.errors import InputError
from gapless.processes.launch import Launch, launched

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


def test_a_place_among_ranks_is_read() -> None:
    assert launched(TORCHRUN) == Launch(5, 8, 1, "node0", 29500)


def test_the_local_rank_is_the_rank_where_it_is_not_said() -> None:
    assert launched({**TORCHRUN, "LOCAL_RANK": ""}) == Launch(5, 8, 5, "node0", 29500)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_without_all_of_it_nobody_has_launched(name: str) -> None:
    assert launched({key: value for key, value in TORCHRUN.items() if key != name}) is None


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("RANK", "8", "from 0 to 7, got '8'"),
        ("WORLD_SIZE", "0", "from 1 to 1000000, got '0'"),
        ("MASTER_PORT", "http", "from 1 to 65535, got 'http'"),
        ("LOCAL_RANK", "-1", "from 0 to 1000000, got '-1'"),
    ],
)
def test_what_is_no_place_is_refused(name: str, value: str, rule: str) -> None:
    with pytest.raises(InputError, match=f"{name}: must be a whole number {rule}"):
        launched({**TORCHRUN, name: value})
