"""How a training is sent from epoch to epoch, decided while it runs: what a controller sees and sets, and Accordion's.

A controller is asked once an epoch. It sees norms of gradients, and errors of modes if it wants them, and sets the mode
of each layer, or the batch of a worker, for the epoch that begins. Every rank has one and shows it the same numbers, so
that all decide alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gapless.array_types import Floats, Mask
from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of

__all__ = [
    "Accordion", "AccordionBatches", "Controller", "CriticalPhases", "Detection", "EpochLook", "Setting",
    "critical_epochs",
]  # fmt: skip

_UNCOMPRESSED = "plain"


@dataclass(frozen=True)
class Setting:
    """How an epoch is sent: the mode of each layer. `batch`: examples of a worker in a step, None for as many as ever;
    `rate_factor`: what the learning rate of the schedule is multiplied by.
    """

    modes: tuple[str, ...]
    batch: int | None = None
    rate_factor: float = 1.0


@dataclass(frozen=True)
class EpochLook:
    """What is known when an epoch ends. `norms`: float, shape (L,): of the mean of its steps' gradients. `decays`:
    whether the learning rate of the next epoch is lower. `errors`: float, shape (L, M): the mean squared error of each
    mode that the controller goes by, over the steps that were looked at.
    """

    norms: Floats
    decays: bool
    errors: Floats | None = None


class Controller(Protocol):
    """Sets how each epoch is sent. `measured`: modes whose errors it wants to see."""

    @property
    def measured(self) -> tuple[str, ...]:
        """Modes whose errors are measured at the steps that are looked at."""

    def start(self, layers: Sequence[str]) -> Setting:
        """The first epoch's. Raises `InputError` for layers that it isn't made for."""

    def is_looked_at(self, step: int) -> bool:
        """Whether modes' errors are measured at a step of the epoch; that sends the plain gradient once more."""

    def after(self, look: EpochLook) -> Setting:
        """The next epoch's."""

    def state_dict(self) -> dict[str, object]:
        """What it goes by, in plain values."""

    def load_state_dict(self, data: Mapping[str, Any]) -> Setting:
        """Go on as the one that gave this; the setting of the epoch that runs."""


# -- Accordion's rule --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detection:
    """When a phase is critical: `threshold` (Accordion's eta) is the share by which a norm must have changed since the
    last look, `interval` epochs ago; the first `warm_up` epochs are critical in any case, None for all before two looks
    can be compared. Raises `InputError` naming the field.
    """

    threshold: float = 0.5
    interval: int = 10
    warm_up: int | None = None

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise InputError(f"threshold: must be > 0, got {self.threshold}")
        if self.interval < 1:
            raise InputError(f"interval: must be >= 1, got {self.interval}")
        if self.warm_up is not None and self.warm_up < 0:
            raise InputError(f"warm_up: must be >= 0, got {self.warm_up}")

    @property
    def first_compared(self) -> int:
        """The first epoch before which two looks have been compared."""
        return 2 * self.interval

    @property
    def warm_epochs(self) -> int:
        """How many epochs are critical in any case."""
        return self.first_compared if self.warm_up is None else self.warm_up


class CriticalPhases:
    """Algorithm 1 of Accordion, for several layers: `critical`, bool, shape (L,), of the epoch that begins.

    Every `interval` epochs a layer's phase is critical where the norm has changed by the threshold; it is so after a
    decay of the learning rate until the next look, and in the warm-up.
    """

    def __init__(self, detection: Detection, layers: int) -> None:
        self.detection, self.epoch = detection, 0
        self._verdict = np.zeros(layers, dtype=bool)
        self._last: Floats | None = None

    @property
    def critical(self) -> Mask:
        """Of the epoch that begins, or runs."""
        return self._verdict | (self.epoch < self.detection.warm_epochs)

    def advance(self, norms: Floats, decays: bool) -> None:
        """An epoch is over; of its norms only those are used that a look falls on."""
        self.epoch += 1
        if self.epoch % self.detection.interval == 0:
            if self._last is not None:
                self._verdict = np.abs(self._last - norms) >= self.detection.threshold * self._last
            self._last = norms.copy()
        if decays:
            self._verdict = np.ones_like(self._verdict)

    def state_dict(self) -> dict[str, object]:
        """In plain values."""
        last = None if self._last is None else self._last.tolist()
        return {"epoch": self.epoch, "verdict": self._verdict.tolist(), "last": last}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epoch, self._verdict = int(data["epoch"]), np.array(data["verdict"], dtype=bool)
        self._last = None if data["last"] is None else np.array(data["last"], dtype=np.float64)


