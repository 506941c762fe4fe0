"""The methods, in order: the knapsack exactly, switches by prices of a byte, all limits as a MILP; rules by name alone.

The MILP: a mode for each layer and epoch, a data budget, steps in time, few switches. A price on bytes makes epochs
independent but for switches, and bounds every plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.baselines import RULES, best_at
from gapless.encodings.ranks.decision import phases_of
from gapless.encodings.ranks.parameters import Parameters
from gapless.encodings.ranks.problem import Problem
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.model import Model
from gapless.model.knapsack import best, is_within, one_mode_each, within_budget
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Status
from gapless.solvers.proofs import solve_proven

__all__ = [
    "IN_ORDER", "Encoding", "Found", "ModeMethod", "ModeSearch", "Switching", "asked_methods", "encode", "is_allowed",
    "switched",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHOSEN = 0.5
_ROUNDING = 1e-9
"""Sums in another order differ by less than this share."""
_MARGIN = 1e-6
"""More than the share by which solvers let a row be broken."""


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
    shape = (len(problem.starts), problem.trace.layer_count, len(problem.trace.modes))
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


_SMALLEST = 1e-15
"""The smallest price that is looked at, of the largest."""


@dataclass(frozen=True)
class Switching:
    """Modes of shape (E, L), what they spoil, and a bound on what all with as few switches and bytes spoil."""

    modes: Ints
    error: float
    bound: float


def switched(problem: Problem, prices: int, most_work: int, deadline: Deadline) -> Switching | None:
    """A good plan of at most `problem.switches` switches within its data budget, for so many prices of a byte.

    At a price, the best phases are a dynamic programme over epochs; the price is bisected to where they fit into the
    budget. The modes of the phases found are then chosen anew, exactly. None where even the cheapest modes don't fit.
    """
    assert problem.data_bytes is not None
    assert problem.switches is not None
    found: Switching | None = None
    bound, tried = -math.inf, set[tuple[int, ...]]()
    for dual, starts in _priced(problem, problem.data_bytes, problem.switches, prices, deadline):
        bound = max(bound, dual)
        if starts in tried:
            continue
        tried.add(starts)
        choice = best(problem.items(starts), problem.data_bytes, most_work)
        if choice is not None and (found is None or choice.error < found.error):
            found = Switching(problem.spread(starts, choice.modes), choice.error, 0.0)
    return None if found is None else Switching(found.modes, found.error, min(bound, found.error))


def _priced(
    problem: Problem, budget: int, switches: int, prices: int, deadline: Deadline
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Lagrangian bounds and the phases that attain them, at prices that are bisected; a price of nothing first."""
    high = float(problem.error.sum()) or 1.0  # at which no error is worth a byte
    low, price = _SMALLEST * high, 0.0
    for _ in range(prices):
        total, starts, spent = _phases(problem, price, switches)
        yield total - price * budget, starts
        if deadline.over or (price == 0.0 and is_within(spent, budget)):
            return
        if price:
            low, high = (price, high) if spent > budget else (low, price)
        price = math.sqrt(low * high)


def _phases(problem: Problem, price: float, switches: int) -> tuple[float, tuple[int, ...], float]:
    """The least error plus price of bytes with so many switches, its phases' first epochs, and its bytes."""
    epochs = problem.trace.epoch_count
    value = np.concatenate(
        [np.zeros((1, *problem.error.shape[1:])), np.cumsum(problem.error + price * problem.cost, 0)]
    )
    # least[p, e]: of the first e epochs in p + 1 phases; came[p, e]: the first epoch of the last of them.
    least = np.full((min(switches, epochs - 1) + 1, epochs + 1), math.inf)
    came = np.zeros(least.shape, dtype=np.int64)
    least[:, 0] = 0.0
    for end in range(1, epochs + 1):
        last = (value[end] - value[:end]).min(axis=2).sum(axis=1)  # of a phase from each epoch before the end
        least[0, end] = last[0]
        for phase in range(1, len(least)):
            totals = least[phase - 1, :end] + last
            came[phase, end] = int(totals.argmin())
            least[phase, end] = totals[came[phase, end]]
    starts, end = list[int](), epochs
    for phase in range(len(least) - 1, -1, -1):
        start = int(came[phase, end])
        if end > start:
            starts.append(start)
        end = start
    firsts = tuple(sorted({0, *starts}))
    cost = np.add.reduceat(problem.cost, list(firsts), axis=0)
    priced = np.add.reduceat(problem.error, list(firsts), axis=0) + price * cost
    spent = np.take_along_axis(cost, priced.argmin(axis=2)[:, :, None], axis=2).sum()
    return float(least[-1, epochs]), firsts, float(spent)


# -- the methods -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Modes of shape (E, L) that a method found, what they spoil, and a bound on that of all plans, if it has one."""

    modes: Ints
    error: float
    bound: float | None
    method: str


@dataclass
class ModeSearch:
    """The best modes so far. `start`: modes for the MILP to begin with, allowed or not, and their bound. `status`: what
    is known where nothing is found.
    """

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    best: Found | None = None
    start: Found | None = None
    status: Status = Status.NO_SOLUTION

    @property
    def is_over(self) -> bool:
        """Whether the best is proven within the gap."""
        if self.best is None or self.best.bound is None:
            return False
        return (relative_gap(self.best.error, self.best.bound) or 0.0) <= max(self.options.gap, _ROUNDING)

    def offer(self, candidate: Found) -> None:
        """Keep it if it spoils no more than the best, but for rounding: what was found later has the better bound."""
        if self.best is not None and candidate.error > self.best.error * (1 + _ROUNDING):
            return
        self.best = candidate
        if self.options.on_progress is not None:
            news = (candidate.error, candidate.bound, candidate.method)
            self.options.on_progress(Progress(self.deadline.elapsed_s, *news, unit="error"))


