"""A plan that is corrected while it runs: where measured errors leave those of its trace, what is left is planned anew.

For a training of one's own::

    corrected = CorrectedPlan.of("plan.json", "trace.npz")
    state = ControlledState(model, corrected, learning_rate=0.1)
    ...
        state.end_epoch(scheduler.get_last_lr()[0])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.ranks.decision import ModeDecision
from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.solve import solve
from gapless.errors import InputError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.profiles.compression.control import EpochLook, Setting
from gapless.profiles.compression.trace import CompressionTrace, read_compression_trace

__all__ = ["CorrectedPlan", "corrected_plan"]

TOLERANCE = 0.25
"""The share by which an epoch's errors may be off before what is left is planned anew."""
LOOKS = 1
"""Steps of an epoch at which errors are measured."""


class CorrectedPlan:
    """A controller with a plan's modes, int64, shape (E, L), numbers of the trace's modes.

    At `looks` steps of each epoch the errors of all modes are measured. Where those of the planned modes are off by the
    share `tolerance`, summed over layers without sign, the errors of the epochs that are left are the trace's times
    what was measured over what was expected. Then their modes are chosen anew, for the data that the plan has left. So
    the modes never send more than the plan; looks send a plain gradient each, on top. `corrected` names the epochs
    before which that happened. Raises `InputError` for modes of another shape.
    """

    def __init__(self, trace: CompressionTrace, modes: Ints, tolerance: float = TOLERANCE, looks: int = LOOKS) -> None:
        if modes.shape != (trace.epoch_count, trace.layer_count):
            wanted = (trace.epoch_count, trace.layer_count)
            raise InputError(f"modes: must have shape {wanted}, got {modes.shape}")
        if not tolerance >= 0:
            raise InputError(f"tolerance: must be >= 0, got {tolerance}")
        self._trace, self._modes, self._tolerance, self._looks = trace, modes.copy(), tolerance, looks
        self._errors = trace.error.copy()
        self._is_static = bool((modes == modes[0]).all())
        self._epoch = 0
        self._place: list[int] = []
        self.corrected: list[int] = []

    @classmethod
    def of(cls, plan: str | Path, trace: str | Path, tolerance: float = TOLERANCE, looks: int = LOOKS) -> CorrectedPlan:
        """Of two files. Raises `InputError` for a trace that the plan isn't of."""
        saved, measured = read_plan(str(plan)), read_compression_trace(trace)
        rows = ModeDecision.of(saved, str(plan)).by_epoch
        if saved.problem.get("layers") != list(measured.layer_names) or len(rows) != measured.epoch_count:
            raise InputError(f"trace: {trace} must be of the plan's layers and epochs")
        offered = saved.problem.get("modes")
        if isinstance(offered, list):
            measured = measured.in_modes([str(mode) for mode in offered])
        strays = {mode for row in rows for mode in row} - set(measured.modes)
        if strays:
            raise InputError(f"trace: {trace} must have the plan's mode {min(strays)}")
        modes = np.array([[measured.modes.index(mode) for mode in row] for row in rows], dtype=np.int64)
        return cls(measured, modes, tolerance, looks)

    @property
    def measured(self) -> tuple[str, ...]:
        """All modes that are offered."""
        return self._trace.modes

    @property
    def modes(self) -> Ints:
        """As they are now, past epochs included."""
        return self._modes

    def start(self, layers: Sequence[str]) -> Setting:
        """The first epoch's."""
        other = set(layers) ^ set(self._trace.layer_names)
        if other:
            raise InputError(f"parameter {min(other)!r}: must be in the model and in the plan")
        self._place = [self._trace.layer_names.index(name) for name in layers]
        return self._setting()

    def is_looked_at(self, step: int) -> bool:
        """As `profile compression` does, at steps evenly apart."""
        if self._epoch >= self._trace.epoch_count:
            return False
        steps = int(self._trace.steps[self._epoch])
        count = min(self._looks, steps)
        return step in {(2 * k + 1) * steps // (2 * count) for k in range(count)}

    def after(self, look: EpochLook) -> Setting:
        """The next epoch's, planned anew where the errors were off; after the last one, as it was."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        if look.errors is not None and self._epoch < self._trace.epoch_count:
            found = np.empty_like(look.errors)
            found[self._place] = look.errors
            if self._deviation(epoch, found) > self._tolerance:
                self._correct(epoch, found)
        return self._setting()

    def state_dict(self) -> dict[str, object]:
        """The modes, the errors that are expected, and how far it is."""
        return {"epoch": self._epoch, "modes": self._modes.tolist(), "errors": self._errors.tolist(),
                "corrected": list(self.corrected)}  # fmt: skip

    def load_state_dict(self, data: Mapping[str, Any]) -> Setting:
        """Go on as the one that gave this."""
        self._epoch, self.corrected = int(data["epoch"]), list(data["corrected"])
        self._modes, self._errors = np.array(data["modes"], dtype=np.int64), np.array(data["errors"], dtype=np.float64)
        return self._setting()

    def _deviation(self, epoch: int, found: Floats) -> float:
        """By which share the errors of the epoch's modes are off, summed over layers without sign."""
        layers = np.arange(self._trace.layer_count)
        expected = self._errors[epoch, layers, self._modes[epoch]]
        off = np.abs(found[layers, self._modes[epoch]] - expected).sum()
        total = expected.sum()
        return float(off / total) if total else (np.inf if off else 0.0)

    def _correct(self, epoch: int, found: Floats) -> None:
        """Expect what was measured from here on, and choose the modes of the epochs that are left."""
        expected, rest = self._errors[epoch], slice(epoch + 1, None)
        ratio = np.divide(found, expected, out=np.ones_like(found), where=expected > 0)
        later = self._errors[rest] * ratio
        self._errors[rest] = np.where((expected > 0)[None], later, found[None])
        trace = self._trace
        left = replace(
            trace, steps=trace.steps[rest], learning_rate=trace.learning_rate[rest], error=self._errors[rest],
            norm=trace.norm[rest], deviation_ratio=trace.deviation_ratio[rest],
        )  # fmt: skip
        rows = np.arange(trace.layer_count)
        data_bytes = sum(
            int(steps) * int(trace.sent_bytes[rows, modes].sum())
            for steps, modes in zip(left.steps, self._modes[rest], strict=True)
        )
        question = Problem(left, data_bytes, phases="static" if self._is_static else "epoch")
        decision = solve(question, SolveOptions()).decision
        assert isinstance(decision, ModeDecision)  # the modes that are there now are within the data
        number = {mode: place for place, mode in enumerate(trace.modes)}
        self._modes[rest] = [[number[mode] for mode in row] for row in decision.by_epoch]
        self.corrected.append(epoch + 1)

    def _setting(self) -> Setting:
        row = self._modes[min(self._epoch, len(self._modes) - 1)]
        return Setting(tuple(self._trace.modes[row[place]] for place in self._place))


def corrected_plan(plan: str, trace: str, tolerance: float, looks: int) -> CorrectedPlan:
    """The controller of these files, for a run."""
    return CorrectedPlan.of(plan, trace, tolerance, looks)