def critical_epochs(norm: Floats, learning_rate: Floats, detection: Detection) -> Mask:
    """What the rule says of a recorded training, bool, shape (E, L), from norms, float, shape (E, L)."""
    phases = CriticalPhases(detection, norm.shape[1])
    found = [phases.critical]
    for epoch in range(1, len(norm)):
        phases.advance(norm[epoch - 1], bool(learning_rate[epoch] < learning_rate[epoch - 1]))
        found.append(phases.critical)
    return np.array(found)


class _ByNorms(ABC):
    """What goes by critical phases alone."""

    _phases: CriticalPhases

    @property
    def measured(self) -> tuple[str, ...]:
        """None: it goes by norms."""
        return ()

    def is_looked_at(self, step: int) -> bool:
        """Never."""
        return False

    def after(self, look: EpochLook) -> Setting:
        """The next epoch's."""
        self._phases.advance(self._seen(look.norms), look.decays)
        return self._setting()

    def state_dict(self) -> dict[str, object]:
        """What the rule goes by."""
        return self._phases.state_dict()

    def load_state_dict(self, data: Mapping[str, Any]) -> Setting:
        """Go on as the one that gave this."""
        self._phases.load_state_dict(data)
        return self._setting()

    def _seen(self, norms: Floats) -> Floats:
        return norms

    @abstractmethod
    def _setting(self) -> Setting:
        """Of the epoch that begins, by the phases."""


@dataclass
class Accordion(_ByNorms):
    """Accordion for a compressor: a layer has the mode `low` (little compression) while its phase is critical, else
    `high`. Raises `InputError` for a mode that is none.
    """

    low: str
    high: str
    detection: Detection = field(default_factory=Detection)

    def __post_init__(self) -> None:
        for mode in (self.low, self.high):
            method_of(mode)
        self._phases = CriticalPhases(self.detection, 0)

    def start(self, layers: Sequence[str]) -> Setting:
        """The first epoch's."""
        self._phases = CriticalPhases(self.detection, len(layers))
        return self._setting()

    def _setting(self) -> Setting:
        return Setting(tuple(self.low if critical else self.high for critical in self._phases.critical))


@dataclass
class AccordionBatches(_ByNorms):
    """Accordion for batch sizes: `low` examples of a worker in a step while the phase of the whole model is critical,
    else `high`, with the learning rate multiplied by their ratio. Gradients are sent plain.

    Raises `InputError` for sizes that aren't 1 <= low < high.
    """

    low: int
    high: int
    detection: Detection = field(default_factory=Detection)

    def __post_init__(self) -> None:
        if not 1 <= self.low < self.high:
            raise InputError(f"batches: must be 1 <= low < high, got {self.low} and {self.high}")
        self._phases, self._layers = CriticalPhases(self.detection, 1), 0

    def start(self, layers: Sequence[str]) -> Setting:
        """The first epoch's."""
        self._phases, self._layers = CriticalPhases(self.detection, 1), len(layers)
        return self._setting()

    def _seen(self, norms: Floats) -> Floats:
        """Of the whole model's gradient."""
        return np.array([np.linalg.norm(norms)])

    def _setting(self) -> Setting:
        batch = self.low if self._phases.critical[0] else self.high
        return Setting((_UNCOMPRESSED,) * self._layers, batch, batch / self.low)