@dataclass(frozen=True)
class ModeMethod:
    """A method by name. `suits`: the questions in which it is tried where the question's method is one of `under`."""

    name: str
    run: Callable[[ModeSearch], Iterator[Found]]
    suits: Callable[[Problem], bool]
    under: tuple[str, ...] = ("auto",)

    def supports(self, problem: Problem) -> bool:
        """Whether it is asked for by name, or worth trying."""
        return problem.method == self.name or (problem.method in self.under and self.suits(problem))


def is_allowed(problem: Problem, modes: Ints) -> bool:
    """Whether modes, shape (E, L), keep to the data, the switches and the step time that are allowed."""
    phases = phases_of(modes)
    if problem.data_bytes is not None and problem.sent_bytes(modes) > problem.data_bytes:
        return False
    most = 0 if problem.phases == "static" else math.inf if problem.switches is None else problem.switches
    if len(phases) - 1 > most:
        return False
    return problem.step_time_s is None or all(
        is_within(problem.step.duration_s(modes[first]), problem.step_time_s) for first, _ in phases
    )


def _budget(search: ModeSearch) -> Iterator[Found]:
    """The dynamic programme, for data alone."""
    problem = search.problem
    assert problem.data_bytes is not None
    choice = best_at(problem.items(problem.starts), search.parameters.most_work)(problem.data_bytes)
    if choice is not None:
        yield Found(problem.spread(problem.starts, choice.modes), choice.error, choice.bound, "budget")


def _prices(search: ModeSearch) -> Iterator[Found]:
    """A limited number of switches; under a step time, which it doesn't know, only for the MILP to begin with."""
    problem, parameters = search.problem, search.parameters
    free = replace(problem, step_time_s=None)
    plan = switched(free, parameters.multipliers, parameters.most_work, search.deadline)
    if plan is not None:
        search.start = Found(plan.modes, plan.error, plan.bound, "prices")
        if problem.step_time_s is None:
            yield search.start


def _milp(search: ModeSearch) -> Iterator[Found]:
    """The MILP, from the start where that is allowed; again with a margin where the solver's point breaks a limit."""
    problem, start = search.problem, search.start
    solver, bound, modes = search.options.solver or "highs", None, None
    allowed = start if start is not None and is_allowed(problem, start.modes) else None
    for margin in (0.0, _MARGIN):
        encoding = encode(problem, margin)
        point = None if allowed is None else encoding.point(allowed.modes)
        solution = solve_proven(encoding.model, replace(search.deadline.stage(), on_plan=None), solver, point)
        if not margin:
            if solution.status is Status.INFEASIBLE:
                search.status = Status.INFEASIBLE
                return
            bound = None if solution.bound is None else encoding.unit * solution.bound
        chosen = None if solution.values is None else problem.canonical(encoding.modes(solution.values))
        if chosen is not None and is_allowed(problem, chosen):
            modes = chosen
            break
    if allowed is not None and (modes is None or allowed.error < problem.spoiled(modes)):
        modes = allowed.modes
    if modes is not None:
        proven = [each for each in (bound, None if start is None else start.bound) if each is not None]
        yield Found(modes, problem.spoiled(modes), max(proven, default=None), f"milp+{solver}")


def _ruled(name: str, search: ModeSearch) -> Iterator[Found]:
    """What somebody's rule makes of it, where that is within the limits."""
    problem = search.problem
    assert problem.data_bytes is not None
    modes = RULES[name](problem, problem.data_bytes, search.parameters, search.options.seed)
    if is_allowed(problem, modes):
        yield Found(modes, problem.spoiled(modes), None, name)


def _always(problem: Problem) -> bool:
    return True


def _never(problem: Problem) -> bool:
    return False


IN_ORDER = (
    ModeMethod("budget", _budget, lambda problem: problem.is_knapsack),
    ModeMethod(
        "prices", _prices, lambda problem: problem.switches is not None and problem.data_bytes is not None,
        ("auto", "milp"),
    ),
    ModeMethod("milp", _milp, lambda problem: not problem.is_knapsack),
    *(ModeMethod(name, partial(_ruled, name), _never) for name in RULES),
)  # fmt: skip


def asked_methods(problem: Problem, choice: MethodChoice) -> list[ModeMethod]:
    """The methods that the choice allows, in order; one that it names is tried whatever the question.

    Raises `InputError` for a named one that can't plan such a question, and where none is left.
    """
    named = choice.only if problem.method == "auto" else ()
    for name in named:
        if name == "prices" and (problem.switches is None or problem.data_bytes is None):
            raise InputError("methods.only: prices goes with switches and data")
        replace(problem, method="auto" if name == "prices" else name)  # which checks what goes with a method
    methods = [replace(each, suits=_always) if each.name in named else each for each in IN_ORDER]
    methods = [
        each for each in methods if each.supports(problem) and (problem.method != "auto" or choice.allows(each.name))
    ]
    if not methods:
        got = "budget" if problem.is_knapsack else "prices and milp"
        raise InputError(f"methods: auto tries {got} here, and none of them is left; name one in `only`")
    return methods
