"""The size of MONeT's encodings, next to what the thesis reports (Table 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gapless.encodings.monet.ilp import model as ilp
from gapless.encodings.monet.study import checkmate
from gapless.encodings.monet.study.ablation import ablation
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["THESIS", "Comparison", "Statistics", "comparison", "statistics"]


@dataclass(frozen=True)
class Statistics:
    """Rows, columns and nonzeros of a model, before a solver's presolve."""

    rows: int
    columns: int
    nonzeros: int


@dataclass(frozen=True)
class Comparison:
    """One line of the table: ours, and (rows, columns) of the thesis, None where it has no such line."""

    graph: str
    encoding: str
    ours: Statistics
    thesis: tuple[int, int] | None

    def __str__(self) -> str:
        thesis = "-" if self.thesis is None else f"{self.thesis[0]:,} x {self.thesis[1]:,}"
        ours = f"{self.ours.rows:,} x {self.ours.columns:,}, {self.ours.nonzeros:,} nonzeros"
        return f"{self.graph:14} {self.encoding:12} {ours:44} thesis {thesis}"


THESIS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "googlenet": {"checkmate": (719327, 519252), "monet-noop": (344652, 167238), "monet": (781747, 362640)},
    "resnet50": {"checkmate": (473592, 344659), "monet-noop": (221630, 104673), "monet": (487842, 229431)},
    "mobilenet_v2": {"checkmate": (337316, 247033), "monet-noop": (153828, 74579), "monet": (241478, 115047)},
    "un": {"checkmate": (65715, 48744), "monet-noop": (32273, 15982), "monet": (73624, 36548)},
    "vgg16": {"checkmate": (25334, 18968), "monet-noop": (12772, 6306), "monet": (21918, 11234)},
}
"""(Constraints, variables) after Gurobi's presolve at 10 GB.

The lines of MONeT-NoOp for ResNet-50 and GoogLeNet are exchanged in the text; here they are as in the solver's logs.
"""


def statistics(model: Model) -> Statistics:
    """The size of a model."""
    arrays = model.arrays()
    return Statistics(len(arrays.row_lower), len(arrays.cost), len(arrays.index))


def comparison(graphs: Iterable[TrainingGraph], budget_bytes: int = 10 * 2**30) -> list[Comparison]:
    """The table of all three encodings for the given graphs; `print` shows a line well."""
    lines = []
    for graph in graphs:
        models = {
            "checkmate": checkmate.encode(graph, budget_bytes).milp,
            "monet-noop": ilp.encode(ablation(graph, "noop"), budget_bytes).milp,
            "monet": ilp.encode(graph, budget_bytes).milp,
        }
        thesis = THESIS.get(graph.name, {})
        lines += [Comparison(graph.name, name, statistics(model), thesis.get(name)) for name, model in models.items()]
    return lines
