"""Ranks that a launcher has started, such as torchrun: what it says of them in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gapless.errors import InputError

__all__ = ["Launch", "launched"]

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """This process's place among the ranks: `rank` of `ranks`, the `local_rank`-th on its machine.

    Rank 0 is reached at `address`, a host, and `port`.
    """

    rank: int
    ranks: int
    local_rank: int
    address: str
    port: int


def launched(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """What a launcher has left in the environment, None where this process was not started by one.

    Raises `InputError` for a value that is no place among ranks.
    """
    if not all(environment.get(name) for name in _NEEDED):
        return None
    ranks = _whole(environment, "WORLD_SIZE", 1, 10**6)
    rank = _whole(environment, "RANK", 0, ranks - 1)
    local = _whole(environment, "LOCAL_RANK", 0, 10**6) if environment.get("LOCAL_RANK") else rank
    return Launch(rank, ranks, local, environment["MASTER_ADDR"], _whole(environment, "MASTER_PORT", 1, 65535))


def _whole(environment: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = environment[name]
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        rule = f"must be a whole number from {least} to {most}"
        raise InputError(f"{name}: {rule}, got {text!r}; a launcher such as torchrun sets it")
    return int(text)
