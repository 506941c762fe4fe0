"""What a plan decides: phases of epochs, and the mode in which each layer's gradient is sent in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from gapless.decision import Decision
from gapless.errors import InputError
from gapless.io.typed import Stored

__all__ = ["ModeDecision", "Phase", "phases_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Phase:
    """So many epochs from `first_epoch` on, in which each layer's gradient is sent in the same one of `modes`."""

    first_epoch: int
    epochs: Annotated[int, Stored(1)]
    modes: tuple[str, ...]


@dataclass(frozen=True)
class ModeDecision(Decision):
    """The phases, one after the other from epoch 0 on, with a mode for each layer.

    Raises `InputError` for phases that leave an epoch out, have it twice, or have modes of other numbers of layers.
    """

    phases: Annotated[tuple[Phase, ...], Stored(is_filled=True)]

    def __post_init__(self) -> None:
        at, layers = 0, len(self.phases[0].modes)
        for number, phase in enumerate(self.phases):
            if phase.first_epoch != at:
                raise InputError(f"phases[{number}]: first_epoch: must be {at}, got {phase.first_epoch}")
            if len(phase.modes) != layers:
                rule = f"must have a mode for each layer, {layers} as phases[0]"
                raise InputError(f"phases[{number}]: modes: {rule}, got {len(phase.modes)}")
            at += phase.epochs

    @property
    def by_epoch(self) -> tuple[tuple[str, ...], ...]:
        """The mode of each layer in each epoch."""
        return tuple(phase.modes for phase in self.phases for _ in range(phase.epochs))

    @classmethod
    def made_of(cls, modes: Ints, names: Sequence[str]) -> ModeDecision:
        """Of numbers of modes, int64, shape (E, L), which stand for these names."""
        return cls(tuple(
            Phase(first, end - first, tuple(names[mode] for mode in modes[first])) for first, end in phases_of(modes)
        ))  # fmt: skip


def phases_of(modes: Ints) -> list[tuple[int, int]]:
    """(first epoch, epoch after the last) of each run of equal rows of modes, int64, shape (E, L)."""
    starts = [0, *(1 + np.flatnonzero((modes[1:] != modes[:-1]).any(axis=1))).tolist()]
    return list(zip(starts, [*starts[1:], len(modes)], strict=True))
