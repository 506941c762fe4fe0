"""Modes: how a group of gradients may be sent, plain or through a compressor, what that costs, and how it errs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.io.typed import Stored
from gapless.profiles.compressors.compressor import ERRORS
from gapless.profiles.gradients.cost_functions import COSTS, FREE, CostFunction

__all__ = ["PLAIN", "Mode", "plain_mode"]

PLAIN = "plain"
"""The mode that compresses nothing."""


@dataclass(frozen=True)
class Mode:
    """One way to send a group: encode it, run a collective on it, decode what arrives.

    `encode` and `decode` are functions of the group's sum of `encoded_bytes`, `communication` of its sum of
    `sent_bytes`: floats, one a tensor; None stands for the tensors' `size_bytes`, before compression. `error`: one of
    `ERRORS`. `gathered`: the bytes that a rank holds of the messages of all before it decodes them, for each byte of
    the group before compression; 0 where they are added up. `communication_work`: the processor seconds that a rank
    spends on the collective, a function of its sum of `sent_bytes`. Raises `InputError` for a name or class that can't
    be, and for bytes that are negative or not finite.
    """

    name: Annotated[str, Stored(place=-3)]
    communication: Annotated[CostFunction, Stored(kinds=COSTS)]
    encode: Annotated[CostFunction, Stored(kinds=COSTS, place=-1)] = FREE
    decode: Annotated[CostFunction, Stored(kinds=COSTS, place=-1)] = FREE
    error: Annotated[str, Stored(choices=list(ERRORS), is_needed=True, place=-2)] = "unknown"
    encoded_bytes: Annotated[tuple[float, ...] | None, Stored(0, 2**53, each="a number in 0..2^53", place=1)] = None
    sent_bytes: Annotated[tuple[float, ...] | None, Stored(0, 2**53, each="a number in 0..2^53", place=1)] = None
    gathered: Annotated[float, Stored(0)] = 0.0
    communication_work: Annotated[CostFunction, Stored(kinds=COSTS)] = FREE

    def __post_init__(self) -> None:
        if not self.name or "," in self.name or self.name.strip() != self.name:
            raise InputError(f"mode: name must be a word without commas, got {self.name!r}")
        check_known("error", self.error, ERRORS)
        if not (math.isfinite(self.gathered) and self.gathered >= 0):
            raise InputError(f"mode {self.name!r}: gathered must be finite and >= 0, got {self.gathered}")
        for title in ("encoded_bytes", "sent_bytes"):
            for number, size in enumerate(getattr(self, title) or ()):
                if not (math.isfinite(size) and size >= 0):
                    raise InputError(f"mode {self.name!r}: {title}[{number}] must be finite and >= 0, got {size}")

    def encoded(self, size_bytes: Ints) -> Floats:
        """What `encode` and `decode` are functions of, one a tensor."""
        return _or_else(self.encoded_bytes, size_bytes)

    def sent(self, size_bytes: Ints) -> Floats:
        """What `communication` is a function of, one a tensor."""
        return _or_else(self.sent_bytes, size_bytes)

    def highest_s(self, size_bytes: Ints) -> float:
        """The most that any group takes, encode, collective with its work, and decode together."""
        encoded, sent = float(self.encoded(size_bytes).sum()), float(self.sent(size_bytes).sum())
        coding_s = self.encode.highest_s(encoded) + self.decode.highest_s(encoded)
        return coding_s + self.communication.highest_s(sent) + self.communication_work.highest_s(sent)


def plain_mode(communication: CostFunction) -> Mode:
    """No compression, at the cost of a collective on the gradients as they are."""
    return Mode(PLAIN, communication, error="exact")


def _or_else(given: tuple[float, ...] | None, size_bytes: Ints) -> Floats:
    return np.asarray(size_bytes if given is None else given, dtype=np.float64)
