"""What a plan minimises: the step's time, or its energy (section 8.1 of the thesis).

Search, relaxation and ILP see nothing of an implementation but its cost, and call that cost seconds. Least energy is
their problem too, on a graph whose implementations take as many seconds as they use joules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from gapless.errors import InputError
from gapless.profiles.training.graph import Implementation, TrainingGraph
from gapless.units import Unit

__all__ = ["OBJECTIVES", "UNITS", "Objective", "costed"]

Objective = Literal["time", "energy"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
UNITS: dict[Objective, Unit] = {"time": "s", "energy": "j"}


def costed(graph: TrainingGraph, objective: Objective) -> TrainingGraph:
    """The graph on which the least time is the least of the objective; all numbers stay.

    For energy, the duration of each implementation is its joules. Raises `InputError` where a power is unknown.
    """
    if objective == "time":
        return graph
    return graph.with_implementations(lambda name, impl: replace(impl, duration_s=_energy_j(name, impl), power_w=None))


def _energy_j(name: str, impl: Implementation) -> float:
    if impl.energy_j is None:
        raise InputError(
            f"objective 'energy': every implementation must have power_w, one of node {name!r} has none; the built-in "
            "networks have it, measured graphs do not"
        )
    return impl.energy_j
