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
from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.parameters import Parameters
from gapless.encodings.sharding.presolve.reduced import reduced
from gapless.encodings.sharding.problem import Problem
from gapless.encodings.sharding.question import BEST
from gapless.encodings.sharding.solve import solve
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.layouts.published import AUTOPARALLEL
from gapless.system import Plan

__all__ = [
    "ParameterMemoryPlan",
    "parameter_memory_only",
    "parameter_memory_plan",
    "solve_beside",
    "with_autoparallel",
]

Ints = NDArray[np.int64]
_WHOLE = 2**40
"""Parts of a whole parameter: a share is a whole number of them, rounded up."""
_MOST_LEFT, _MOST_SHARE = 256, 0.1
"""Where presolve leaves so many nodes at most, AutoParallel's plan is made beside another, in this share of the time:
two layers of a GPT on 2 x 2 devices leave 106 of 303, which take 0.2 processor seconds.
"""


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


def solve_beside(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """`solve`, with AutoParallel's plan as one of the model's baselines, where it is asked for or cheap.

    Raises `InputError` where it is asked for, and needs more memory than there is.
    """
    if problem.model is None or problem.method not in (BEST, AUTOPARALLEL):
        return solve(problem, options, parameters)
    deadline = Deadline(options)
    most_s = math.inf if problem.method == AUTOPARALLEL else _MOST_SHARE * deadline.remaining_s
    asked = with_autoparallel(problem, deadline.stage(most_s))
    plan = solve(asked, deadline.stage(), parameters)
    return replace(plan, solution=replace(plan.solution, wall_s=deadline.elapsed_s))


def with_autoparallel(problem: Problem, options: SolveOptions) -> Problem:
    """The problem with AutoParallel's plan among the baselines of its model.

    Without it where none is found in time, and where its question is large and the search is asked for: then it has to
    be proven the best of its question, too. Raises `InputError` where it is asked for and doesn't fit.
    """
    model, instance = problem.model, problem.instance
    if model is None:
        return problem
    nodes = [node for node, each in enumerate(model.layouts) if each and each[0].op == "parameter"]
    share, is_asked = Fraction(1, math.prod(model.costs.shape)), problem.method == AUTOPARALLEL
    if not is_asked:
        left = reduced(parameter_memory_only(instance, nodes, share))
        if left is None or left.node_count > _MOST_LEFT:
            return problem
    # plans of this question are none of the problem, and its answer is the best one
    quiet = replace(options, on_progress=None, on_plan=None, gap=0.0)
    found = parameter_memory_plan(instance, nodes, share, quiet)
    if found is None or not (is_asked or found.cost == found.bound):
        return problem
    return replace(problem, model=replace(model, baselines={**model.baselines, AUTOPARALLEL: found.choices}))
