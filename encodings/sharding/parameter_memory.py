"""AutoParallel's question on an instance of ours: memory counts for parameters only, and by shares, not by bytes.

Its limit (`add_parameter_memory_constraint` in github.com/meta-pytorch/autoparallel) adds up, over all parameters, the
share of each that a device holds; a bias counts as much as an embedding. The sum may be what it is where each parameter
has `most_share`, or its least share where that is more. Gradients, optimiser states and activations have no memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.decision import ShardingDecision
from gapless.encodings.sharding.instance import Instance
from gapless.encodings.sharding.problem import Problem
from gapless.encodings.sharding.solve import solve
from gapless.errors import InputError
from gapless.options import SolveOptions

__all__ = ["ParameterMemoryPlan", "parameter_memory_only", "parameter_memory_plan"]

Ints = NDArray[np.int64]
_WHOLE = 2**40
"""Parts of a whole parameter: a share is a whole number of them, rounded up."""


@dataclass(frozen=True)
class ParameterMemoryPlan:
    """What AutoParallel's question comes to. `cost`: of `choices`, int64, shape (nodes,). `bound`: no choices with so
    much of the parameters cost less; None where nothing is proven. `peak`: what they really use at the fullest time,
    which `fits` the limit of the instance or not.
    """

    choices: Ints
    cost: int
    bound: int | None
    peak: int
    fits: bool


def parameter_memory_only(instance: Instance, parameters: Sequence[int], most_share: Fraction) -> Instance:
    """The same costs with AutoParallel's memory. `parameters`: the nodes that are; their largest usage is a whole one.

    `most_share`: AutoParallel takes 1 / devices. Raises `InputError` for nodes that aren't there, and for a share
    outside of 0..1.
    """
    if not 0 <= most_share <= 1:
        raise InputError(f"most_share: must be in 0..1, got {most_share}")
    count = len(instance.costs)
    wrong = [node for node in parameters if not 0 <= node < count]
    if wrong:
        raise InputError(f"parameters: must be nodes in 0..{count - 1}, got {wrong[0]}")
    intervals = np.zeros_like(instance.intervals)
    usages = [np.zeros_like(usage) for usage in instance.usages]
    limit = 0
    for node in sorted(set(parameters)):
        usages[node] = _parts(instance.usages[node])
        intervals[node] = 0, 1
        limit += max(int(usages[node].min()), math.ceil(most_share * _WHOLE))
    return replace(
        instance, name=f"{instance.name}, parameters only", intervals=intervals, usages=tuple(usages), usage_limit=limit
    )


def _parts(usage: Ints) -> Ints:
    """Shares of the largest, in parts, rounded up; all of nothing is whole."""
    whole = int(usage.max())
    shares = [math.ceil(Fraction(int(each) * _WHOLE, whole)) if whole else _WHOLE for each in usage]
    return np.array(shares, dtype=np.int64)


def parameter_memory_plan(
    instance: Instance, parameters: Sequence[int], most_share: Fraction, options: SolveOptions
) -> ParameterMemoryPlan | None:
    """The best choices by AutoParallel's question, and what they use; None where none was found in time.

    Raises `InputError` as `parameter_memory_only` does.
    """
    plan = solve(Problem(parameter_memory_only(instance, parameters, most_share)), options)
    if not isinstance(plan.decision, ShardingDecision):
        return None
    choices = np.array(plan.decision.choices, dtype=np.int64)
    known = instance.evaluate(choices)
    bound = None if plan.solution.bound is None else int(plan.solution.bound)
    return ParameterMemoryPlan(choices, known.cost, bound, known.peak, known.peak <= instance.usage_limit)
