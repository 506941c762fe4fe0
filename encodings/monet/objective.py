"""What a plan minimises: the step's time, or its energy (section 8.1 of the thesis).

Search, relaxation and ILP see nothing of a way but its cost, and call that cost seconds. Least energy is their problem
too, on a graph whose ways take as many seconds as they use joules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from gapless.errors import InputError
from gapless.profiles.training.graph import TrainingGraph, Way
from gapless.units import Unit

__all__ = ["OBJECTIVES", "UNITS", "Objective", "costed"]

Objective = Literal["time", "energy"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
UNITS: dict[Objective, Unit] = {"time": "s", "energy": "j"}


def costed(graph: TrainingGraph, objective: Objective) -> TrainingGraph:
    """The graph on which the least time is the least of the objective; nodes, variants and ways keep their numbers.

    For energy, the duration of each way is its joules. Raises `InputError` where a way's power is unknown.
    """
    if objective == "time":
        return graph
    return replace(
        graph,
        forward=tuple(
            replace(
                node,
                ways=_costed(node.name, node.ways),
                again=_costed(node.name, node.again),
                in_place=_costed(node.name, node.in_place),
            )
            for node in graph.forward
        ),
        backward=tuple(
            replace(node, variants=tuple(replace(its, ways=_costed(node.name, its.ways)) for its in node.variants))
            for node in graph.backward
        ),
    )


def _costed(name: str, ways: tuple[Way, ...]) -> tuple[Way, ...]:
    return tuple(replace(way, duration_s=_energy_j(name, way), power_w=None) for way in ways)


def _energy_j(name: str, way: Way) -> float:
    if way.energy_j is None:
        raise InputError(
            f"objective 'energy': every way must have power_w, a way of node {name!r} has none; the built-in networks "
            "have it, measured graphs do not"
        )
    return way.energy_j
