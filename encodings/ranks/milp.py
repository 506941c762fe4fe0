"""All limits at once as a MILP: a mode for each layer and epoch, a data budget, steps in time, few switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.budget import one_mode_each, within_budget
from gapless.encodings.ranks.problem import Problem
from gapless.model import Model

__all__ = ["Encoding", "encode"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHOSEN = 0.5


@dataclass(frozen=True)
class Encoding:
    """The model; `columns`: int64, shape (phases, L, M), of the modes, and those of switches (none for static modes).
    `unit`: the error that counts as 1.
    """

    problem: Problem
    model: Model
    columns: Ints
    switches: Ints
    unit: float

    def modes(self, values: Floats) -> Ints:
        """The modes of a point, int64, shape (E, L)."""
        chosen = (values[self.columns] > _CHOSEN).argmax(axis=2)
        return self.problem.spread(self.problem.starts, chosen.reshape(-1))

    def point(self, modes: Ints) -> Floats:
        """The point of modes of shape (E, L)."""
        values = np.zeros(self.model.column_count)
        chosen = modes[list(self.problem.starts)]
        np.put_along_axis(values, np.take_along_axis(self.columns, chosen[:, :, None], axis=2).reshape(-1), 1.0, 0)
        if len(self.switches):
            values[self.switches] = (chosen[1:] != chosen[:-1]).any(axis=1)
        return values


def encode(problem: Problem, margin: float = 0.0) -> Encoding:
    """The model of a problem; `margin`: the share of limits that is kept free, since solvers break rows by a little."""
    items, model = problem.items(problem.starts), Model("modes of gradients")
    shape: tuple[Any, ...] = (len(problem.starts), problem.trace.layer_count, len(problem.trace.modes))
    columns: Ints = model.binaries("mode", shape)
    unit = float(items.error.max(axis=1).sum()) or 1.0
    one_mode_each(model, "each_layer_has_one_mode", columns)
    if problem.data_bytes is not None:
        within_budget(model, "what_is_sent_is_within_the_budget", items.cost, columns, problem.data_bytes, margin)
    if problem.step_time_s is not None:
        problem.step.add_limit(model, list(columns), (1 - margin) * problem.step_time_s)
    switches = np.zeros(0, dtype=np.int64)
    if problem.switches is not None and shape[0] > 1:
        switches = model.binaries("switch", shape[0] - 1)
        model.add(
            "modes_change_at_switches_only",
            (1.0, columns[1:, :, :, None]), (-1.0, columns[:-1, :, :, None]), (-1.0, switches[:, None, None, None]),
            upper=0.0,
        )  # fmt: skip
        model.add("switches_are_few", (1.0, switches), upper=problem.switches)
    model.minimize((items.error.reshape(-1) / unit, columns.reshape(-1)))
    return Encoding(problem, model, columns, switches, unit)
