"""The linear relaxation of a model, whose optimum no solution beats."""

from __future__ import annotations

from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model

__all__ = ["linear_optimum"]


def linear_optimum(model: Model) -> float:
    """The optimum of the linear relaxation."""
    arrays = model.arrays()
    relaxed = Model("relaxed")
    x = relaxed.continuous("x", len(arrays.cost), lower=arrays.lower, upper=arrays.upper)
    relaxed.add_sparse(
        "rows", len(arrays.row_lower), arrays.row_of_entry, x[arrays.index], arrays.value,
        lower=arrays.row_lower, upper=arrays.row_upper,
    )  # fmt: skip
    relaxed.minimize((arrays.cost, x), offset=arrays.offset)
    solution = solve_model(relaxed, SolveOptions(threads=1))
    assert solution.objective is not None
    return solution.objective
