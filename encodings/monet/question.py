"""The question as people ask it: a network by name or a graph in a file, and a budget of memory."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from gapless.encodings.monet.objective import Objective
from gapless.encodings.monet.problem import Problem
from gapless.errors import InputError
from gapless.fields import Share
from gapless.io.record import suggestion
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import read_training_graph
from gapless.profiles.training.networks import build, network_names

__all__ = ["budget_bytes", "find_graph", "problem"]

_DEVICE = "p100"
"""Whose costs a named network has if nothing is said: that of the thesis."""


def problem(
    graph: str | TrainingGraph,
    *,
    budget: int | Share,
    batch: int | None = None,
    device: str | None = None,
    objective: str = "time",
    method: str = "auto",
) -> Problem:
    """A training step within a budget: bytes, or a share of what the step takes without any saving.

    `batch` and `device` go with a named network. Raises `InputError` that names an argument which is unknown, missing,
    or doesn't go with the others.
    """
    found = find_graph(graph, batch, device)
    return Problem(found, budget_bytes(budget, found), objective=cast("Objective", objective), method=method)


def find_graph(graph: str | TrainingGraph, batch: int | None, device: str | None) -> TrainingGraph:
    """The graph of a named network, in a file, or given."""
    names = network_names()
    if isinstance(graph, str) and graph in names:
        if batch is None:
            raise InputError(f"batch: must be given: {graph} is built for any batch size")
        return build(graph, batch, device or _DEVICE)
    hint = suggestion(graph, names) if isinstance(graph, str) else ""
    if batch is not None or device is not None:
        got = f"{graph!r}" + (f"; {hint}" if hint else "") if isinstance(graph, str) else "a graph"
        raise InputError(f"`batch` and `device` go with a named network ({', '.join(names)}), got {got}")
    if isinstance(graph, TrainingGraph):
        return graph
    if hint and not Path(graph).exists():
        raise InputError(f"graph: must be a file or one of {', '.join(names)}, got {graph!r}; {hint}")
    return read_training_graph(graph)


def budget_bytes(budget: int | Share, graph: TrainingGraph) -> int:
    """A budget in bytes, where it is a share of what the graph takes without saving."""
    if isinstance(budget, Share):
        return max(int(budget.ratio * peak_without_saving_bytes(graph)), 1)
    return budget
